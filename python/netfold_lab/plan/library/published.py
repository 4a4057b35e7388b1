"""Published times of collectives beside predicted ones (published.json)."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from netfold_lab.plan.library import nccl
from netfold_lab.plan.library.machine import HOPPER, INTEL, Machine, generation_of
from netfold_lab.plan.library.pieces import Piece, fastest
from netfold_lab.plan.step.names import ALL_REDUCE

FILE = Path(__file__).parent / "published.json"
ALL_TO_ALL = "all-to-all"
LATER, BLIND, SEEN = "later", "blind", "seen"
GPUS = 8
CABLES, CABLE_US = 2, 0.6
LARGE = 1 << 20  # bytes; larger tensors are judged apart from smaller ones


@dataclass(frozen=True)
class Row:
    """One published time. `is_fitted`: a constant was fitted to it."""

    table: str
    size_bytes: int
    published_s: float
    predicted_s: float
    chosen: str
    is_fitted: bool

    @property
    def off(self) -> float:
        """The relative error: 0.1 if the prediction is a tenth too long."""
        return self.predicted_s / self.published_s - 1


@cache
def read() -> dict[str, Any]:
    """The file's contents."""
    return dict(json.loads(FILE.read_text(encoding="utf-8")))


def machine_of(told: dict[str, Any]) -> Machine:
    """The servers of a table."""
    generation = told.get("generation", generation_of(told["nvlink_gbit_s"]))
    return Machine(
        servers=told["servers"],
        gpus=told.get("gpus", GPUS),
        nvlink_bytes_s=told["nvlink_gbit_s"] * 1e9 / 8,
        nics_bytes_s=told["nics"] * told["nic_gbit_s"] * 1e9 / 8,
        path_s=CABLES * told.get("latency_us", CABLE_US) * 1e-6,
        generation=generation,
        sums=generation >= HOPPER,
        folds=told.get("folding", False),
        processor=told.get("processor", INTEL),
    )


def _pieces(told: dict[str, Any]) -> list[Piece]:
    """Those that the planner may choose from, or what the source forced."""
    machine, collective = machine_of(told), told.get("collective", ALL_REDUCE)
    if collective == ALL_TO_ALL:
        return nccl.all_to_all(machine, machine.world)
    found = nccl.pieces(machine, collective)
    return [each for each in found if _name(each) == told["forced"]] if "forced" in told else found


def _name(piece: Piece) -> str:
    return f"{piece.algorithm}, {piece.protocol}"


def rows(told: dict[str, Any]) -> list[Row]:
    """All sizes of a table."""
    pieces = _pieces(told)
    found = []
    for text, microseconds in told["microseconds"].items():
        size = int(text)
        piece = fastest(pieces, size)
        name = _name(piece)
        fitted = text in told.get("fitted", ())
        found.append(Row(told["name"], size, microseconds * 1e-6, piece.seconds(size), name, fitted))
    return found


def geometric_mean_error(of: list[Row]) -> float:
    """How far a typical prediction is off: 0.1 if the mean of |log(predicted / published)| is log(1.1)."""
    return math.exp(sum(abs(math.log(row.predicted_s / row.published_s)) for row in of) / len(of)) - 1


def is_counted(told: dict[str, Any]) -> bool:
    """Whether a table says something of the model. The latency of its network must be known: RDMA, which NCCL's table
    describes, or as its maker states. And others did not get twice the rate from the same hardware."""
    return "slow" not in told and ("network" not in told or "latency_us" in told)


def held_out(is_large: bool, with_all: bool = False, mark: str = "") -> list[Row]:
    """All rows of all-reduces that nothing was fitted to: from 1 MiB on, or smaller ones. `with_all`: also of tables
    that do not count. `mark`: only of tables that have it. Those that are "later" were opened when the model was final,
    and the last of these were "blind"."""
    taken = [told for told in _counted("tables", with_all) if not mark or mark in told]
    return _held_out(taken, is_large)


def others(
    is_all_to_all: bool, is_large: bool, with_all: bool = False, is_blind: bool = False, with_racks: bool = True
) -> list[Row]:
    """Rows of all-to-alls, or of all-gathers and reduce-scatters, to which nothing was fitted. `is_blind`: only of
    tables that were not seen when the model was mended. `with_racks`: also where NVLink connects several servers."""
    taken = [told for told in _others(is_all_to_all, with_all) if not is_blind or mark_of(told) == BLIND]
    return _held_out([told for told in taken if with_racks or "rack" not in told], is_large)


def when_opened(is_large: bool, is_all_to_all: bool = True, with_all: bool = False) -> list[Row]:
    """Rows of the other collectives as the planner predicted them when their tables were opened: of those that were
    opened when the model was final."""
    return _as_opened([told for told in _others(is_all_to_all, with_all) if LATER in told], is_large)


def blind_when_opened(is_large: bool, with_all: bool = False) -> list[Row]:
    """Rows of all-reduces whose tables were blind, as the planner predicted them then."""
    return _as_opened([told for told in _counted("tables", with_all) if BLIND in told], is_large)


def mark_of(told: dict[str, Any]) -> str:
    """How a table was opened: later than the model was final, blind, and whether it was seen in a later mending."""
    return next((mark for mark in (SEEN, BLIND, LATER) if mark in told), "")


def _counted(part: str, with_all: bool) -> list[dict[str, Any]]:
    return [told for told in read()[part] if with_all or is_counted(told)]


def _others(is_all_to_all: bool, with_all: bool) -> list[dict[str, Any]]:
    taken = _counted("other_collectives", with_all)
    return [told for told in taken if (told["collective"] == ALL_TO_ALL) == is_all_to_all]


def _as_opened(taken: list[dict[str, Any]], is_large: bool) -> list[Row]:
    found = []
    for told in taken:
        was = told.get("was_us", {})
        for row in rows(told):
            first_s = was.get(str(row.size_bytes), 1e6 * row.predicted_s) * 1e-6
            found.append(replace(row, predicted_s=first_s))
    return [row for row in found if (row.size_bytes >= LARGE) == is_large]


def _held_out(taken: list[dict[str, Any]], is_large: bool) -> list[Row]:
    every = [row for told in taken for row in rows(told) if not row.is_fitted]
    return [row for row in every if (row.size_bytes >= LARGE) == is_large]


def winners() -> list[tuple[dict[str, Any], str]]:
    """Each comparison of algorithms, and the predicted winner."""
    found = []
    for told in read()["winners"]:
        pieces = nccl.pieces(machine_of(told))
        wanted = [each for each in pieces if f"{nccl.PREFIX}-{each.algorithm}" in told["of"]]
        found.append((told, f"{nccl.PREFIX}-{fastest(wanted, told['size_bytes']).algorithm}"))
    return found
