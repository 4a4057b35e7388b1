"""Part of `netfold bench switch` (--device, other than ring): the generator by itself, at the ends of cables, and a
switch at the others: one that runs already, or one in a lab of its own (veth, memif)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from rich.table import Table

from netfold.bench.rounds import RUN_TO_COMPLETION
from netfold.lab.errors import UsageError
from netfold.lab.generator import KINDS, GeneratorLab

RING = "ring"
FRAMES = 200_000.0  # of gradients a run, unless told otherwise
ONLY_MEMORY = ("plain", "chunks_a_job", "faults")
ONLY_CABLES = ("switch", "address", "job", "require_auth")


def is_ring(devices: Sequence[str]) -> bool:
    """Whether the switch is in the generator's own process. Raises UsageError for what cannot be mixed."""
    alone = [name for name in devices if name in (RING, *KINDS)]
    if alone and len(devices) > 1:
        raise UsageError(f"--device {alone[0]} stands for all workers' ends: leave the other devices away")
    return alone == [RING]


def worlds_of(devices: Sequence[str], workers: list[int]) -> list[int]:
    """How many workers to measure with. Raises UsageError."""
    if devices[0] in KINDS:
        return workers or [8]
    if workers not in ([], [len(devices)]):
        raise UsageError(f"--workers is for ring, {' and '.join(KINDS)}: here each --device is a worker")
    return [len(devices)]


def check(dialect: str, devices: Sequence[str], options: dict[str, Any]) -> None:
    """Raises UsageError for options that mean nothing here."""
    if dialect != "netfold":
        raise UsageError(f"--dialect {dialect} is for --device {RING}")
    for name in ONLY_MEMORY:
        if options[name]:
            raise UsageError(f"--{name.replace('_', '-')} is for --device {RING}")
    for name in ("switch", "address"):
        if devices[0] in KINDS and options[name]:
            raise UsageError(f"--{name} is for devices of yours: {devices[0]} makes a lab, with a switch of its own")
    if devices[0] not in KINDS and (options["threads"] != 1 or options["layout"] != RUN_TO_COMPLETION):
        raise UsageError("--threads and --layout are the switch's: give them to it")


@contextlib.contextmanager
def ends(devices: Sequence[str], world: int, options: dict[str, Any]) -> Iterator[tuple[list[str], dict[str, Any]]]:
    """The words before the generator's command, and the options that say where its switch is."""
    if devices[0] not in KINDS:
        yield [], options | {"device": list(devices)}
        return
    threads = ["--threads", str(options["threads"]), "--layout", options["layout"]]
    with GeneratorLab(world, devices[0], options["mtu"], threads) as lab:
        where = {"device": lab.devices, "switch": lab.switch_address, "address": lab.first_address}
        yield lab.enter(), options | where


def result_of(measured: dict[str, Any], devices: Sequence[str], workers: int, wire: str) -> dict[str, Any]:
    """What is reported of a run: the last one, which is the one at the lossless rate where that was searched for."""
    run = measured["run"]
    return {
        "system": "netfold",
        "algorithm": "in-network",
        "format": wire,
        "devices": list(devices),
        "workers": workers,
        "gradients": measured["gradients"],
        "size_bytes": measured["frame_bytes"],
        "lossless_gbit_s": measured.get("lossless_gbit_s"),
        "right": measured["right"],
        "lost": run["contributions_lost"] + run["results_lost"],
        **run,
        "unpaced": measured.get("unpaced"),
    }


def table_of(results: list[dict[str, Any]]) -> Table:
    """What people see: a row a run."""
    table = Table(title="a switch at the other ends of the devices", box=None, pad_edge=False, collapse_padding=True)
    headings = ["workers", "format", "bytes", "Gbit/s", "kframes/s", "p50 us", "p99 us", "p99.9 us", "lost", "sums"]
    is_search = results[0]["lossless_gbit_s"] is not None
    if is_search:
        headings.insert(3, "lossless Gbit/s")
    for heading in headings:
        table.add_column(heading.replace(" ", "\n"), justify="right", no_wrap=True)
    for one in results:
        latency = one.get("latency_us") or {"p50": 0, "p99": 0, "p999": 0}
        row = [str(one["workers"]), one["format"], str(one["size_bytes"])]
        row += [f"{one['lossless_gbit_s']:.3f}"] if is_search else []
        row += [f"{one['gbit_s']:.3f}", f"{one['frames_s'] / 1e3:.1f}"]
        row += [f"{latency[name]:,.0f}" for name in ("p50", "p99", "p999")]
        row += [f"{one['lost']:,}", "right" if one["right"] else f"{one['wrong_sums']:,} WRONG"]
        table.add_row(*row)
    return table
