"""The parts of a network that fold, and their rates: switches of the fabric, or machines beside it that run `netfold
switch`.

A machine beside the fabric has one link: n workers send it n tensors, so that its link limits it long before a fabric's
switch, which has a link for each worker. Several machines take parts of each tensor: their links and cores add up. Any
of them folds at most as many gradients per second as its cores can.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

from netfold_lab.plan.cluster.graph import SWITCH, Graph
from netfold_lab.plan.cluster.text import Text

ATTACHED, BOX, BOX_LINK = "attached", "folding machine", "link of a folding machine"
SOCKETS, DPDK, HARDWARE = "sockets", "dpdk", "hardware"
GRADIENTS_S = {  # of one core, by program and format
    # docs/measurements/2026-11-24-switch-per-core.md
    SOCKETS: {"fp32": 0.23e9, "bf16": 0.39e9, "bfp": 0.53e9},
    # docs/measurements/2026-11-20-ethernet-switch.md, 8 workers
    DPDK: {"fp32": 6.7e9, "bfp": 9.9e9},
}
MEASURED = {SOCKETS: "2026-11-24", DPDK: "2026-11-20"}
CORES = 2  # as many as were measured: the second one added 99%


@dataclass(frozen=True)
class Folding:
    """`at`: all, leaves, spines, attached, or names of switches. `boxes` and `link_bit_s` (0: as the fabric's ports)
    are of attached machines. `fold_bit_s`: the rate as told, in operand bits; 0: cores times the rate of one.
    `measured`: gradients per second of one core by format, from the user's own measurement. `told`: what the file
    says; all else is assumed."""

    at: str | tuple[str, ...] = "all"
    program: str = ""
    boxes: int = 1
    link_bit_s: float = 0.0
    cores: int = CORES
    fold_bit_s: float = 0.0
    measured: tuple[tuple[str, float], ...] = ()
    told: frozenset[str] = frozenset()

    @property
    def is_attached(self) -> bool:
        """Whether machines beside the fabric fold, not its switches."""
        return self.at == ATTACHED

    @property
    def kind(self) -> str:
        """The program that folds: as told, or what usually runs there."""
        return self.program or (SOCKETS if self.is_attached else DPDK)

    def bit_s(self, wire: str, element_bits: float) -> float:
        """Operand bits on the wire that one machine or switch folds per second; infinite for hardware."""
        if self.fold_bit_s or self.kind == HARDWARE:
            return self.fold_bit_s or math.inf
        return self.cores * self.gradients_s(wire) * element_bits

    def gradients_s(self, wire: str) -> float:
        """Gradients that one core folds per second. A format that was not measured counts as fp32."""
        rates = dict(self.measured) or GRADIENTS_S[self.kind]
        return rates.get(wire, rates["fp32"])

    def assumptions(self, wire: str) -> list[tuple[str, str, str]]:
        """The values that the rate of folding follows from, and their sources."""
        where = f"{self.boxes} beside the fabric" if self.is_attached else f"at {self.at}"
        found = [("folding program", f"{self.kind}, {where}", _source("program" in self.told))]
        if self.is_attached:
            link = f"{self.link_bit_s / 1e9:g} Gbit/s" if self.link_bit_s else "as fast as a port of the fabric"
            found.append(("link of a folding machine", link, _source("link_gbit_s" in self.told)))
        if self.fold_bit_s:
            return [*found, ("folding there", f"{self.fold_bit_s / 1e9:g} Gbit/s of operands", "cluster file")]
        if self.kind == HARDWARE:
            return [*found, ("folding there", "as fast as its ports", "cluster file: program: hardware")]
        source = f"measured {MEASURED[self.kind]} on another machine" if not self.measured else "cluster file: bench"
        if wire not in (dict(self.measured) or GRADIENTS_S[self.kind]):
            source += f", for fp32: {wire} was not measured"
        return [
            *found,
            ("cores that fold there", str(self.cores), _source("cores" in self.told)),
            ("folding of one core", f"{self.gradients_s(wire):.2g} gradients a second", source),
        ]


def _source(is_told: bool) -> str:
    return "cluster file" if is_told else "assumed"


def attach(made: Graph, leaves: list[int], folding: Folding, rate_bit_s: float, latency_s: float) -> list[int]:
    """Add the machines beside the fabric, one after the other at its leaves. Returns their nodes."""
    boxes = []
    for number in range(folding.boxes):
        box = made.add_node(SWITCH, f"folding machine {number}", BOX)
        made.add_cable(leaves[number % len(leaves)], box, BOX_LINK, folding.link_bit_s or rate_bit_s, latency_s)
        boxes.append(box)
    return boxes


def read(text: Text, told: dict[str, Any]) -> Folding:
    """The part `fabric.folding` of a cluster file. Raises UsageError."""
    at, place = told["at"], ("fabric", "folding")
    is_attached = at == ATTACHED
    if strange := [name for name in ("boxes", "link_gbit_s") if name in told and not is_attached]:
        raise text.error((*place, strange[0]), f"only machines beside the fabric have it: write at: {ATTACHED}")
    if is_attached and told.get("program") == HARDWARE:
        raise text.error((*place, "program"), f"machines beside the fabric run {SOCKETS} or {DPDK}")
    says_rate = "gbit_s" if "gbit_s" in told else "program: hardware" if told.get("program") == HARDWARE else ""
    if says_rate and (both := [name for name in ("cores", "bench") if name in told]):
        raise text.error((*place, both[0]), f"{says_rate} already says how fast they fold; leave one of them out")
    return Folding(
        at=at if isinstance(at, str) else tuple(at),
        program=told.get("program", ""),
        boxes=told.get("boxes", 1),
        link_bit_s=told.get("link_gbit_s", 0.0) * 1e9,
        cores=told.get("cores", CORES),
        fold_bit_s=told.get("gbit_s", 0.0) * 1e9,
        measured=_bench(text, told["bench"]) if "bench" in told else (),
        told=frozenset(told),
    )


def _bench(text: Text, name: str) -> tuple[tuple[str, float], ...]:
    """Gradients per second of one core by format; of several numbers of workers, the slowest."""
    path = text.path.parent / name
    rates: dict[str, float] = {}
    try:
        for run in json.loads(path.read_text(encoding="utf-8"))["results"]:
            rate = float(run["gradients_s_per_core"])
            rates[run["format"]] = min(rate, rates.get(run["format"], math.inf))
        if not all(rate > 0 for rate in (*rates.values(), rates["fp32"])):
            raise ValueError
    except (OSError, ValueError, KeyError, TypeError):
        what = f"{path} is not the output of `netfold bench switch --format fp32,bfp --json`"
        raise text.error(("fabric", "folding", "bench"), what) from None
    return tuple(sorted(rates.items()))
