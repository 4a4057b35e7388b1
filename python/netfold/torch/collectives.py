"""Collectives and messages as torch calls them, made into calls of an engine among the ranks.

Each function takes torch's tensors and returns a `Call`. A reduce-scatter of the core's types sums in the group's
format, like an all-reduce; everything else travels as it lies in memory. Tensors of any layout and device go through
`Staging`. Wrong arguments raise ValueError.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from netfold.algorithms import DIRECT, SMALL_BYTES, choose_broadcast
from netfold.engines import PeerClient
from netfold.torch.calls import (
    CORE_DTYPES,
    DTYPES,
    RAW_DTYPES,
    Call,
    Operation,
    factor_of,
    is_summable,
    named,
    operation_of,
)
from netfold.torch.staging import Staging
from netfold.torch.work_queries import Received

Tensors = list[torch.Tensor]


def check_alike(tensors: Sequence[torch.Tensor], count: int | None = None) -> None:
    """Raise ValueError unless these are dense tensors of one type, on one device, each of `count` elements if given."""
    first = tensors[0]
    for each in tensors:
        if each.layout != torch.strided or each.dtype != first.dtype or each.device != first.device:
            raise ValueError(
                "netfold: a collective takes dense tensors of one type on one device, not "
                f"{each.dtype} on {each.device} ({each.layout}) beside {first.dtype} on {first.device}"
            )
        if count is not None and each.numel() != count:
            raise ValueError(f"netfold: this collective needs tensors of {count} elements, not {each.numel()}")


def _raw(tensor: torch.Tensor) -> str:
    return RAW_DTYPES[tensor.element_size()]


def _is_words(tensor: torch.Tensor) -> bool:
    return tensor.nbytes % 4 == 0


@named("barrier")
def barrier() -> Call:
    """Ends when every rank has called it."""

    def start(client: PeerClient, awaited: bool) -> int:
        return client.barrier(awaited)

    return Call((), start, list, is_common=True)


@named("broadcast")
def broadcast(staging: Staging, tensor: torch.Tensor, root: int) -> Call:
    """Rank `root`'s tensor, to every rank, in place."""
    check_alike([tensor])
    staged = staging.stage([tensor])
    pointer, count, algorithm = staged.buffer.data_ptr(), staged.buffer.numel(), choose_broadcast(staged.buffer.nbytes)

    def start(client: PeerClient, awaited: bool) -> int:
        return client.collect(
            "broadcast", pointer, pointer, count, _raw(tensor), root=root, algorithm=algorithm, awaited=awaited
        )

    return replace(staging.call_in_place(staged, start, [tensor]), is_common=_is_words(tensor))


@named("all-reduce")
def all_reduce(staging: Staging, tensors: Tensors, op: Operation) -> Call:
    """Any operation on the concatenation of all ranks' `tensors`, in place."""
    check_alike(tensors)
    name, average = operation_of(op, tensors[0].dtype)
    staged = staging.stage(tensors, factor_of(op))
    pointer, count, dtype = staged.buffer.data_ptr(), staged.buffer.numel(), DTYPES[staged.buffer.dtype]

    def start(client: PeerClient, awaited: bool) -> int:
        return client.collect("all-reduce", pointer, pointer, count, dtype, name, average, awaited=awaited)

    return staging.call_in_place(staged, start, tensors)


@named("reduce")
def reduce(staging: Staging, tensor: torch.Tensor, op: Operation, root: int, rank: int) -> Call:
    """Like all_reduce, of one tensor; only rank `root`'s is written."""
    check_alike([tensor])
    name, average = operation_of(op, tensor.dtype)
    dtype = DTYPES[tensor.dtype]
    read = staging.read([tensor], factor_of(op))
    written = staging.write([tensor] if rank == root else [])
    source, target = read.buffer.data_ptr(), written.buffer.data_ptr() if rank == root else read.buffer.data_ptr()
    count = read.buffer.numel()
    wire = dtype if is_summable(tensor.dtype, op) else ""

    def start(client: PeerClient, awaited: bool) -> int:
        return client.collect(
            "reduce", source, target, count, dtype, name, average, root=root, wire=wire, awaited=awaited
        )

    return staging.call(read, written, start, [tensor])


