"""Figure 12 of EFLOPS: ring, HD and HDRM with 8 to 64 workers, 1 KiB to 256 MiB.

    time = start + sum over the messages of a rank ( step + bytes / rate + min(bytes, slice) / copy rate )

A message is cut into slices that are sent and folded in a pipeline; the first slice must be copied before the pipeline
starts. Fitted values: `start` and `step` of each algorithm, to 1 KiB with 8 and with 64 workers; `rate` of the ring and
of HD's pattern, to 256 MiB with 64 workers (for HD's pattern with HDRM, which has no congestion); and the extra time of
HD by congestion there. For 8 workers the text has no time of 256 MiB. Slices and copy rate are not in the paper.
Congestion begins at the size at which the bytes that wait at a link exceed the switch's buffer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from netfold_lab.plan.papers.figure import Figure, Row

KIB, MIB = 1 << 10, 1 << 20
SLICE_BYTES = 512 * KIB
COPY_BYTES_S = 25e9
BUFFERED_BYTES = 1 * MIB  # of a tensor: four flows of an eighth each wait for one link, half a MiB at a port
RING, HD, HDRM = "ring", "halving-doubling", "hdrm"
FITTED_S = {  # (algorithm, workers, bytes): times in the text
    (RING, 8, KIB): 221e-6,
    (RING, 64, KIB): 1618e-6,
    (HD, 8, KIB): 173e-6,
    (HD, 64, KIB): 376e-6,
    (HDRM, 8, KIB): 116.6e-6,
    (HDRM, 64, KIB): 266e-6,
    (RING, 64, 256 * MIB): 256 * MIB * 8 / 25.01e9,
    (HD, 64, 256 * MIB): 256 * MIB * 8 / 14.07e9,
    (HDRM, 64, 256 * MIB): 256 * MIB * 8 / 34.85e9,
}
PREDICTED_GBIT_S = {
    (RING, 64, MIB): 3.68,
    (HD, 64, MIB): 13.95,
    (HDRM, 8, 16 * MIB): 37.87,
    (HDRM, 64, 16 * MIB): 29.99,
    (RING, 8, 16 * MIB): 26.32,
    (RING, 64, 16 * MIB): 15.13,
}
WORKERS = (8, 16, 32, 64)
SIZES = tuple(KIB << each for each in range(19))


def messages(algorithm: str, workers: int, size: int) -> list[float]:
    """Bytes of each message that a rank sends, in order."""
    if algorithm == RING:
        return [size / workers] * (2 * (workers - 1))
    halves = [size / 2**each for each in range(1, int(math.log2(workers)) + 1)]
    return halves + halves[::-1]


@dataclass(frozen=True)
class Costs:
    """Costs of one algorithm in seconds: start, step, byte, and congested byte."""

    start_s: float
    step_s: float
    byte_s: float
    congested_byte_s: float = 0.0

    def seconds(self, algorithm: str, workers: int, size: int) -> float:
        """The time of one all-reduce."""
        each = messages(algorithm, workers, size)
        moved = sum(self.step_s + part * self.byte_s + min(part, SLICE_BYTES) / COPY_BYTES_S for part in each)
        return self.start_s + moved + self.congested_byte_s * max(0, size - BUFFERED_BYTES)


def _latencies(algorithm: str) -> tuple[float, float]:
    """Start and step, not negative, with the least relative error for 1 KiB at 8 and at 64 workers."""
    few, many = FITTED_S[algorithm, 8, KIB], FITTED_S[algorithm, 64, KIB]
    steps = [len(messages(algorithm, workers, KIB)) for workers in (8, 64)]
    step = (many - few) / (steps[1] - steps[0])
    start = few - step * steps[0]
    if start >= 0:
        return start, step
    parts = [count / time for count, time in zip(steps, (few, many), strict=True)]
    return 0.0, sum(parts) / sum(each * each for each in parts)


@cache
def costs(algorithm: str) -> Costs:
    """The costs, fitted as described above."""
    start, step = _latencies(algorithm)
    size = 256 * MIB
    pattern = RING if algorithm == RING else HDRM
    bare = Costs(*_latencies(pattern), 0.0).seconds(pattern, 64, size)
    byte = (FITTED_S[pattern, 64, size] - bare) / sum(messages(pattern, 64, size))
    free = Costs(start, step, byte)
    if algorithm != HD:
        return free
    return Costs(start, step, byte, (FITTED_S[HD, 64, size] - free.seconds(HD, 64, size)) / (size - BUFFERED_BYTES))


def seconds(algorithm: str, workers: int, size: int) -> float:
    """The time of one all-reduce of `size` bytes."""
    return costs(algorithm).seconds(algorithm, workers, size)


def gbit_s(algorithm: str, workers: int, size: int) -> float:
    """Size over time, as in the paper's plot."""
    return size * 8 / seconds(algorithm, workers, size) / 1e9


def _name(size: int) -> str:
    return f"{size // MIB} MiB" if size >= MIB else f"{size // KIB} KiB"


def rows() -> list[Row]:
    """Rows of fitted values, then of other values."""
    found = [
        Row(
            f"{algorithm}, {workers} workers, {_name(size)}",
            1e6 * time,
            1e6 * seconds(algorithm, workers, size),
            "us",
            True,
        )
        for (algorithm, workers, size), time in FITTED_S.items()
    ]
    found += [
        Row(f"{algorithm}, {workers} workers, {_name(size)}", rate, gbit_s(algorithm, workers, size), "Gbit/s")
        for (algorithm, workers, size), rate in PREDICTED_GBIT_S.items()
    ]
    speedup = seconds(RING, 64, KIB) / seconds(HDRM, 64, KIB)
    return [*found, Row("hdrm over ring, 64 workers, 1 KiB", 6.08, speedup, "x", True)]


def _between(sizes: Sequence[int], slower: str, faster: str) -> bool:
    return all(seconds(slower, 64, size) > seconds(faster, 64, size) for size in sizes)


def figure_12() -> Figure:
    """Latency and bandwidth."""
    remarks = [
        ("64 workers: HD is faster than the ring from 64 KiB to 4 MiB", _between(SIZES[6:13], RING, HD)),
        ("64 workers: the ring is faster than HD from 8 MiB up", _between(SIZES[13:], HD, RING)),
        ("HDRM is the fastest at every size", _between(SIZES, RING, HDRM) and _between(SIZES, HD, HDRM)),
    ]
    panels = {
        f"{workers} workers": {
            name: [(size / KIB, gbit_s(name, workers, size)) for size in SIZES] for name in (RING, HD, HDRM)
        }
        for workers in (8, 64)
    }
    return Figure(
        "12",
        "Latency and bandwidth of ring, HD and HDRM",
        (
            "Times are start + steps + bytes, with a pipeline of slices inside a message.",
            "Fitted to 1 KiB at 8 and 64 workers and 256 MiB at 64; the text has no time for 256 MiB at 8.",
            f"Not in the paper: slices of {SLICE_BYTES // KIB} KiB, copied at {COPY_BYTES_S / 1e9:.0f} GB/s; "
            f"congestion affects the part of a tensor above {BUFFERED_BYTES // MIB} MiB.",
        ),
        rows(),
        remarks,
        panels,
        ("message, KiB", "size / time, Gbit/s"),
        "x",
    )
