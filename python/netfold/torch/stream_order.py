"""Collectives of a device's tensors in the order of its streams: Python waits for neither device nor network.

Everything is enqueued when the collective starts. One stream copies the tensor to pinned memory and writes a word; the
engine begins when it sees the word. A second stream waits for the word that the engine writes at the end, and copies
the result up. `wait()` makes the user's current stream wait for that copy.

A large all-reduce is cut into pieces, so that copies and the network work at the same time. A tensor that travels as
block floating point is encoded before the first copy and decoded after the second.

All groups share the stream down: it waits for nothing but the users' streams. Each group has its own stream up, because
that one waits for other ranks: two groups may be used in another order on another rank. Streams share the hardware's
queues if there are more streams than queues, and then a stream that waits holds up another one;
CUDA_DEVICE_MAX_CONNECTIONS sets how many queues there are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any

import torch

from netfold.log import logger
from netfold.torch import staging
from netfold.torch.calls import Call, Event, Part
from netfold.torch.device_words import WordPool, Words
from netfold.torch.devices import is_accelerator, module_of
from netfold.torch.staging import Staged, Staging, unpack
from netfold.torch.stream_memory import StreamMemory, stream_memory

PIECE_BYTES = 8 << 20  # of a tensor, in its own type: a fraction of a millisecond over PCIe, and many packets
BLOCK = 128  # elements: whole blocks of every shape

Submit = Callable[[Any, int, int, bool], int]
"""(engine, address, elements, whether they are encoded) -> ticket."""


@cache
def stream_down(device: torch.device) -> Any:
    """The stream that copies to the host: one a device."""
    return module_of(device).Stream(device)


@cache
def can_encode(device: torch.device) -> bool:
    """Whether the device encodes block floating point; the first call compiles the kernels for the usual shape."""
    try:
        from netfold.torch import device_codec

        ones = torch.ones(BLOCK, device=device)
        return torch.equal(device_codec.decode(device_codec.encode(ones), BLOCK), ones)
    except Exception as error:  # no Triton, or one that lacks a compiler or does not know the device
        logger.info("netfold: the host encodes bfp, because %s does not: %s", device, error)
        return False


def _pinned_words(count: int) -> torch.Tensor:
    return staging.pinned(count, torch.int32)


_pool = WordPool(_pinned_words)


class OrderedStaging(Staging):
    """Stages tensors of one process group. Those of devices that cannot wait by themselves, and CPU tensors, are staged
    as Staging does."""

    def fold_call(
        self, tensors: list[torch.Tensor], submit: Submit, bfp: tuple[int, int] | None = None, divide_by: int = 1
    ) -> Call | None:
        """An all-reduce in place of the concatenation of `tensors`, in pieces; None if the device cannot. `bfp`: block
        and mantissa in which the device encodes float32 tensors; then it also divides the sums by `divide_by`."""
        device = tensors[0].device
        memory = self._memory_of(device)
        if memory is None:
            return None
        module, down, up = module_of(device), stream_down(device), self._streams_of(device).up
        down.wait_stream(module.current_stream(device))
        self._keep(tensors, device)
        with module.stream(down):
            is_flat = len(tensors) == 1 and staging.lies_whole(tensors[0])
            plain = [tensor.detach() for tensor in tensors]  # parameters too: autograd has no part in this
            flat = plain[0].view(-1) if is_flat else torch.cat([tensor.reshape(-1) for tensor in plain])
            if not is_flat:
                flat.record_stream(up)
        pieces = list(flat.split(max(PIECE_BYTES // flat.element_size() // BLOCK, 1) * BLOCK))
        copies = [_copy_down(module, down, memory, piece, bfp) for piece in pieces]
        # After a failure the tensor stays as it was. The engine puts back a piece that fails, if it is not encoded.
        result = None
        if bfp is not None or len(pieces) > 1:
            with module.stream(up):
                result = torch.empty_like(flat)
        into = list(result.split(pieces[0].numel())) if result is not None else pieces
        overs: list[torch.Tensor] = []

        def enqueue(number: int) -> Event:
            copy, is_last = copies[number], number == len(pieces) - 1
            with module.stream(up):
                up.wait_event(copy.copied)
                memory.wait(up, copy.words.over_ptr, copy.words.number)
                _copy_up(copy.buffer, into[number], bfp, divide_by)
                if result is not None:
                    overs.append(on_device(copy.words.over, device))
                if result is not None and is_last:
                    take_if_whole(result, flat, overs, [each.words.number for each in copies])
                if is_last and not is_flat:
                    unpack(flat, tensors)
                copied_back: Event = up.record_event()
                return copied_back

        def part(number: int) -> Part:
            buffer, count = copies[number].buffer, pieces[number].numel()

            def start(client: Any) -> int:
                return submit(client, buffer.data_ptr(), count, bfp is not None)

            return Part(start, copies[number].words, lambda: enqueue(number))

        buffers = tuple(copy.buffer for copy in copies)
        parts = [part(number) for number in range(len(pieces))]
        return Call(buffers, _not_started, lambda: tensors, lambda: module.stream(up), devices=[device], parts=parts)

    def call(
        self, read: Staged, written: Staged, start: Callable[[Any, bool], int], results: list[torch.Tensor]
    ) -> Call:
        """See Staging."""
        device = read.device or written.device
        memory = self._memory_of(device) if device is not None else None
        if device is None or memory is None:
            return super().call(read, written, start, results)
        module, down, up = module_of(device), stream_down(device), self._streams_of(device).up
        words = _pool.take()
        with module.stream(down):
            memory.write(down, words.copied_ptr, words.number)
            copied: Event = down.record_event()

        def enqueue() -> Event:
            if written.device is None:
                return copied
            with module.stream(up):
                up.wait_event(copied)
                memory.wait(up, words.over_ptr, words.number)
                written.finish()
                copied_back: Event = up.record_event()
                return copied_back

        part = Part(lambda client: start(client, False), words, enqueue)
        buffers = (read.buffer, written.buffer)
        return Call(buffers, start, lambda: results, lambda: module.stream(up), devices=[device], parts=[part])

    def _memory_of(self, device: torch.device) -> StreamMemory | None:
        return stream_memory(device) if is_accelerator(device) else None

    def _down_stream(self, device: torch.device) -> Any:
        return stream_down(device)

    def _keep(self, tensors: Sequence[torch.Tensor], device: torch.device) -> None:
        """The allocator must not reuse their memory while the copy streams use it."""
        for tensor in tensors:
            tensor.record_stream(stream_down(device))
            tensor.record_stream(self._streams_of(device).up)


def _not_started(client: Any, awaited: bool) -> int:
    raise AssertionError("its parts are started")


@dataclass
class CopyDown:
    """A piece on its way to pinned memory: it is there after the event `copied`, and when the device has written its
    word."""

    buffer: torch.Tensor
    words: Words
    copied: Event


def _copy_down(
    module: ModuleType, down: Any, memory: StreamMemory, piece: torch.Tensor, bfp: tuple[int, int] | None
) -> CopyDown:
    words = _pool.take()
    with module.stream(down):
        if bfp is None:
            buffer = staging.pinned(piece.numel(), piece.dtype)
            buffer.copy_(piece, non_blocking=True)
        else:
            from netfold.torch import device_codec

            buffer = staging.pinned(device_codec.encoded_bytes(piece.numel(), *bfp), torch.uint8)
            buffer.copy_(device_codec.encode(piece, *bfp), non_blocking=True)
        memory.write(down, words.copied_ptr, words.number)
        return CopyDown(buffer, words, down.record_event())


def _copy_up(buffer: torch.Tensor, into: torch.Tensor, bfp: tuple[int, int] | None, divide_by: int) -> None:
    """On the current stream."""
    if bfp is None:
        into.copy_(buffer, non_blocking=True)
        return
    from netfold.torch import device_codec

    device_codec.decode(on_device(buffer, into.device), into.numel(), *bfp, out=into, divide_by=divide_by)


def take_if_whole(result: torch.Tensor, into: torch.Tensor, overs: list[torch.Tensor], numbers: Sequence[int]) -> None:
    """Copy the result on the current stream, unless one of the words says that its piece has failed."""
    is_whole = torch.stack([over == number for over, number in zip(overs, numbers, strict=True)]).all()
    into.copy_(torch.where(is_whole, result, into))


def on_device(pinned: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A copy, made when the current stream comes to it."""
    return pinned.to(device, non_blocking=True)