@named("all-gather")
def all_gather(staging: Staging, outputs: Tensors, tensor: torch.Tensor, world: int) -> Call:
    """Every rank's `tensor`, in rank order, into `outputs`: one tensor for each rank, or one for all."""
    count = tensor.numel()
    check_alike([tensor, *outputs])
    if sum(output.numel() for output in outputs) != world * count:
        raise ValueError(
            f"netfold: an all-gather of {count} elements of each of {world} ranks needs room for {world * count}, not "
            f"{sum(output.numel() for output in outputs)}"
        )
    if len(outputs) > 1:
        check_alike(outputs, count)
    read, written = staging.read([tensor]), staging.write(outputs)
    source, target = read.buffer.data_ptr(), written.buffer.data_ptr()
    algorithm = DIRECT if tensor.nbytes <= SMALL_BYTES else "ring"

    def start(client: PeerClient, awaited: bool) -> int:
        return client.collect("all-gather", source, target, count, _raw(tensor), algorithm=algorithm, awaited=awaited)

    return replace(staging.call(read, written, start, outputs), is_common=_is_words(tensor))


@named("reduce-scatter")
def reduce_scatter(
    staging: Staging, output: torch.Tensor, tensors: Tensors, world: int, op: Operation, wire: str
) -> Call:
    """This rank's part of every rank's `tensors`: one for each rank, or one for all. `wire`: the format of fp32."""
    count = output.numel()
    check_alike([output, *tensors])
    if sum(tensor.numel() for tensor in tensors) != world * count:
        raise ValueError(
            f"netfold: a reduce-scatter to {count} elements on each of {world} ranks needs {world * count} elements, "
            f"not {sum(tensor.numel() for tensor in tensors)}"
        )
    if len(tensors) > 1:
        check_alike(tensors, count)
    name, average = operation_of(op, output.dtype)
    dtype = DTYPES[output.dtype]
    read, written = staging.read(tensors, factor_of(op)), staging.write([output])
    source, target = read.buffer.data_ptr(), written.buffer.data_ptr()

    def start(client: PeerClient, awaited: bool) -> int:
        if is_summable(output.dtype, op):
            travels_as = wire if dtype == "fp32" else CORE_DTYPES[output.dtype]
            return client.reduce_scatter(source, target, count, dtype, travels_as, average, awaited)
        return client.collect("reduce-scatter", source, target, count, dtype, name, average, awaited=awaited)

    is_common = is_summable(output.dtype, op)
    return replace(staging.call(read, written, start, [output]), is_common=is_common, is_scatter=is_common)


def exchange(
    staging: Staging,
    kind: str,
    outputs: Tensors,
    inputs: Tensors,
    receives: Sequence[int],
    sends: Sequence[int],
    root: int = 0,
) -> Call:
    """An "all-to-all", "gather" or "scatter". `sends` and `receives` count elements by rank, in the order in which they
    lie in `inputs` and `outputs`; either may be empty."""
    check_alike([*inputs, *outputs])
    for tensors, counts, what in ((inputs, sends, "hands over"), (outputs, receives, "has room for")):
        have = sum(tensor.numel() for tensor in tensors)
        if have != sum(counts):
            raise ValueError(f"netfold: this rank {what} {have} elements in the {kind}, and not the {sum(counts)} said")
    read, written = staging.read(inputs, apart_from=outputs), staging.write(outputs)
    source, target = read.buffer.data_ptr(), written.buffer.data_ptr()
    raw = _raw([*inputs, *outputs][0])

    def start(client: PeerClient, awaited: bool) -> int:
        return client.exchange(kind, source, target, raw, list(sends), list(receives), root, awaited)

    return staging.call(read, written, start, outputs)


