"""Copies the user's tensors to host memory that the engine can read and write, and back.

A contiguous CPU tensor is folded in place. A strided tensor goes through a contiguous copy. A tensor on an accelerator
goes through pinned memory. If its streams can wait for the engine, stream_order.py says how. Otherwise a stream of its
own copies it down after the work that produces it, and the fold starts when that copy's event has passed. A second
stream copies the result up, and torch's future makes the user's stream wait for that copy. Pinned memory comes from
torch's caching host allocator, which keeps a block until the copies that use it have ended.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from netfold.torch.calls import Call, Event
from netfold.torch.devices import is_accelerator, module_of


@dataclass
class Staged:
    """`buffer`: contiguous host memory to fold in place. `ready`: the event after which it may be read, or None.
    `finish`: copies the folded buffer into the user's tensors and returns them. `completing()`: the context in which
    `finish` is called and the Work completed. `devices`: those of the tensors that a copy goes to."""

    buffer: torch.Tensor
    ready: Event | None
    finish: Callable[[], list[torch.Tensor]]
    completing: Callable[[], AbstractContextManager[object]] = nullcontext
    devices: Sequence[torch.device] = ()
    device: torch.device | None = None
    """The accelerator from which, or to which, something is copied."""


class CopyStreams:
    """The two copy streams of one device."""

    def __init__(self, device: torch.device) -> None:
        self.module = module_of(device)
        self.down = self.module.Stream(device)
        self.up = self.module.Stream(device)


NOTHING = torch.empty(0, dtype=torch.uint8)


class Staging:
    """Stages tensors of one process group."""

    def __init__(self) -> None:
        self._streams: dict[torch.device, CopyStreams] = {}

    def stage(self, tensors: list[torch.Tensor], factor: Any = None) -> Staged:
        """Stage tensors of one type and device to be read and written: one tensor as it is, several tensors
        concatenated. `factor`, if there is one, multiplies what is read."""
        read = self.read(tensors, factor)
        if read.buffer is tensors[0] and len(tensors) == 1:
            return Staged(read.buffer, None, lambda: tensors)
        if not is_accelerator(tensors[0].device):
            return Staged(read.buffer, None, lambda: unpack(read.buffer, tensors))
        return self._up_from(read.buffer, tensors, read.ready)

    def read(
        self, tensors: Sequence[torch.Tensor], factor: Any = None, apart_from: Sequence[torch.Tensor] = ()
    ) -> Staged:
        """Stage tensors of one type and device to be read only. Their buffer shares no memory with `apart_from`."""
        if not tensors:
            return Staged(NOTHING, None, list)
        given = list(tensors)
        if is_accelerator(given[0].device):
            return self._down(given, factor)
        if len(given) == 1 and factor is None and lies_whole(given[0]) and not _overlap(given[0], apart_from):
            return Staged(given[0], None, lambda: given)
        buffer = pack(given, torch.empty(sum(t.numel() for t in given), dtype=given[0].dtype))
        if factor is not None:
            buffer.mul_(factor)
        return Staged(buffer, None, lambda: given)

    def write(self, tensors: Sequence[torch.Tensor]) -> Staged:
        """Stage tensors of one type and device to be written only."""
        if not tensors:
            return Staged(NOTHING, None, list)
        given = list(tensors)
        count = sum(t.numel() for t in given)
        if is_accelerator(given[0].device):
            refuse_capture(given[0].device)
            for tensor in given:
                tensor.record_stream(self._streams_of(tensor.device).up)
            return self._up_from(pinned(count, given[0].dtype), given, None)
        if len(given) == 1 and lies_whole(given[0]):
            return Staged(given[0], None, lambda: given)
        buffer = torch.empty(count, dtype=given[0].dtype)
        return Staged(buffer, None, lambda: unpack(buffer, given))

    def call(
        self, read: Staged, written: Staged, start: Callable[[Any, bool], int], results: list[torch.Tensor]
    ) -> Call:
        """The call that `start` submits, which reads one buffer and writes another; its value are `results`."""

        def finish() -> list[torch.Tensor]:
            written.finish()
            return results

        buffers = (read.buffer, written.buffer)
        return Call(buffers, start, finish, written.completing, read.ready, list(written.devices))

    def call_in_place(self, staged: Staged, start: Callable[[Any, bool], int], tensors: list[torch.Tensor]) -> Call:
        """The same for tensors that are read and written."""
        return self.call(staged, staged, start, tensors)

    def _streams_of(self, device: torch.device) -> CopyStreams:
        if device not in self._streams:
            self._streams[device] = CopyStreams(device)
        return self._streams[device]

    def _down_stream(self, device: torch.device) -> Any:
        return self._streams_of(device).down

    def _down(self, tensors: list[torch.Tensor], factor: Any) -> Staged:
        device = tensors[0].device
        refuse_capture(device)
        streams, down = self._streams_of(device), self._down_stream(device)
        buffer = pinned(sum(t.numel() for t in tensors), tensors[0].dtype)
        down.wait_stream(streams.module.current_stream(device))
        with streams.module.stream(down):
            from_ = [t * factor for t in tensors] if factor is not None else tensors
            pack(from_, buffer, non_blocking=True)
            ready = down.record_event()
        for tensor in tensors:  # the allocator must not reuse their memory while the copy streams use it
            tensor.record_stream(down)
            tensor.record_stream(streams.up)
        return Staged(buffer, ready, lambda: tensors, device=device)

    def _up_from(self, buffer: torch.Tensor, tensors: list[torch.Tensor], ready: Event | None) -> Staged:
        device = tensors[0].device
        streams = self._streams_of(device)
        # What the current stream still does with them comes first.
        streams.up.wait_stream(streams.module.current_stream(device))
        # A completed future records an event on the current stream. So the current stream must be the one that copies
        # up. The thread that completes may be the user's own: afterwards its stream is current again.
        return Staged(
            buffer,
            ready,
            lambda: unpack(buffer, tensors, non_blocking=True),
            lambda: streams.module.stream(streams.up),
            [device],
            device,
        )


def lies_whole(tensor: torch.Tensor) -> bool:
    """Whether the tensor's values lie in its memory in their order."""
    return tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()


