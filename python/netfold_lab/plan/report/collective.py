"""The times of a collective on a cluster, by size and algorithm, as nccl-tests prints them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from netfold_lab.errors import UsageError
from netfold_lab.plan.cluster.spec import Cluster
from netfold_lab.plan.library import mpi
from netfold_lab.plan.library.pieces import fastest
from netfold_lab.plan.step import closed
from netfold_lab.plan.step.collectives import Contender, Net, contenders, net_of
from netfold_lab.plan.step.names import ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER

COLLECTIVES = (ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER)
NETFOLD, NCCL, OPEN_MPI, PLANNED, YOURS = "Netfold", "NCCL", "Open MPI", "none yet", "yours"
BYTES_MAX = 1 << 44


def library_of(name: str) -> str:
    """Whose library an algorithm's time predicts."""
    if name.startswith(closed.NCCL):
        return NCCL
    if name == mpi.NAME:
        return OPEN_MPI
    return YOURS if name == closed.MEASURED else PLANNED if name in closed.NAMES else NETFOLD


def entries(
    cluster: Cluster, collective: str, sizes: Sequence[int], wanted: Sequence[str], seeds: int
) -> list[dict[str, Any]]:
    """One entry for each size and algorithm. Raises UsageError."""
    if collective not in COLLECTIVES:
        raise UsageError(f"--collective takes {', '.join(COLLECTIVES)}, not {collective}")
    if wrong := [size for size in sizes if not 4 <= size <= BYTES_MAX]:
        raise UsageError(f"--size-bytes takes 4 to {BYTES_MAX}, not {wrong[0]}")
    net = net_of(cluster, seeds)
    if net.world < 2:
        raise UsageError(f"{cluster.name} has only one worker, which exchanges nothing")
    found = contenders(cluster, net.graph, wanted, collective != ALL_REDUCE)
    if not found:
        raise UsageError(f"{cluster.name} does not support {', '.join(wanted)}")
    return [each for size in sizes for each in _of_size(net, collective, size, found)]


def _of_size(net: Net, collective: str, size: int, found: Sequence[Contender]) -> list[dict[str, Any]]:
    world = net.world
    factor = (2 if collective == ALL_REDUCE else 1) * (world - 1) / world
    told: list[dict[str, Any]] = []
    for contender in found:
        try:
            seconds = net.seconds(contender.of(collective), size)
        except ValueError:
            continue
        rate = size / seconds / 1e9
        entry = {"collective": collective, "size_bytes": size, "algorithm": contender.algorithm}
        entry |= {"library": library_of(contender.algorithm), "format": contender.wire, "time_s": seconds}
        entry |= {
            "algorithm_gbyte_s": rate,
            "bus_gbyte_s": rate * factor,
            "chosen": _chosen(net, contender, collective, size),
        }
        told.append(entry)
    least = min(each["time_s"] for each in told)
    return [each | {"is_fastest": each["time_s"] == least} for each in told]


def _chosen(net: Net, contender: Contender, collective: str, size: int) -> str:
    if contender.algorithm == mpi.NAME:
        return mpi.chosen(net.world, size)
    if contender.algorithm not in closed.NAMES or net.machine is None:
        return ""
    piece = fastest(closed.pieces_of(net.machine, contender.algorithm, collective), size)
    return ", ".join(filter(None, (piece.algorithm, piece.protocol)))


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def show(console: Any, told: Sequence[dict[str, Any]], size_name: Any) -> None:
    """Print the table; the fastest of each size is bold."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    shown = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for head in ("size", "algorithm", "library", "us", "algbw", "busbw", "chosen"):
        is_text = head in ("algorithm", "library", "chosen")
        shown.add_column(head, justify="left" if is_text else "right", no_wrap=is_text)
    for each in told:
        style = "bold" if each["is_fastest"] else ""
        shown.add_row(
            size_name(each["size_bytes"]),
            each["algorithm"],
            each["library"],
            _short(1e6 * each["time_s"]),
            _short(each["algorithm_gbyte_s"]),
            _short(each["bus_gbyte_s"]),
            each["chosen"],
            style=style,
        )
    console.print(shown)
    console.print("algbw, busbw: GB/s, as nccl-tests defines them.")
