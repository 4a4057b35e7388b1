"""How fast this machine copies memory: the bound of an all-reduce within it."""

from __future__ import annotations

import os
import threading
import time
from functools import cache

import numpy as np

COPIED_BYTES = 128 << 20  # by each core at a time: more than caches hold
REPETITIONS = 9


@cache
def copy_bytes_s() -> float:
    """Bytes that all cores together copy in a second, from memory to memory; the best of a few tries. Each thread stays
    on a core of its own: two on one core would copy half as fast."""
    pairs = {core: np.ones((2, COPIED_BYTES), np.uint8) for core in os.sched_getaffinity(0)}
    return max(len(pairs) * COPIED_BYTES / _seconds(pairs) for _ in range(REPETITIONS))


def _seconds(pairs: dict[int, np.ndarray]) -> float:
    """`pairs`: by core, uint8[2, bytes], of which the first is copied over the second."""
    together = threading.Barrier(len(pairs) + 1)

    def copy(core: int, source: np.ndarray, target: np.ndarray) -> None:
        os.sched_setaffinity(0, {core})  # of this thread alone
        together.wait()
        np.copyto(target, source)  # which lets go of the interpreter
        together.wait()

    threads = [threading.Thread(target=copy, args=(core, *pair)) for core, pair in pairs.items()]
    for thread in threads:
        thread.start()
    together.wait()
    begin_s = time.perf_counter()
    together.wait()
    elapsed_s = time.perf_counter() - begin_s
    for thread in threads:
        thread.join()
    return elapsed_s
