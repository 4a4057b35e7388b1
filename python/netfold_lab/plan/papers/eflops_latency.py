"""Figure 12 of EFLOPS: ring, HD and HDRM with 8 to 64 workers, 1 KiB to 256 MiB.

    time = start + sum over the messages of a rank ( step + bytes / rate + min(bytes, slice) / copy rate )

A message is cut into slices that are sent and folded in a pipeline; the first slice must be copied before the pipeline
starts. Fitted values: `start` and `step` of each algorithm, to 1 KiB with 8 and with 64 workers; `rate` of the ring and
of HD's pattern, to 256 MiB with 64 workers (for HD's pattern with HDRM, which has no congestion); and the extra time of
HD by congestion there. For 8 workers the text has no time of 256 MiB.

Three constants are not in the paper: the slice, the copy rate, and the size at which congestion begins (the bytes that
wait at a link exceed the switch's buffer). They were chosen so that 1 and 16 MiB come out, so these values are fitted
too. Without the three, the model predicts them: the rows "without those three".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

from netfold_lab.plan.papers.figure import FITTED, PREDICTED, Constant, Figure, Row

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
MIDDLE_GBIT_S = {
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
    is_tuned: bool = True  # with the three constants that are not in the paper

    def seconds(self, algorithm: str, workers: int, size: int) -> float:
        """The time of one all-reduce."""
        each = messages(algorithm, workers, size)
        copied = sum(min(part, SLICE_BYTES) for part in each) / COPY_BYTES_S if self.is_tuned else 0.0
        congested = max(0, size - self.buffered_bytes)
        sent = len(each) * self.step_s + sum(each) * self.byte_s
        return self.start_s + sent + copied + self.congested_byte_s * congested

    @property
    def buffered_bytes(self) -> int:
        """The part of a tensor that congestion does not affect."""
        return BUFFERED_BYTES if self.is_tuned else 0


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
def costs(algorithm: str, is_tuned: bool = True) -> Costs:
    """The costs, fitted as described above."""
    start, step = _latencies(algorithm)
    size = 256 * MIB
    pattern = RING if algorithm == RING else HDRM
    bare = Costs(*_latencies(pattern), 0.0, is_tuned=is_tuned).seconds(pattern, 64, size)
    byte = (FITTED_S[pattern, 64, size] - bare) / sum(messages(pattern, 64, size))
    free = Costs(start, step, byte, is_tuned=is_tuned)
    if algorithm != HD:
        return free
    congested = (FITTED_S[HD, 64, size] - free.seconds(HD, 64, size)) / (size - free.buffered_bytes)
    return replace(free, congested_byte_s=congested)


def seconds(algorithm: str, workers: int, size: int, is_tuned: bool = True) -> float:
    """The time of one all-reduce of `size` bytes."""
    return costs(algorithm, is_tuned).seconds(algorithm, workers, size)


def gbit_s(algorithm: str, workers: int, size: int, is_tuned: bool = True) -> float:
    """Size over time, as in the paper's plot."""
    return size * 8 / seconds(algorithm, workers, size, is_tuned) / 1e9


def _name(size: int) -> str:
    return f"{size // MIB} MiB" if size >= MIB else f"{size // KIB} KiB"


def rows() -> list[Row]:
    """Rows of fitted values, then of values that are predicted without the constants that are not in the paper."""
    found = [Row(_row_name(case), 1e6 * time, 1e6 * seconds(*case), "us", FITTED) for case, time in FITTED_S.items()]
    speedup = seconds(RING, 64, KIB) / seconds(HDRM, 64, KIB)
    found.append(Row("hdrm over ring, 64 workers, 1 KiB", 6.08, speedup, "x", FITTED))
    for case, rate in MIDDLE_GBIT_S.items():
        found.append(Row(_row_name(case), rate, gbit_s(*case), "Gbit/s", FITTED))
        bare = gbit_s(*case, is_tuned=False)
        found.append(Row(f"{_row_name(case)}, without those three", rate, bare, "Gbit/s", PREDICTED))
    return found


def _row_name(case: tuple[str, int, int]) -> str:
    algorithm, workers, size = case
    return f"{algorithm}, {workers} workers, {_name(size)}"


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
            "The text has no time for 256 MiB at 8 workers.",
        ),
        rows(),
        remarks,
        panels,
        ("message, KiB", "size / time, Gbit/s"),
        "x",
        CONSTANTS,
        {f"{workers} workers": {FITTED: _published(workers)} for workers in (8, 64)},
    )


CONSTANTS = (
    Constant("start and step of each algorithm", "three pairs", "fitted to 1 KiB at 8 and at 64 workers"),
    Constant("rates of the ring and of HD's pattern", "two", "fitted to 256 MiB at 64 workers: ring, HDRM"),
    Constant("congestion of HD", "one", "fitted to 256 MiB at 64 workers"),
    Constant("slice of a message", f"{SLICE_BYTES // KIB} KiB", "fitted to 1 and 16 MiB"),
    Constant("copies of a slice", f"{COPY_BYTES_S / 1e9:.0f} GB/s", "fitted to 1 and 16 MiB"),
    Constant("tensor without congestion", f"{BUFFERED_BYTES // MIB} MiB", "fitted to 1 and 16 MiB"),
)


def _published(workers: int) -> list[tuple[float, float]]:
    """The published points of a panel: KiB, Gbit/s."""
    times = [(size, size * 8 / time / 1e9) for (_, of, size), time in FITTED_S.items() if of == workers]
    rates = [(size, rate) for (_, of, size), rate in MIDDLE_GBIT_S.items() if of == workers]
    return [(size / KIB, rate) for size, rate in times + rates]
