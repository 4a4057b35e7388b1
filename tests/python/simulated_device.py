"""A device, its streams and an engine, simulated: one thread, and a seed that draws what runs next.

A stream runs its work later, in the order in which it got it, when `Simulation.step` draws it. Nothing here can block:
a call that waits for the device raises AssertionError. The tensors are CPU tensors that claim to be on a device.
"""

from __future__ import annotations

import ctypes
import random
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from netfold import _core
from netfold.errors import NetfoldError
from netfold.torch import member, staging, stream_order, work
from netfold.torch.device_words import WordPool

REAL_TAKE_IF_WHOLE = stream_order.take_if_whole
DEVICE = torch.device("cuda", 0)
Run = Callable[[], bool]  # False: not yet


class Event:
    """An event that its stream passes."""

    def __init__(self) -> None:
        self.has_passed = False

    def query(self) -> bool:
        return self.has_passed

    def synchronize(self) -> None:
        raise AssertionError("Python waited for the device")


class Stream:
    """Work that runs later, in order."""

    def __init__(self, device: Any = None) -> None:
        self.queue: deque[Run] = deque()
        simulation().streams.append(self)

    def add(self, run: Callable[[], object]) -> None:
        def ran() -> bool:
            run()
            return True

        self.queue.append(ran)

    def record_event(self) -> Event:
        event = Event()
        self.add(lambda: setattr(event, "has_passed", True))
        return event

    def wait_event(self, event: Event) -> None:
        self.queue.append(event.query)

    def wait_stream(self, other: Stream) -> None:
        self.wait_event(other.record_event())


class Memory:
    """The calls of stream_memory.py, on words at real addresses."""

    def write(self, stream: Stream, address: int, number: int) -> None:
        stream.add(lambda: word_at(address).__setitem__(0, number))

    def wait(self, stream: Stream, address: int, number: int) -> None:
        stream.queue.append(lambda: int(word_at(address)[0]) >= number)


def word_at(address: int) -> np.ndarray:
    return np.ctypeslib.as_array(ctypes.cast(address, ctypes.POINTER(ctypes.c_int32)), (1,))


class DeviceTensor(torch.Tensor):
    """A CPU tensor that claims to be on the device: copies from and to it run in the current stream."""

    device = DEVICE

    def record_stream(self, stream: Stream) -> None:
        """For the allocator only."""

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        call = super().__torch_function__
        if function is torch.empty_like:
            return torch.full_like(args[0].as_subclass(torch.Tensor), float("nan")).as_subclass(cls)
        if function is torch.Tensor.copy_:
            into, source = args[:2]
            plain = [each.as_subclass(torch.Tensor) for each in (into, source)]
            simulation().current.add(lambda: plain[0].copy_(plain[1]))
            return into
        if function is torch.cat:
            parts = [each.as_subclass(torch.Tensor) for each in args[0]]
            out = torch.empty(sum(each.numel() for each in parts), dtype=parts[0].dtype)
            simulation().current.add(lambda: torch.cat(parts, out=out))
            return out.as_subclass(cls)
        return call(function, types, args, kwargs or {})


def encode(values: torch.Tensor, block: int, mantissa: int) -> torch.Tensor:
    """In place of the kernel: the core's encoder, in the current stream."""
    plain = values.as_subclass(torch.Tensor)
    out = torch.empty(len(_core.encode(np.zeros(values.numel(), np.float32), block, mantissa)), dtype=torch.uint8)
    simulation().current.add(lambda: out.copy_(torch.from_numpy(_core.encode(plain.numpy(), block, mantissa))))
    return out.as_subclass(DeviceTensor)


def decode(encoded: torch.Tensor, count: int, block: int, mantissa: int, out: torch.Tensor, divide_by: int) -> None:
    """In place of the kernel."""
    plain, into = encoded.as_subclass(torch.Tensor), out.as_subclass(torch.Tensor)

    def run() -> None:
        values = _core.decode(plain.numpy(), count, block, mantissa)
        into.copy_(torch.from_numpy(values / np.float32(divide_by)))

    simulation().current.add(run)


def take_if_whole(result: torch.Tensor, into: torch.Tensor, overs: list[torch.Tensor], numbers: list[int]) -> None:
    """In place of the kernels: the real function, in the current stream."""
    plain = [each.as_subclass(torch.Tensor) for each in (result, into)]
    words, wanted = [each.as_subclass(torch.Tensor) for each in overs], list(numbers)
    simulation().current.add(lambda: REAL_TAKE_IF_WHOLE(*plain, words, wanted))