@named("gather")
def gather(staging: Staging, outputs: Tensors, tensor: torch.Tensor, root: int, rank: int, world: int) -> Call:
    """Every rank's `tensor` into rank `root`'s `outputs`, one for each rank; the others give none."""
    count = tensor.numel()
    if len(outputs) != (world if rank == root else 0):
        raise ValueError(f"netfold: in a gather rank {root} gives {world} outputs, and every other rank none")
    if outputs:
        check_alike(outputs, count)
    sends = [count if other == root else 0 for other in range(world)]
    return exchange(staging, "gather", outputs, [tensor], [count if rank == root else 0] * world, sends, root)


@named("scatter")
def scatter(staging: Staging, output: torch.Tensor, inputs: Tensors, root: int, rank: int, world: int) -> Call:
    """Rank `root`'s `inputs`, one for each rank, into every rank's `output`; the others give none."""
    count = output.numel()
    if len(inputs) != (world if rank == root else 0):
        raise ValueError(f"netfold: in a scatter rank {root} gives {world} inputs, and every other rank none")
    if inputs:
        check_alike(inputs, count)
    receives = [count if other == root else 0 for other in range(world)]
    return exchange(staging, "scatter", [output], inputs, receives, [count if rank == root else 0] * world, root)


@named("all-to-all")
def all_to_all_single(
    staging: Staging,
    output: torch.Tensor,
    tensor: torch.Tensor,
    output_splits: Sequence[int],
    input_splits: Sequence[int],
    world: int,
) -> Call:
    """Part r of every rank's `tensor` to rank r. Splits count along the first dimension; empty: equal parts."""
    return exchange(
        staging,
        "all-to-all",
        [output],
        [tensor],
        _elements_of(output, output_splits, world),
        _elements_of(tensor, input_splits, world),
    )


def _elements_of(tensor: torch.Tensor, splits: Sequence[int], world: int) -> list[int]:
    if not splits:
        if tensor.dim() == 0 or tensor.size(0) % world:
            raise ValueError(
                f"netfold: an all-to-all cannot divide a tensor of shape {list(tensor.shape)} equally among {world}"
            )
        return [tensor.numel() // world] * world
    if len(splits) != world:
        raise ValueError(f"netfold: an all-to-all among {world} ranks takes {world} split sizes, not {len(splits)}")
    row = tensor.numel() // tensor.size(0) if tensor.numel() else 0
    return [split * row for split in splits]


@named("send")
def send(staging: Staging, tensor: torch.Tensor, to: int, tag: int) -> Call:
    """A message to rank `to`."""
    check_alike([tensor])
    read = staging.read([tensor])
    pointer, size_bytes = read.buffer.data_ptr(), read.buffer.nbytes

    def start(client: PeerClient, awaited: bool) -> int:
        return client.send(pointer, size_bytes, to, tag, awaited)

    return staging.call(read, staging.write([]), start, [tensor])


@named("receive")
def receive(staging: Staging, tensor: torch.Tensor, source: int | None, tag: int) -> Call:
    """A message from rank `source`, or (None) from any rank; then the future's value says from which."""
    check_alike([tensor])
    written = staging.write([tensor])
    sender = torch.full((1,), -1, dtype=torch.int32)
    pointer, size_bytes = written.buffer.data_ptr(), written.buffer.nbytes
    from_rank = -1 if source is None else source

    def start(client: PeerClient, awaited: bool) -> int:
        return client.receive(pointer, size_bytes, from_rank, tag, sender.data_ptr(), awaited)

    call = staging.call(staging.read([]), written, start, [tensor])
    finish = call.finish
    call.finish = lambda: Received(finish(), int(sender.item())) if source is None else finish()
    call.buffers = (*call.buffers, sender)
    return call
