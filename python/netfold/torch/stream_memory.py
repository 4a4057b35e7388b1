"""Words in pinned memory that a stream of the device writes, and for which it waits, without the host's help.

The drivers of NVIDIA's and AMD's GPUs have a call for each. Torch does not offer them, so ctypes calls the library
that torch has loaded. If a device does not pass a short test, the host waits for its copies.
"""

from __future__ import annotations

import ctypes
import time
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

import torch

from netfold.log import logger
from netfold.torch.devices import module_of

TEST_S = 2.0  # how long the test waits for a stream
STEP_S = 0.005


class StreamMemory(Protocol):
    """Calls for a stream and a word of four bytes. The device's context must be current."""

    def write(self, stream: Any, address: int, number: int) -> None:
        """Write the number when the stream's earlier work is done. Raises RuntimeError."""

    def wait(self, stream: Any, address: int, number: int) -> None:
        """Hold up the stream's later work until the word is at least the number. Raises RuntimeError."""


@dataclass(frozen=True)
class Driver:
    """The file of a driver's library, and its two calls. `extra`: arguments after the flags of the second."""

    file: str
    write: str
    wait: str
    extra: tuple[int, ...] = ()


CUDA = Driver("libcuda.so.1", "cuStreamWriteValue32_v2", "cuStreamWaitValue32_v2")
HIP = Driver("libamdhip64.so", "hipStreamWriteValue32", "hipStreamWaitValue32", (0xFFFFFFFF,))
AT_LEAST = NO_FLAGS = 0  # of the two calls, in both drivers


class DriverCalls:
    """A `StreamMemory` by the calls of a driver. Raises OSError or AttributeError where they are missing."""

    def __init__(self, driver: Driver) -> None:
        library = ctypes.CDLL(driver.file)
        self._driver = driver
        self._write, self._wait = getattr(library, driver.write), getattr(library, driver.wait)
        words = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint]
        self._write.argtypes = words
        self._wait.argtypes = words + [ctypes.c_uint32] * len(driver.extra)
        self._write.restype = self._wait.restype = ctypes.c_int

    def write(self, stream: Any, address: int, number: int) -> None:
        """See StreamMemory."""
        self._check(self._driver.write, self._write(stream.cuda_stream, address, number, NO_FLAGS))

    def wait(self, stream: Any, address: int, number: int) -> None:
        """See StreamMemory."""
        code = self._wait(stream.cuda_stream, address, number, AT_LEAST, *self._driver.extra)
        self._check(self._driver.wait, code)

    @staticmethod
    def _check(call: str, code: int) -> None:
        if code != 0:
            raise RuntimeError(f"netfold: {call} failed with error {code}")


@cache
def stream_memory(device: torch.device) -> StreamMemory | None:
    """The calls for this device; None if they are missing or fail the test. The first call takes some milliseconds."""
    if device.type != "cuda":  # also the name of AMD's GPUs
        return None
    driver = HIP if torch.version.hip else CUDA
    try:
        memory = DriverCalls(driver)
        with module_of(device).device(device):
            reason = _fault(memory, device)
    except (OSError, AttributeError, RuntimeError) as error:
        reason = str(error)
    if not reason:
        return memory
    logger.info("netfold: %s cannot wait for the network by itself, so Python waits for it: %s", device, reason)
    return None


def _fault(memory: StreamMemory, device: torch.device) -> str:
    """Why the calls are not usable; empty if a stream writes, waits as long as it must, and then goes on."""
    words = torch.zeros(2, dtype=torch.int32, pin_memory=True)
    written, awaited = words.data_ptr(), words.data_ptr() + words.element_size()
    stream = module_of(device).Stream(device)
    memory.write(stream, written, 2)
    memory.wait(stream, written, 2)
    memory.wait(stream, awaited, 2)
    ended = stream.record_event()
    time.sleep(STEP_S)
    waited = not ended.query()
    words[1] = 2
    deadline = time.monotonic() + TEST_S
    while not ended.query():
        if time.monotonic() > deadline:
            _kept.append(words)  # the stream may still look at it
            return "a stream waits forever"
        time.sleep(STEP_S)
    if not waited:
        return "a stream does not wait"
    return "" if int(words[0]) == 2 else "a stream does not write"


_kept: list[torch.Tensor] = []
