"""A rank's side of the coordinator's words (netfold/bench/control.py), the same for every Python system."""

from __future__ import annotations

import socket
import time
import zlib
from collections.abc import Callable

import numpy as np

CHECK_ELEMENTS = 1 << 20  # checked at a time, to keep the float64 copies small
DTYPES = {"fp32": np.float32, "int32": np.int32}

AllReduce = Callable[[np.ndarray, np.ndarray, str, str], None]
"""(input, output, wire format, algorithm): returns when the sum of all ranks' inputs is in the output."""


def max_abs_error(result: np.ndarray, expected: np.ndarray) -> float:
    """The largest distance from the exact sum; NaN where the result holds one."""
    worst = 0.0
    for begin in range(0, result.size, CHECK_ELEMENTS):
        part = slice(begin, begin + CHECK_ELEMENTS)
        worst = np.maximum(worst, np.max(np.abs(result[part].astype(np.float64) - expected[part])))
    return float(worst)


def sleep_until(start_ns: int) -> None:
    """Wait for a time of CLOCK_MONOTONIC."""
    while (left := start_ns - time.monotonic_ns()) > 0:
        time.sleep(left / 1e9)


def converse(control: str, rank: int, answer: Callable[[str, list[str]], str]) -> None:
    """Answer the coordinator's lines, each by one of `answer(word, arguments)`, until it says quit or hangs up. What
    that raises is told as an error."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(control)
        stream = connection.makefile("rw")

        def say(line: str) -> None:
            stream.write(line + "\n")
            stream.flush()

        say(f"hello {rank}")
        for line in stream:
            word, *arguments = line.split()
            if word == "quit":
                return
            try:
                say(answer(word, arguments))
            except Exception as error:
                say(f"error {' '.join(str(error).split())}")


class Repetitions:
    """A rank of an all-reduce's measurement: the tensor it was handed, and what it answers."""

    def __init__(self, all_reduce: AllReduce) -> None:
        self._all_reduce = all_reduce
        self._values = self._result = self._expected = np.zeros(0)
        self._wire = "fp32"

    def answer(self, word: str, arguments: list[str]) -> str:
        """To `prepare` and `run`, as in netfold/bench/control.py."""
        return self._prepare(*arguments) if word == "prepare" else self._run(*arguments)

    def _prepare(self, count: str, dtype: str, wire: str, input_path: str, expected_path: str) -> str:
        self._wire = wire
        self._values = np.fromfile(input_path, DTYPES[dtype], int(count))
        self._expected = np.memmap(expected_path, np.float64, "r", shape=(int(count),))
        self._result = np.zeros_like(self._values)
        return "ready"

    def _run(self, start_ns: str, algorithm: str) -> str:
        self._result.fill(0)
        sleep_until(int(start_ns))
        begin_ns = time.monotonic_ns()
        self._all_reduce(self._values, self._result, self._wire, algorithm)
        elapsed_ns = time.monotonic_ns() - begin_ns
        digest = zlib.crc32(self._result.view(np.uint8))
        return f"done {elapsed_ns} {max_abs_error(self._result, self._expected)!r} {digest:08x}"


def serve(control: str, rank: int, all_reduce: AllReduce) -> None:
    """Answer the coordinator until it says quit or hangs up."""
    converse(control, rank, Repetitions(all_reduce).answer)
