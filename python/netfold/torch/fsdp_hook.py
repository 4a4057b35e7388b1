"""The hook of FSDP2: shards of a model are averaged over the ranks of a Netfold group; NCCL works in the machine."""

from __future__ import annotations

from itertools import cycle
from typing import Any

from torch import nn

from netfold.torch.connected import FoldingGroup
from netfold.torch.devices import is_accelerator, module_of

STREAMS = 2  # in which modules are averaged in turns; few, because streams share the device's queues


def average_shards(model: nn.Module, group: FoldingGroup) -> None:
    """Let every part of `model` to which `fully_shard` was applied average its gradients over the ranks of `group`, as
    FSDP2 has reduce-scattered them. Every rank calls it once.

    Neighbouring parts have different streams: a shard is on its way to the network while the one before it comes back.
    Raises RuntimeError if this torch has no such hook (it came with torch 2.7), and ValueError if no part is sharded.
    """
    try:
        from torch.distributed.fsdp import FSDPModule

        set_hook: Any = FSDPModule.set_all_reduce_hook
    except (ImportError, AttributeError) as error:
        raise RuntimeError("netfold: this torch has no set_all_reduce_hook; torch 2.7 or newer has it") from error
    parts = [part for part in model.modules() if isinstance(part, FSDPModule)]
    if not parts:
        raise ValueError("netfold: no part of this model is sharded; apply torch.distributed.fsdp.fully_shard before")
    device = next(model.parameters()).device
    streams = [module_of(device).Stream(device) for _ in range(STREAMS)] if is_accelerator(device) else [None]
    for part, stream in zip(parts, cycle(streams), strict=False):
        set_hook(part, group.average, stream=stream)
