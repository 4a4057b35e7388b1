"""What the ranks do among themselves besides all-reduce, as torch calls it: reduce-scatter, all-gather and broadcast.

Each function turns one call into a `Call` on a HostClient, or None where that call is not ours but Gloo's. A
reduce-scatter sums the core's types, and travels in the group's format like an all-reduce. All-gather and broadcast
copy tensors of any type, bit for bit, whatever the format: they move as words of four bytes.

CPU tensors that are contiguous are used where they lie, others go through a copy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch._C._distributed_c10d import ReduceOp

CORE_DTYPES = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16", torch.int32: "int32"}
WORD_BYTES = 4


@dataclass
class Call:
    """`start` hands it to a client, and says whether the caller waits for it next; it returns the ticket. `buffers`
    must live until it is finished; `finish` then returns the user's tensors."""

    buffers: tuple[torch.Tensor, ...]
    start: Callable[[Any, bool], int]
    finish: Callable[[], list[torch.Tensor]]


def is_summable(dtype: torch.dtype, op: ReduceOp) -> bool:
    """Whether the core sums this type under this operation: SUM of its types, AVG of the floating ones."""
    return dtype in CORE_DTYPES and (op == ReduceOp.SUM or (op == ReduceOp.AVG and dtype != torch.int32))


def _are_alike(tensors: list[torch.Tensor]) -> bool:
    """Plain CPU tensors of one type and size."""
    first = tensors[0]
    return all(
        t.device.type == "cpu"
        and t.layout == torch.strided
        and not t.is_quantized
        and t.dtype == first.dtype
        and t.numel() == first.numel()
        for t in tensors
    )


def _words(tensor: torch.Tensor) -> int:
    """Words that hold the tensor; the last may be filled up."""
    return -(-tensor.nbytes // WORD_BYTES)


def _is_words(tensor: torch.Tensor) -> bool:
    """Whether its memory is whole words as it lies."""
    return tensor.is_contiguous() and tensor.nbytes % WORD_BYTES == 0 and tensor.data_ptr() % WORD_BYTES == 0


def _room_for(tensor: torch.Tensor, parts: int = 1) -> torch.Tensor:
    """Memory for so many tensors like this one, each of whole words."""
    return torch.empty(parts * _words(tensor) * WORD_BYTES, dtype=torch.uint8)


def _at(room: torch.Tensor, like: torch.Tensor, part: int = 0) -> torch.Tensor:
    """A part of such memory as a tensor of the same type and shape."""
    first = part * _words(like) * WORD_BYTES
    return room[first : first + like.nbytes].view(like.dtype).view(like.shape)


def _filled(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor itself where its memory is whole words, else a copy that is."""
    if _is_words(tensor):
        return tensor
    room = _room_for(tensor)
    _at(room, tensor).copy_(tensor)
    return room


def broadcast(tensors: list[torch.Tensor], root: int) -> Call | None:
    """From rank `root` to all, in place."""
    if len(tensors) != 1 or not _are_alike(tensors):
        return None
    tensor = tensors[0]
    memory = _filled(tensor)

    def finish() -> list[torch.Tensor]:
        if memory is not tensor:
            tensor.copy_(_at(memory, tensor))
        return [tensor]

    words = _words(tensor)

    def start(client: Any, awaited: bool) -> int:
        return client.broadcast(memory.data_ptr(), words, root, awaited)

    return Call((memory,), start, finish)


def all_gather(outputs: list[torch.Tensor], tensor: torch.Tensor) -> Call | None:
    """Every rank's `tensor`, one into each of `outputs`."""
    if not _are_alike([tensor, *outputs]):
        return None
    own, memory = _filled(tensor), _room_for(tensor, len(outputs))

    def finish() -> list[torch.Tensor]:
        for part, output in enumerate(outputs):
            output.copy_(_at(memory, tensor, part).view(output.shape))
        return outputs

    return Call((own, memory), _gathering(own, memory, _words(tensor)), finish)


def _gathering(own: torch.Tensor, all_: torch.Tensor, words: int) -> Callable[[Any, bool], int]:
    def start(client: Any, awaited: bool) -> int:
        return client.all_gather(own.data_ptr(), all_.data_ptr(), words, awaited)

    return start


def all_gather_single(output: torch.Tensor, tensor: torch.Tensor, world: int) -> Call | None:
    """Every rank's `tensor`, one behind the other in `output`, which may hold this rank's already."""
    if output.numel() != world * tensor.numel() or output.device.type != "cpu" or output.layout != torch.strided:
        return None
    if not (_is_words(output) and _is_words(tensor) and _are_alike([tensor]) and output.dtype == tensor.dtype):
        flat = output if output.is_contiguous() else None
        parts = list(flat.view(-1).split(tensor.numel())) if flat is not None and tensor.numel() > 0 else []
        return all_gather([part.view(tensor.shape) for part in parts], tensor) if parts else None
    return Call((tensor, output), _gathering(tensor, output, _words(tensor)), lambda: [output])


def reduce_scatter_single(
    output: torch.Tensor, tensor: torch.Tensor, world: int, op: ReduceOp, wire: str
) -> Call | None:
    """This rank's part of the sum of every rank's `tensor`, which is only read. `wire`: how fp32 travels."""
    if tensor.numel() != world * output.numel() or tensor.dtype != output.dtype or not is_summable(tensor.dtype, op):
        return None
    if not (_are_alike([tensor]) and _are_alike([output])):
        return None
    whole = tensor.contiguous()
    part = output if output.is_contiguous() else torch.empty_like(output, memory_format=torch.contiguous_format)
    dtype, average = CORE_DTYPES[tensor.dtype], op == ReduceOp.AVG
    wire = wire if dtype == "fp32" else dtype
    count = output.numel()

    def start(client: Any, awaited: bool) -> int:
        return client.reduce_scatter(whole.data_ptr(), part.data_ptr(), count, dtype, wire, average, awaited)

    def finish() -> list[torch.Tensor]:
        if part is not output:
            output.copy_(part)
        return [output]

    return Call((whole, part), start, finish)


def reduce_scatter(output: torch.Tensor, tensors: list[torch.Tensor], op: ReduceOp, wire: str) -> Call | None:
    """As reduce_scatter_single, of tensors one for each rank."""
    if not (_are_alike([output, *tensors]) and is_summable(output.dtype, op)):
        return None
    whole = torch.cat([tensor.reshape(-1) for tensor in tensors])
    return reduce_scatter_single(output, whole, len(tensors), op, wire)
