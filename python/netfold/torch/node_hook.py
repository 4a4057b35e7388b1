"""A hook of DDP for machines with several GPUs: NCCL in the machine, Netfold between machines.

A bucket is reduce-scattered among the ranks of a machine. Each rank folds its shard with the ranks that have the same
shard on the other machines. Then the ranks of a machine gather the shards. So each rank sends a shard over the network,
and not the whole bucket.
"""

# No `from __future__ import annotations` here: DDP compares a hook's annotations with the classes themselves.

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket, ProcessGroup

from netfold.torch.connected import FoldingGroup, connect
from netfold.torch.devices import is_accelerator, module_of


@dataclass
class NodeGroups:
    """`inside`: the ranks of this machine. `between`: those that have the same shard, one on each machine. Close
    `between` at the end."""

    inside: ProcessGroup
    between: FoldingGroup
    streams: dict[torch.device, Any] = field(default_factory=dict)

    def beside(self, device: torch.device) -> AbstractContextManager[object]:
        """A stream for the three steps, after what the current one has done so far: the current stream computes on."""
        if not is_accelerator(device):
            return nullcontext()
        module = module_of(device)
        if device not in self.streams:
            self.streams[device] = module.Stream(device)
        stream = self.streams[device]
        stream.wait_stream(module.current_stream(device))
        beside: AbstractContextManager[object] = module.stream(stream)
        return beside


def node_groups(per_machine: int, **given: Any) -> NodeGroups:
    """The groups of this rank. Every rank calls it. Neighbours are of one machine, as torchrun numbers them, and each
    machine has `per_machine` ranks. `given`: settings, as of `connect`. Raises ValueError if the ranks cannot be
    divided so, and the errors of `connect`."""
    rank, world = dist.get_rank(), dist.get_world_size()
    if per_machine < 1 or world % per_machine:
        raise ValueError(f"netfold: {world} ranks cannot be divided among machines of {per_machine}")
    machines = [list(range(first, first + per_machine)) for first in range(0, world, per_machine)]
    inside: list[Any] = [dist.new_group(ranks) for ranks in machines]
    between: list[Any] = [dist.new_group(list(range(shard, world, per_machine))) for shard in range(per_machine)]
    return NodeGroups(inside[rank // per_machine], connect(between[rank % per_machine], **given))


def node_fold_hook(state: NodeGroups, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    """`ddp_model.register_comm_hook(netfold.torch.node_groups(8), netfold.torch.node_fold_hook)`.

    Returns a future of the bucket's gradients, averaged over all ranks. A failure of a group is an error of that
    future.
    """
    gradient = bucket.buffer()
    size = dist.get_world_size(state.inside)
    with state.beside(gradient.device):
        shard = -(-gradient.numel() // size)
        whole = torch.zeros(shard * size, dtype=gradient.dtype, device=gradient.device)
        whole[: gradient.numel()].copy_(gradient)
        own = torch.empty(shard, dtype=gradient.dtype, device=gradient.device)
        dist.reduce_scatter_tensor(own, whole, group=state.inside)
        own.div_(size)
        folded = state.between.all_reduce(own, dist.ReduceOp.AVG, async_op=True)
        assert folded is not None, "an asynchronous all-reduce returns a work"
        folded.wait()
        gathered = dist.all_gather_into_tensor(whole, own, group=state.inside, async_op=True)
        assert gathered is not None, "an asynchronous all-gather returns a work"
        parts = torch.futures.collect_all([folded.get_future(), gathered.get_future()])
        return parts.then(lambda done: _result(done, whole[: gradient.numel()]))


def _result(done: torch.futures.Future[Any], averaged: torch.Tensor) -> torch.Tensor:
    for part in done.value():
        part.value()  # raises the error of a group
    return averaged
