"""A rank that is timed with one algorithm and size after the other (bench/tuning.py).

`python -m netfold_lab.bench.workers.tuning CONTROL MEETING shm|tcp HOST RANK WORLD TIMEOUT_S WIRE`

    -> `try ALGORITHM COUNT`      one all-reduce of COUNT elements, checked; `time` repeats it
    <- `took NANOSECONDS`         or `cannot SENTENCE` if the algorithm does not work here
    -> `time ALGORITHM LOOPS`     LOOPS consecutive all-reduces, started by all ranks at once
    <- `took NANOSECONDS`         for all of them
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np

from netfold.errors import NetfoldError
from netfold_lab.bench.workers.host import joined
from netfold_lab.bench.workers.rank import answer

PERIOD = 13  # of the numbers that are summed
# Whole numbers below 2^9 are exact in fp32 and fp16. Other formats round; the error is at most this part of the
# largest.
TOLERANCE = {"fp32": 0.0, "fp16": 0.0, "int32": 0.0, "bf16": 0.05, "bfp": 0.05}


class Tuned:
    """One rank's all-reduces. Rank r's element i is (i mod 13 + 1)(r + 1), so every rank knows the sum."""

    def __init__(self, group: Any, rank: int, world: int, wire: str) -> None:
        self._group = group
        self._rank = rank
        self._world = world
        self._wire = wire
        self._dtype: type[np.int32 | np.float32] = np.int32 if wire == "int32" else np.float32
        self._values: np.ndarray = np.zeros(0, self._dtype)
        self._sum = self._values

    def try_once(self, algorithm: str, count: str) -> str:
        """One all-reduce, checked."""
        if self._values.size != int(count):
            pattern = (np.arange(int(count)) % PERIOD + 1).astype(self._dtype)
            self._values, self._sum = pattern * self._dtype(self._rank + 1), np.empty_like(pattern)
        self._sum.fill(0)
        begun_ns = time.monotonic_ns()
        try:
            self._all_reduce(algorithm)
        except (NetfoldError, ValueError) as error:
            if getattr(error, "code", "invalid_argument") != "invalid_argument":
                raise
            return f"cannot {' '.join(str(error).split())}"
        took_ns = time.monotonic_ns() - begun_ns
        self._check(algorithm)
        return f"took {took_ns}"

    def time(self, algorithm: str, loops: str) -> str:
        """Time `loops` all-reduces after a barrier."""
        self._barrier()
        begun_ns = time.monotonic_ns()
        for _ in range(int(loops)):
            self._all_reduce(algorithm)
        return f"took {time.monotonic_ns() - begun_ns}"

    def _all_reduce(self, algorithm: str) -> None:
        values, total = self._values, self._sum
        dtype = "int32" if self._wire == "int32" else "fp32"
        ticket = self._group.all_reduce(
            values.ctypes.data, total.ctypes.data, values.size, dtype, self._wire, algorithm=algorithm, awaited=True
        )
        self._group.wait(ticket)

    def _barrier(self) -> None:
        one = np.ones(1, np.int32)
        address = one.ctypes.data
        self._group.wait(self._group.all_reduce(address, address, 1, "int32", "int32", algorithm="recursive-doubling"))

    def _check(self, algorithm: str) -> None:
        """Raises RuntimeError if the sum is wrong: a wrong algorithm must not count as fast."""
        ranks = self._world * (self._world + 1) // 2
        whole = len(self._sum) // PERIOD * PERIOD
        off = [
            np.abs(part.astype(np.float64) - np.arange(1, part.shape[-1] + 1) * ranks).max(initial=0)
            for part in (self._sum[:whole].reshape(-1, PERIOD), self._sum[whole:])
        ]
        if not max(off) <= TOLERANCE[self._wire] * PERIOD * ranks:
            raise RuntimeError(f"{algorithm} summed {len(self._sum)} elements wrongly: off by {max(off):g}")


def main() -> None:
    """Connect, then answer commands."""
    control, *words = sys.argv[1:8]
    with joined(words) as (group, rank, world):
        tuned = Tuned(group, rank, world, sys.argv[8])
        answer(control, rank, {"try": tuned.try_once, "time": tuned.time})


if __name__ == "__main__":
    main()
