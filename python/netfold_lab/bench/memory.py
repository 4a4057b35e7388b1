"""The rate at which this machine copies memory, which bounds an all-reduce within it."""

from __future__ import annotations

import os
import threading
import time
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

COPIED_BYTES = 128 << 20  # by each core at a time: larger than the caches
REPETITIONS, REPETITIONS_BESIDE = 9, 3
IN_MEMORY_BYTES = 16 << 20  # smaller tensors stay in the caches, where copying is faster


@cache
def copy_bytes_s() -> float:
    """Bytes per second that all cores together copy from memory to memory; the best of a few tries."""
    return Copies().bytes_s(REPETITIONS)


class Copies:
    """Memory of every core, to copy beside each other measurement: the rate of memory changes if virtual machines share
    it. Each thread stays on a core of its own, because two threads on one core copy half as fast."""

    def __init__(self) -> None:
        import numpy as np

        self._pairs = {core: np.ones((2, COPIED_BYTES), np.uint8) for core in os.sched_getaffinity(0)}

    def bytes_s(self, repetitions: int = REPETITIONS_BESIDE) -> float:
        """Bytes per second that all cores together copy now; the best of `tries` tries."""
        return max(len(self._pairs) * COPIED_BYTES / _seconds(self._pairs) for _ in range(repetitions))


def _seconds(pairs: dict[int, np.ndarray]) -> float:
    """`pairs`: for each core uint8[2, bytes]; the first row is copied over the second."""
    import numpy as np

    together = threading.Barrier(len(pairs) + 1)

    def copy(core: int, source: np.ndarray, target: np.ndarray) -> None:
        os.sched_setaffinity(0, {core})  # of this thread only
        together.wait()
        np.copyto(target, source)  # copyto releases the interpreter's lock
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
