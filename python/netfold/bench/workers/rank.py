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


def serve(control: str, rank: int, all_reduce: AllReduce) -> None:
    """Answer the coordinator until it says quit or hangs up."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(control)
        stream = connection.makefile("rw")

        def say(line: str) -> None:
            stream.write(line + "\n")
            stream.flush()

        say(f"hello {rank}")
        values = result = expected = np.zeros(0)
        wire = "fp32"
        for line in stream:
            word, *arguments = line.split()
            if word == "quit":
                return
            try:
                if word == "prepare":
                    count, dtype, wire, input_path, expected_path = arguments
                    values = np.fromfile(input_path, DTYPES[dtype], int(count))
                    expected = np.memmap(expected_path, np.float64, "r", shape=(int(count),))
                    result = np.zeros_like(values)
                    say("ready")
                elif word == "run":
                    result.fill(0)
                    sleep_until(int(arguments[0]))
                    start_ns = time.monotonic_ns()
                    for _ in range(int(arguments[2])):
                        all_reduce(values, result, wire, arguments[1])
                    elapsed_ns = (time.monotonic_ns() - start_ns) // int(arguments[2])
                    digest = zlib.crc32(result.view(np.uint8))
                    say(f"done {elapsed_ns} {max_abs_error(result, expected)!r} {digest:08x}")
            except Exception as error:
                say(f"error {' '.join(str(error).split())}")
