"""A curve of start and rate pieces, fitted to a table that all_reduce_perf (nccl-tests) or osu_allreduce prints.

Each piece is a line a + S / B over a range of sizes. The pieces are those with which all relative errors together are
smallest, with a penalty for each piece, so that noise does not make pieces of its own.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from netfold_lab.errors import UsageError

POINTS_MIN = 4
POINTS_MAX = 200  # more are thinned: a table has one row for each power of two
PIECE_MIN = 2  # points
PENALTY = 0.02  # sum of squared relative errors that one more piece must save
RATIO_OFF = 0.02  # of the printed bandwidths' ratio, which are rounded
MICROSECONDS = 1e6
PREFIX = r"^(?:\[[\d,]+\]<\w+>:|\S*\d+:|\S+Z)?\s*"  # of mpirun --tag-output, srun -l, and time stamps
NCCL_ROW = re.compile(
    PREFIX + r"(\d+)\s+\d+\s+\w+\s+(sum|prod|min|max|avg|none)\s+(?:-?\d+\s+)?([\d.eE+-]+)\s+([\d.]+)\s+([\d.]+)\s"
)
OSU_HEAD = re.compile(r"#\s*OSU MPI.*?(\w+) Latency Test", re.IGNORECASE)
OSU_ROW = re.compile(r"^\s*(\d+)\s+([\d.]+)(?:\s+[\d.]+)*\s*$")


@dataclass(frozen=True)
class Line:
    """From `least_bytes` on: seconds, and bytes per second."""

    least_bytes: float
    start_s: float
    bytes_s: float


@dataclass(frozen=True)
class Curve:
    """`off`: the largest relative error at a point of the table. `points`: their number."""

    source: str
    lines: tuple[Line, ...]
    off: float
    points: int
    least_bytes: float
    most_bytes: float

    def seconds(self, size_bytes: float) -> float:
        """The time of a tensor of so many bytes. Smaller and larger ones than the table's follow its ends."""
        line = next((each for each in reversed(self.lines) if size_bytes >= each.least_bytes), self.lines[0])
        return line.start_s + size_bytes / line.bytes_s


def read(path: Path, world: int) -> Curve:
    """Read a table that was measured on `world` GPUs or ranks, and fit the curve. Raises UsageError."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not text: name the output of all_reduce_perf or osu_allreduce") from None
    times = _nccl(path, text, world) or _osu(path, text)
    if not times:
        raise UsageError(f"{path} has no row of all_reduce_perf (nccl-tests) or osu_allreduce (OSU)")
    if len(times) < POINTS_MIN:
        raise UsageError(
            f"{path} has {len(times)} sizes; a curve needs at least {POINTS_MIN}: measure with -b 1K -e 1G -f 2"
        )
    return fit(str(path), times)


def _nccl(path: Path, text: str, world: int) -> dict[int, float]:
    """Out-of-place seconds by size."""
    found: dict[int, list[float]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        row = NCCL_ROW.match(line)
        if row is None:
            continue
        where = f"{path}, line {number}"
        size, operation, microseconds = int(row[1]), row[2], _number(where, row[3])
        if operation == "none":
            raise UsageError(f"{where}: this table is not of all_reduce_perf: it sums nothing")
        if not size:
            continue
        _check(where, size, microseconds)
        algorithm, bus = float(row[4]), float(row[5])
        _check_bandwidths(where, size, microseconds, algorithm, bus, world)
        found.setdefault(size, []).append(microseconds / MICROSECONDS)
    return {size: float(np.median(each)) for size, each in found.items()}


def _number(where: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"{where}: {text} is not a time in microseconds") from None


def _check(where: str, size: int, microseconds: float) -> None:
    if not (math.isfinite(microseconds) and microseconds > 0):
        raise UsageError(f"{where}: {size} bytes in {microseconds:g} us: a time must be above 0")


def _check_bandwidths(where: str, size: int, microseconds: float, algorithm: float, bus: float, world: int) -> None:
    """The columns agree, and the bus bandwidth is 2 (n - 1) / n times the other for the number of ranks."""
    if algorithm < 1:  # rounded too much
        return
    told = size / microseconds / 1e3
    if abs(told / algorithm - 1) > 0.05:
        raise UsageError(
            f"{where}: {size} bytes in {microseconds:g} us are {told:.3g} GB/s, but algbw is {algorithm:g}: a column "
            "is missing, or the time is not in microseconds"
        )
    if bus < 10:
        return
    ratio, wanted = bus / algorithm, 2 * (world - 1) / world
    if abs(ratio - wanted) > RATIO_OFF * wanted:
        ranks = f"about {round(2 / (2 - ratio))} ranks" if ratio < 2 - 1e-3 else "many more ranks"
        raise UsageError(
            f"{where}: the ratio of busbw and algbw is that of {ranks}, but the cluster has {world} workers: measure "
            "on all of them"
        )


def _osu(path: Path, text: str) -> dict[int, float]:
    head = OSU_HEAD.search(text)
    if head is None:
        return {}
    if head[1].lower() != "allreduce":
        raise UsageError(f"{path} is a table of {head[1]}; name one of osu_allreduce")
    found: dict[int, float] = {}
    for number, line in enumerate(text.splitlines(), 1):
        row = OSU_ROW.match(line)
        if row is not None:
            _check(f"{path}, line {number}", int(row[1]), float(row[2]))
            found[int(row[1])] = float(row[2]) / MICROSECONDS
    return found


def fit(source: str, times: dict[int, float]) -> Curve:
    """The pieces for seconds by size; at least POINTS_MIN sizes."""
    order = sorted(times)[:: max(1, len(times) // POINTS_MAX)]
    sizes, seconds = np.array(order, float), np.array([times[each] for each in order])
    count = len(order)
    best: list[tuple[float, tuple[Line, ...]]] = [(0.0, ())]
    for end in range(1, count + 1):
        options = []
        for begin in range(end - PIECE_MIN + 1):
            if begin and not best[begin][1]:
                continue
            start, slope, cost = _line(sizes[begin:end], seconds[begin:end])
            before = best[begin]
            line = Line(sizes[begin] if begin else 0.0, start, 1 / slope if slope > 0 else math.inf)
            options.append((before[0] + cost + PENALTY, (*before[1], line)))
        best.append(min(options, key=lambda each: each[0]) if options else (math.inf, ()))
    fitted = Curve(source, best[count][1], 0.0, count, sizes[0], sizes[-1])
    off = max(abs(fitted.seconds(size) / told - 1) for size, told in zip(sizes, seconds, strict=True))
    return Curve(source, fitted.lines, float(off), count, sizes[0], sizes[-1])


def _line(sizes: np.ndarray, seconds: np.ndarray) -> tuple[float, float, float]:
    """Start, seconds per byte, and the squared relative errors of the best line; neither is below zero."""
    ones, slopes = 1 / seconds, sizes / seconds
    matrix = np.stack([ones, slopes], axis=1)
    (start, slope), *_ = np.linalg.lstsq(matrix, np.ones(len(sizes)), rcond=None)
    if slope < 0:
        start, slope = float(np.sum(ones) / np.sum(ones * ones)), 0.0
    elif start < 0:
        start, slope = 0.0, float(np.sum(slopes) / np.sum(slopes * slopes))
    errors = start * ones + slope * slopes - 1
    return float(start), float(slope), float(errors @ errors)
