"""All-reduce of sparse COO tensors: ranks gather each other's indices and values, and each sums all of them alike."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch._C._distributed_c10d import ReduceOp

from netfold.torch.calls import Operation

AllGather = Callable[[torch.Tensor], list[torch.Tensor]]
"""Every rank's dense tensor of one shape, in rank order; blocks, and raises RuntimeError."""


def all_reduce(tensor: torch.Tensor, op: Operation, all_gather: AllGather) -> torch.Tensor:
    """The sum of every rank's sparse `tensor`, coalesced. Indices and values are padded to the longest rank's. Raises
    ValueError for other operations than SUM, or tensors of other shapes."""
    if op != ReduceOp.SUM:
        raise ValueError(f"netfold: sparse tensors are summed; there is no {op} of them")
    own = tensor.coalesce()
    indices, values = own.indices().cpu(), own.values().cpu()
    shape = [own.sparse_dim(), own.dense_dim(), *own.shape]
    facts = torch.tensor([indices.size(1), *shape[:2], hash(tuple(shape[2:])) & 0x7FFFFFFF], dtype=torch.int64)
    all_facts = torch.stack(all_gather(facts))
    others = [rank for rank, its in enumerate(all_facts) if not torch.equal(its[1:], facts[1:])]
    if others:
        raise ValueError(f"netfold: the sparse tensors of this rank and of rank {others[0]} have different shapes")
    counts = [int(count) for count in all_facts[:, 0]]
    most = max(counts)
    padded_indices = torch.zeros(indices.size(0), most, dtype=torch.int64)
    padded_indices[:, : indices.size(1)] = indices
    padded_values = torch.zeros(most, *values.shape[1:], dtype=values.dtype)
    padded_values[: values.size(0)] = values
    all_indices, all_values = all_gather(padded_indices), all_gather(padded_values)
    together = torch.sparse_coo_tensor(
        torch.cat([its[:, :count] for its, count in zip(all_indices, counts, strict=True)], dim=1),
        torch.cat([its[:count] for its, count in zip(all_values, counts, strict=True)]),
        own.shape,
    )
    return together.coalesce().to(tensor.device)
