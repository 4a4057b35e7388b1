"""Collectives of host algorithms besides all-reduce, as torch calls them: reduce-scatter, all-gather and broadcast.

Each function turns one call into a `Call` on a HostClient, or returns None if Gloo has to run it. A reduce-scatter sums
the core's types in the group's format, like an all-reduce. All-gather and broadcast copy tensors of any type, bit for
bit, in any format: they move words of four bytes.

Contiguous CPU tensors are used in place; other tensors go through a copy.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

import torch
from torch._C._distributed_c10d import ReduceOp

from netfold.engines import Reducer
from netfold.torch.host_group import HostClient

CORE_DTYPES = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16", torch.int32: "int32"}
WORD_BYTES = 4
Operation = ReduceOp | ReduceOp.RedOpType  # torch compares both types


@dataclass
class Call:
    """`start` submits it to a client, says whether the caller waits for it next, and returns the ticket. `buffers` must
    live until the ticket is finished; `finish` then returns the user's tensors. `completing()` is the context in which
    `finish` is called and the Work completed, such as a CUDA stream."""

    buffers: tuple[torch.Tensor, ...]
    start: Callable[[Reducer, bool], int]
    finish: Callable[[], list[torch.Tensor]]
    completing: Callable[[], AbstractContextManager[object]] = nullcontext


def is_summable(dtype: torch.dtype, op: Operation) -> bool:
    """Whether the core supports this operation on this type: SUM of all its types, AVG of the floating-point types."""
    return dtype in CORE_DTYPES and (op == ReduceOp.SUM or (op == ReduceOp.AVG and dtype != torch.int32))


def _are_alike(tensors: list[torch.Tensor]) -> bool:
    """Whether these are strided CPU tensors of one type and size."""
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
    """The number of words that hold the tensor; padding may fill the last."""
    return -(-tensor.nbytes // WORD_BYTES)


def _is_words(tensor: torch.Tensor) -> bool:
    """Whether the tensor's memory consists of whole words."""
    return tensor.is_contiguous() and tensor.nbytes % WORD_BYTES == 0 and tensor.data_ptr() % WORD_BYTES == 0


def _room_for(tensor: torch.Tensor, parts: int = 1) -> torch.Tensor:
    """Memory for `copies` tensors like this one, each of whole words."""
    return torch.empty(parts * _words(tensor) * WORD_BYTES, dtype=torch.uint8)


def _at(room: torch.Tensor, like: torch.Tensor, part: int = 0) -> torch.Tensor:
    """A part of such memory as a tensor of the same type and shape."""
    first = part * _words(like) * WORD_BYTES
    return room[first : first + like.nbytes].view(like.dtype).view(like.shape)


def _filled(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor itself if its memory consists of whole words, else a padded copy."""
    if _is_words(tensor):
        return tensor
    room = _room_for(tensor)
    _at(room, tensor).copy_(tensor)
    return room


def barrier() -> Call:
    """A barrier: ends when every rank has called it."""
    return Call((), lambda client, awaited: _among_peers(client).barrier(awaited), list)


def _among_peers(client: Reducer) -> HostClient:
    """The client of a group with a host algorithm, which is always a HostClient."""
    assert isinstance(client, HostClient)
    return client


def broadcast(tensors: list[torch.Tensor], root: int) -> Call | None:
    """Broadcast from rank `root` to all ranks, in place."""
    if len(tensors) != 1 or not _are_alike(tensors):
        return None
    tensor = tensors[0]
    memory = _filled(tensor)

    def finish() -> list[torch.Tensor]:
        if memory is not tensor:
            tensor.copy_(_at(memory, tensor))
        return [tensor]

    words = _words(tensor)

    def start(client: Reducer, awaited: bool) -> int:
        return _among_peers(client).broadcast(memory.data_ptr(), words, root, awaited)

    return Call((memory,), start, finish)


def all_gather(outputs: list[torch.Tensor], tensor: torch.Tensor) -> Call | None:
    """All-gather every rank's `tensor`, one into each of `outputs`."""
    if not _are_alike([tensor, *outputs]):
        return None
    own, memory = _filled(tensor), _room_for(tensor, len(outputs))

    def finish() -> list[torch.Tensor]:
        for part, output in enumerate(outputs):
            output.copy_(_at(memory, tensor, part).view(output.shape))
        return outputs

    return Call((own, memory), _gathering(own, memory, _words(tensor)), finish)


def _gathering(own: torch.Tensor, all_: torch.Tensor, words: int) -> Callable[[Reducer, bool], int]:
    def start(client: Reducer, awaited: bool) -> int:
        return _among_peers(client).all_gather(own.data_ptr(), all_.data_ptr(), words, awaited)

    return start


def all_gather_single(output: torch.Tensor, tensor: torch.Tensor, world: int) -> Call | None:
    """All-gather every rank's `tensor` into `output` in rank order. `output` may hold this rank's part already.

    How the memory of a tensor is laid out may differ from rank to rank, and must not decide which way it goes.
    """
    if output.numel() != world * tensor.numel() or output.device.type != "cpu" or output.layout != torch.strided:
        return None
    if not output.is_contiguous():
        return _copied_to(output, all_gather_single(torch.empty(output.shape, dtype=output.dtype), tensor, world))
    if not (_is_words(output) and _is_words(tensor) and _are_alike([tensor]) and output.dtype == tensor.dtype):
        parts = list(output.view(-1).split(tensor.numel())) if tensor.numel() > 0 else []
        return all_gather([part.view(tensor.shape) for part in parts], tensor) if parts else None
    return Call((tensor, output), _gathering(tensor, output, _words(tensor)), lambda: [output])


def _copied_to(output: torch.Tensor, call: Call | None) -> Call | None:
    """The call, whose results are copied to `output` at its end."""
    if call is None:
        return None
    results = call.finish

    def finish() -> list[torch.Tensor]:
        output.copy_(torch.cat([part.reshape(-1) for part in results()]).view(output.shape))
        return [output]

    return replace(call, finish=finish)


def reduce_scatter_single(
    output: torch.Tensor, tensor: torch.Tensor, world: int, op: Operation, wire: str
) -> Call | None:
    """This rank's part of the sum of every rank's `tensor`, which stays unchanged. `wire`: the wire format of fp32."""
    if tensor.numel() != world * output.numel() or tensor.dtype != output.dtype or not is_summable(tensor.dtype, op):
        return None
    if not (_are_alike([tensor]) and _are_alike([output])):
        return None
    whole = tensor.contiguous()
    part = output if output.is_contiguous() else torch.empty_like(output, memory_format=torch.contiguous_format)
    dtype, average = CORE_DTYPES[tensor.dtype], op == ReduceOp.AVG
    wire = wire if dtype == "fp32" else dtype
    count = output.numel()

    def start(client: Reducer, awaited: bool) -> int:
        return _among_peers(client).reduce_scatter(
            whole.data_ptr(), part.data_ptr(), count, dtype, wire, average, awaited
        )

    def finish() -> list[torch.Tensor]:
        if part is not output:
            output.copy_(part)
        return [output]

    return Call((whole, part), start, finish)


def reduce_scatter(output: torch.Tensor, tensors: list[torch.Tensor], op: Operation, wire: str) -> Call | None:
    """Like reduce_scatter_single, of a list with one tensor for each rank."""
    if not (_are_alike([output, *tensors]) and is_summable(output.dtype, op)):
        return None
    whole = torch.cat([tensor.reshape(-1) for tensor in tensors])
    return reduce_scatter_single(output, whole, len(tensors), op, wire)
