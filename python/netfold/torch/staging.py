"""From the user's tensors to host memory that the client can read and write, and back.

A contiguous CPU tensor is folded where it lies. A strided one goes through a contiguous copy. A CUDA tensor goes
through pinned memory: copied down on a stream of its own behind the work that produces it, folded when that copy's
event has passed, copied up on a second stream; torch's future then makes the user's stream wait for the copy up.
Pinned memory comes from torch's caching host allocator, which keeps a block until the copies that use it are over.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import torch


@dataclass
class Staged:
    """`buffer`: contiguous host memory to fold in place. `ready`: the event to wait for before it may be read, or None.
    `finish`: puts the folded buffer into the user's tensors and returns them."""

    buffer: torch.Tensor
    ready: torch.cuda.Event | None
    finish: Callable[[], list[torch.Tensor]]


class CudaStreams:
    """The two copy streams of one CUDA device."""

    def __init__(self, device: torch.device) -> None:
        self.down = torch.cuda.Stream(device)
        self.up = torch.cuda.Stream(device)


class Staging:
    """Stages tensors of one process group."""

    def __init__(self) -> None:
        self._streams: dict[torch.device, CudaStreams] = {}

    def stage(self, tensors: list[torch.Tensor]) -> Staged:
        """Stage tensors of one type and device (one: as it is; several: packed one behind the other)."""
        if tensors[0].is_cuda:
            return self._stage_cuda(tensors)
        if len(tensors) == 1 and tensors[0].is_contiguous():
            return Staged(tensors[0], None, lambda: tensors)
        buffer = pack(tensors, torch.empty(sum(t.numel() for t in tensors), dtype=tensors[0].dtype))

        def finish() -> list[torch.Tensor]:
            unpack(buffer, tensors)
            return tensors

        return Staged(buffer, None, finish)

    def _stage_cuda(self, tensors: list[torch.Tensor]) -> Staged:
        device = tensors[0].device
        if device not in self._streams:
            self._streams[device] = CudaStreams(device)
        streams = self._streams[device]
        count = sum(t.numel() for t in tensors)
        buffer = torch.empty(count, dtype=tensors[0].dtype, pin_memory=True)
        streams.down.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(streams.down):
            pack(tensors, buffer, non_blocking=True)
            ready = streams.down.record_event()
        for tensor in tensors:  # the allocator must not reuse their memory while the copy streams work with it
            tensor.record_stream(streams.down)
            tensor.record_stream(streams.up)

        def finish() -> list[torch.Tensor]:
            # Runs in the completion thread. The stream stays current so that the future, completed there next,
            # records its event behind these copies.
            torch.cuda.set_stream(streams.up)
            unpack(buffer, tensors, non_blocking=True)
            return tensors

        return Staged(buffer, ready, finish)


def pack(tensors: list[torch.Tensor], buffer: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    """Copy tensors one behind the other into the flat `buffer`, which has exactly their elements."""
    for tensor, part in zip(tensors, buffer.split([t.numel() for t in tensors]), strict=True):
        part.view(tensor.shape).copy_(tensor, non_blocking=non_blocking)
    return buffer


def unpack(buffer: torch.Tensor, tensors: list[torch.Tensor], non_blocking: bool = False) -> None:
    """The reverse of `pack`."""
    for tensor, part in zip(tensors, buffer.split([t.numel() for t in tensors]), strict=True):
        tensor.copy_(part.view(tensor.shape), non_blocking=non_blocking)


class InOrder:
    """Runs submissions in the order they were made, though some must first wait for a CUDA event.

    All workers submit alike, and the wire numbers chunks in the order of submission, so a CPU tensor must not overtake
    a CUDA tensor that is still being copied down. What has nothing to wait for and nobody before it runs at once, in
    the caller; the rest goes through a thread, which starts when the first event shows up.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: deque[tuple[torch.cuda.Event | None, Callable[[], None], Callable[[Exception], None]]] = deque()
        self._busy = False
        self._closed = False
        self._thread: threading.Thread | None = None

    def run(
        self, ready: torch.cuda.Event | None, submit: Callable[[], None], fail: Callable[[Exception], None]
    ) -> None:
        """Call `submit` once `ready` has passed and everything given earlier was submitted; `fail` with the error
        instead where the device failed. `submit` itself does not raise."""
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
        """Submit what waits (a closed client fails it), then end the thread."""
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
            except (
                Exception
            ) as error:  # what a kernel did wrong shows here: the user must learn it, the thread lives on
                fail(error)
                continue
            submit()
