"""A rank's side of the coordinator's commands (netfold_lab/bench/control.py), the same for every system in Python."""

from __future__ import annotations

import json
import socket
import time
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

CHECK_ELEMENTS = 1 << 20  # checked at a time, to keep the float64 copies small
DTYPES = {"fp32": np.float32, "int32": np.int32}

AllReduce = Callable[[np.ndarray, np.ndarray, str, str], None]
"""(input, output, wire format, algorithm): returns when the sum of all ranks' inputs is in the output."""


def max_abs_error(result: np.ndarray, expected: np.ndarray) -> float:
    """The largest difference from the exact sum; NaN if the result contains NaN."""
    worst = 0.0
    for begin in range(0, result.size, CHECK_ELEMENTS):
        part = slice(begin, begin + CHECK_ELEMENTS)
        worst = np.maximum(worst, np.max(np.abs(result[part].astype(np.float64) - expected[part])))
    return float(worst)


def sleep_until(start_ns: int) -> None:
    """Wait until a time of CLOCK_MONOTONIC."""
    while (left := start_ns - time.monotonic_ns()) > 0:
        time.sleep(left / 1e9)


def answer(control: str, rank: int, replies: Mapping[str, Callable[..., str]]) -> None:
    """Answer the coordinator until it sends quit or closes the connection. The first word of a line names the reply to
    call, and the other words are its arguments. An exception of a reply is sent back as an error."""
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
                say(replies[word](*arguments))
            except Exception as error:
                say(f"error {' '.join(str(error).split())}")


def in_json(replies: Mapping[str, Callable[..., Any]]) -> dict[str, Callable[..., str]]:
    """Turn replies that return values into replies that return JSON text."""
    return {
        word: lambda *arguments, reply=reply: f"done {json.dumps(reply(*arguments))}" for word, reply in replies.items()
    }


class Bench:
    """The commands `prepare`, `run` and `check` for a system's all-reduce."""

    def __init__(self, all_reduce: AllReduce) -> None:
        self._all_reduce = all_reduce
        self._values = self._result = self._expected = np.zeros(0)
        self._wire = "fp32"

    def prepare(self, count: str, dtype: str, wire: str, input_path: str, expected_path: str) -> str:
        """Read the rank's elements and the exact sum."""
        self._wire = wire
        self._values = np.fromfile(input_path, DTYPES[dtype], int(count))
        self._expected = np.memmap(expected_path, np.float64, "r", shape=(int(count),))
        self._result = np.zeros_like(self._values)
        return "ready"

    def run(self, start_ns: str, algorithm: str, iterations: str) -> str:
        """Time consecutive all-reduces."""
        self._result.fill(0)
        sleep_until(int(start_ns))
        begun_ns = time.monotonic_ns()
        for _ in range(int(iterations)):
            self._all_reduce(self._values, self._result, self._wire, algorithm)
        return f"done {(time.monotonic_ns() - begun_ns) // int(iterations)}"

    def check(self) -> str:
        """Check the last result, when no rank works on it any more: a check uses the cores for longer than a sum."""
        digest = zlib.crc32(self._result.view(np.uint8).data)
        return f"done {max_abs_error(self._result, self._expected)!r} {digest:08x}"

    def replies(self) -> dict[str, Callable[..., str]]:
        """The replies for answer()."""
        return {"prepare": self.prepare, "run": self.run, "check": self.check}


def serve(control: str, rank: int, all_reduce: AllReduce) -> None:
    """Answer `prepare`, `run` and `check` until the coordinator sends quit or closes the connection."""
    answer(control, rank, Bench(all_reduce).replies())