def on_device(pinned: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A copy that the current stream makes."""
    out = torch.empty_like(pinned)
    simulation().current.add(lambda: out.copy_(pinned))
    return out.as_subclass(DeviceTensor)


@dataclass
class Request:
    """An all-reduce that the engine has."""

    ticket: int
    memory: np.ndarray
    words: tuple[int, int, int]
    run: Callable[[np.ndarray], None]
    step: int = 0
    kept: np.ndarray = field(default_factory=lambda: np.empty(0))


class Engine:
    """An engine whose other rank has the same tensors: each sum is twice the tensor. It works on the oldest request
    once the device has copied it. `fails_at`: after so many steps it fails, and puts back what it has overwritten."""

    def __init__(self, fails_at: int | None) -> None:
        self.requests: deque[Request] = deque()
        self.reports: deque[tuple[int, NetfoldError | None]] = deque()
        self._tickets = 0
        self._steps_left = fails_at
        self._words = (0, 0, 0)
        self.failure: NetfoldError | None = None

    def for_device(self, *words: int) -> None:
        self._words = words

    def all_reduce(
        self,
        in_ptr: int,
        out_ptr: int,
        count: int,
        dtype: str,
        wire: str,
        average: bool = False,
        block: int = 16,
        mantissa: int = 7,
        encoded: bool = False,
    ) -> int:
        assert in_ptr == out_ptr
        size = len(_core.encode(np.zeros(count, np.float32), block, mantissa)) if encoded else 4 * count

        def run(memory: np.ndarray) -> None:
            if encoded:
                values = _core.decode(memory, count, block, mantissa)
                memory[:] = _core.encode(2 * values, block, mantissa)
            else:
                values = memory.view(np.float32)
                values *= 1 if average else 2

        self._tickets += 1
        memory = np.ctypeslib.as_array(ctypes.cast(in_ptr, ctypes.POINTER(ctypes.c_uint8)), (size,))
        self.requests.append(Request(self._tickets, memory, self._words, run))
        self._words = (0, 0, 0)
        if self.failure is not None:
            self._fail()
        return self._tickets

    def step(self) -> bool:
        """Do something; False if there is nothing to do yet."""
        if not self.requests or self.failure is not None:
            return False
        request = self.requests[0]
        if int(word_at(request.words[0])[0]) != request.words[2]:
            return False
        if self._steps_left is not None:
            self._steps_left -= 1
            if self._steps_left < 0:
                self.failure = NetfoldError("netfold: rank 1 died")
                self._fail()
                return True
        if request.step == 0:
            request.kept = request.memory.copy()
            request.memory[:] = 0xA5  # half of a result
        else:
            request.memory[:] = request.kept
            request.run(request.memory)
            self._end(self.requests.popleft(), None)
        request.step += 1
        return True

    def _fail(self) -> None:
        while self.requests:
            request = self.requests.popleft()
            if request.step > 0:
                request.memory[:] = request.kept
            self._end(request, self.failure)

    def _end(self, request: Request, error: NetfoldError | None) -> None:
        word_at(request.words[1])[0] = request.words[2] + (error is not None)
        self.reports.append((request.ticket, error))

    def stats(self) -> dict[str, Any]:
        return {}


class Simulation:
    """Everything, and the dice."""

    def __init__(self, seed: int) -> None:
        _simulations.append(self)
        self.dice = random.Random(seed)
        self.streams: list[Stream] = []
        self.current = Stream()
        self.engine = Engine(self.dice.randrange(30) if self.dice.random() < 0.5 else None)
        self.report: Callable[[int, NetfoldError | None], None] = lambda ticket, error: None

    @contextmanager
    def stream(self, stream: Stream) -> Iterator[None]:
        """torch.cuda.stream"""
        before, self.current = self.current, stream
        try:
            yield
        finally:
            self.current = before

    def step(self) -> bool:
        """Run one thing of those that can run; False if nothing can."""
        runs: list[Callable[[], bool]] = [lambda each=each: self._advance(each) for each in self.streams if each.queue]
        runs += [self.engine.step, self._report]
        self.dice.shuffle(runs)
        return any(run() for run in runs)

    def run(self, steps: int) -> None:
        """At most so many steps."""
        for _ in range(steps):
            if not self.step():
                return

    def _advance(self, stream: Stream) -> bool:
        if not stream.queue[0]():
            return False
        stream.queue.popleft()
        return True

    def _report(self) -> bool:
        if not self.engine.reports:
            return False
        self.report(*self.engine.reports.popleft())
        return True


_simulations: deque[Simulation] = deque(maxlen=1)


def simulation() -> Simulation:
    """The last one."""
    return _simulations[0]


def install(patch: Callable[[object, str, Any], object], simulation: Simulation) -> None:
    """Put the simulation in the place of torch's device; `patch` is setattr, or a fixture's."""
    from netfold.torch import device_codec

    patch(torch.cuda, "Stream", Stream)
    patch(torch.cuda, "current_stream", lambda of=None: simulation.current)
    patch(torch.cuda, "stream", simulation.stream)
    patch(torch.cuda, "is_current_stream_capturing", lambda: False)
    stream_order.stream_down.cache_clear()
    patch(stream_order, "_pool", WordPool(lambda count: torch.empty(count, dtype=torch.int32)))
    patch(stream_order, "stream_memory", lambda of: Memory())
    patch(stream_order, "on_device", on_device)
    patch(stream_order, "take_if_whole", take_if_whole)
    patch(stream_order, "PIECE_BYTES", 4 * 256)
    patch(member, "can_encode", lambda of: True)
    patch(staging, "pinned", lambda count, dtype: torch.empty(count, dtype=dtype))
    patch(work, "new_future", lambda devices: torch.futures.Future())
    patch(device_codec, "encode", encode)
    patch(device_codec, "decode", decode)