def _overlap(tensor: torch.Tensor, others: Sequence[torch.Tensor]) -> bool:
    begin, end = tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes
    return any(
        begin < other.data_ptr() + other.untyped_storage().nbytes() and other.data_ptr() < end for other in others
    )


def refuse_capture(device: torch.device) -> None:
    """Raise RuntimeError if the current stream records a graph."""
    is_capturing: Any = getattr(module_of(device), "is_current_stream_capturing", None)
    if is_capturing is not None and is_capturing():
        raise RuntimeError(
            "netfold: a CUDA graph cannot contain a collective of Netfold: the host sends it, and a graph is replayed "
            "without the host; capture the computation only, and call the collective between two graphs"
        )


def pinned(count: int, dtype: torch.dtype) -> torch.Tensor:
    """Memory of the host that the device copies to and from without the processor."""
    return torch.empty(count, dtype=dtype, pin_memory=True)


def pack(tensors: list[torch.Tensor], buffer: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    """Copy tensors in order into the flat `buffer`, which has exactly their number of elements."""
    for tensor, part in zip(tensors, buffer.split([t.numel() for t in tensors]), strict=True):
        part.view(tensor.shape).copy_(tensor.detach(), non_blocking=non_blocking)
    return buffer


def unpack(buffer: torch.Tensor, tensors: list[torch.Tensor], non_blocking: bool = False) -> list[torch.Tensor]:
    """The reverse of `pack`; returns the tensors."""
    for tensor, part in zip(tensors, buffer.split([t.numel() for t in tensors]), strict=True):
        tensor.detach().copy_(part.view(tensor.shape), non_blocking=non_blocking)  # a parameter may be a target
    return tensors


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
