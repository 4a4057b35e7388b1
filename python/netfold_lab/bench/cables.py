"""Part of `netfold bench switch` (--device, other than ring): the generator at one end of the cables, and a switch at
the other end. The switch runs already, or in a lab of its own (veth, memif)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from rich.table import Table

from netfold_lab.bench.rounds import RUN_TO_COMPLETION
from netfold_lab.errors import UsageError
from netfold_lab.lab.generator import KINDS, GeneratorLab

RING = "ring"
FRAMES = 200_000.0  # gradient frames in a run, by default
ONLY_MEMORY = ("plain", "chunks_a_job", "faults")
ONLY_CABLES = ("switch", "address", "job", "require_auth")


def is_ring(devices: Sequence[str]) -> bool:
    """Whether the switch is in the generator's own process. Raises UsageError for devices that cannot be combined."""
    alone = [name for name in devices if name in (RING, *KINDS)]
    if alone and len(devices) > 1:
        raise UsageError(f"--device {alone[0]} stands for the devices of all workers: leave out the other devices")
    return alone == [RING]


def worlds_of(devices: Sequence[str], workers: list[int]) -> list[int]:
    """The numbers of workers to measure with. Raises UsageError."""
    if devices[0] in KINDS:
        return workers or [8]
    if workers not in ([], [len(devices)]):
        raise UsageError(f"--workers is only for ring, {' and '.join(KINDS)}: here each --device is a worker")
    return [len(devices)]


def check(protocol: str, devices: Sequence[str], options: dict[str, Any]) -> None:
    """Raises UsageError for options that do not apply."""
    if protocol != "netfold":
        raise UsageError(f"--protocol {protocol} needs --device {RING}")
    for name in ONLY_MEMORY:
        if options[name]:
            raise UsageError(f"--{name.replace('_', '-')} needs --device {RING}")
    for name in ("switch", "address"):
        if devices[0] in KINDS and options[name]:
            raise UsageError(f"--{name} is only for real devices: {devices[0]} creates a lab with a switch of its own")
    if devices[0] not in KINDS and (options["threads"] != 1 or options["layout"] != RUN_TO_COMPLETION):
        raise UsageError("--threads and --layout are options of the switch: start the switch with them")


@contextlib.contextmanager
def ends(devices: Sequence[str], world: int, options: dict[str, Any]) -> Iterator[tuple[list[str], dict[str, Any]]]:
    """The words before the generator's command, and the options that name its switch."""
    if devices[0] not in KINDS:
        yield [], options | {"device": list(devices)}
        return
    threads = ["--threads", str(options["threads"]), "--layout", options["layout"]]
    with GeneratorLab(world, devices[0], options["mtu"], threads) as lab:
        where = {"device": lab.devices, "switch": lab.switch_address, "address": lab.first_address}
        yield lab.enter(), options | where


def result_of(measured: dict[str, Any], devices: Sequence[str], workers: int, wire: str) -> dict[str, Any]:
    """The report of the last run. After a search that is the run at the highest rate without loss."""
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
    """The table: a row for each run."""
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
