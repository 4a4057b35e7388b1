"""Copies the user's tensors to host memory that the engine can read and write, and back.

A contiguous CPU tensor is folded in place. A strided tensor goes through a contiguous copy. A tensor on an accelerator
goes through pinned memory. A stream of its own copies it down after the work that produces it. The fold starts when
that copy's event has passed. A second stream copies the result up, and torch's future makes the user's stream wait for
that copy. Pinned memory comes from torch's caching host allocator, which keeps a block until the copies that use it
have ended.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol

import torch

from netfold.torch.devices import is_accelerator, module_of


class Event(Protocol):
    """An event of a device's stream."""

    def synchronize(self) -> None:
        """Block until the stream has passed it; raises RuntimeError if the device failed."""


@dataclass
class Staged:
    """`buffer`: contiguous host memory to fold in place. `ready`: the event after which it may be read, or None.
    `finish`: copies the folded buffer into the user's tensors and returns them. `completing()`: the context in which
    `finish` is called and the Work completed."""

    buffer: torch.Tensor
    ready: Event | None
    finish: Callable[[], list[torch.Tensor]]
    completing: Callable[[], AbstractContextManager[object]] = nullcontext


class CopyStreams:
    """The two copy streams of one device."""

    def __init__(self, device: torch.device) -> None:
        self.module = module_of(device)
        self.down = self.module.Stream(device)
        self.up = self.module.Stream(device)


class Staging:
    """Stages tensors of one process group."""

    def __init__(self) -> None:
        self._streams: dict[torch.device, CopyStreams] = {}

    def stage(self, tensors: list[torch.Tensor]) -> Staged:
        """Stage tensors of one type and device: one tensor as it is, several tensors concatenated."""
        if is_accelerator(tensors[0].device):
            return self._stage_on_device(tensors)
        if len(tensors) == 1 and tensors[0].is_contiguous():
            return Staged(tensors[0], None, lambda: tensors)
        buffer = pack(tensors, torch.empty(sum(t.numel() for t in tensors), dtype=tensors[0].dtype))

        def finish() -> list[torch.Tensor]:
            unpack(buffer, tensors)
            return tensors

        return Staged(buffer, None, finish)

    def _stage_on_device(self, tensors: list[torch.Tensor]) -> Staged:
        device = tensors[0].device
        if device not in self._streams:
            self._streams[device] = CopyStreams(device)
        streams = self._streams[device]
        count = sum(t.numel() for t in tensors)
        buffer = _pinned(count, tensors[0].dtype)
        streams.down.wait_stream(streams.module.current_stream(device))
        with streams.module.stream(streams.down):
            pack(tensors, buffer, non_blocking=True)
            ready = streams.down.record_event()
        for tensor in tensors:  # the allocator must not reuse their memory while the copy streams use it
            tensor.record_stream(streams.down)
            tensor.record_stream(streams.up)

        def finish() -> list[torch.Tensor]:
            unpack(buffer, tensors, non_blocking=True)
            return tensors

        # A completed future records an event on the current stream. So the current stream must be the one that copies
        # up. The thread that completes may be the user's own: afterwards its stream is current again.
        return Staged(buffer, ready, finish, lambda: streams.module.stream(streams.up))


def _pinned(count: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.empty(count, dtype=dtype, pin_memory=True)


def pack(tensors: list[torch.Tensor], buffer: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    """Copy tensors in order into the flat `buffer`, which has exactly their number of elements."""
    for tensor, part in zip(tensors, buffer.split([t.numel() for t in tensors]), strict=True):
        part.view(tensor.shape).copy_(tensor, non_blocking=non_blocking)
    return buffer


def unpack(buffer: torch.Tensor, tensors: list[torch.Tensor], non_blocking: bool = False) -> None:
    """The reverse of `pack`."""
    for tensor, part in zip(tensors, buffer.split([t.numel() for t in tensors]), strict=True):
        tensor.copy_(part.view(tensor.shape), non_blocking=non_blocking)


class InOrder:
    """Runs submissions in the order in which they were made, although some must first wait for a device's event.

    All workers submit in the same order, and chunks are numbered in that order. So a CPU tensor must not overtake a
    device's tensor that is still being copied down. A submission without an event, and without another one before it,
    runs at once in the caller's thread. The others go through a thread, which starts at the first event.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: deque[tuple[Event | None, Callable[[], None], Callable[[Exception], None]]] = deque()
        self._busy = False
        self._closed = False
        self._thread: threading.Thread | None = None

    def run(self, ready: Event | None, submit: Callable[[], None], fail: Callable[[Exception], None]) -> None:
        """Call `submit` when `ready` has passed and all earlier submissions are made. If the device failed, call `fail`
        with the error instead. `submit` itself does not raise."""
        with self._changed:
            if ready is None and not self._waiting and not self._busy:
                submit()
                return
            if self._thread is None:
                self._thread = threading.Thread(target=self._drain, name="netfold-staging", daemon=True)
                self._thread.start()
            self._waiting.append((ready, submit, fail))
            self._changed.notify()

    def close(self, join_s: float = 5.0) -> None:
        """Make the submissions that wait (a closed engine fails them), then end the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(join_s)

    def _drain(self) -> None:
        while True:
            with self._changed:
                self._busy = False
                while not self._waiting and not self._closed:
                    self._changed.wait(1.0)
                if not self._waiting:
                    return
                ready, submit, fail = self._waiting.popleft()
                self._busy = True
            try:
                if ready is not None:
                    ready.synchronize()
            except Exception as error:  # errors of a kernel appear here: the user gets them, and the thread continues
                fail(error)
                continue
            submit()
