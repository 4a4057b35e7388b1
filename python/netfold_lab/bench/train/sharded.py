"""A classifier divided among the workers: each worker holds some of the classes and gets all workers' features.

Features are all-gathered. The softmax over all classes takes three small all-reduces: of the largest logit, the sum of
exponentials and the target's logit of each sample. The classes of every worker contribute to the features' gradients,
which are reduce-scattered. After "EFLOPS", section VII-B and figure 14.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist

from netfold_lab.bench.train.step_timer import EXPOSED, StepTimer


class Exchange:
    """The blocking collectives of one step; `timer` counts their time. Group None: only computation, with copies of
    this worker's part in place of the other workers' parts."""

    def __init__(self, group: dist.ProcessGroup | None, world: int, timer: StepTimer) -> None:
        self._group = group
        self._world = world
        self._timer = timer

    @contextmanager
    def during(self, part: str) -> Iterator[None]:
        """The time until now belongs to `part`, the time inside to exposed."""
        self._timer.end(part)
        yield
        self._timer.end(EXPOSED)

    def all_gather(self, mine: torch.Tensor) -> torch.Tensor:
        """[n, ...] -> [world * n, ...], in rank order."""
        if self._group is None:
            return mine.repeat(self._world, *([1] * (mine.dim() - 1)))
        everything = mine.new_empty(self._world * mine.shape[0], *mine.shape[1:])
        dist.all_gather_into_tensor(everything, mine.contiguous(), group=self._group)
        return everything

    def reduce_scatter(self, everything: torch.Tensor) -> torch.Tensor:
        """[world * n, ...] -> [n, ...]: this rank's part of the sum."""
        mine = everything.new_empty(everything.shape[0] // self._world, *everything.shape[1:])
        if self._group is None:
            return mine.copy_(everything[: mine.shape[0]])
        dist.reduce_scatter_tensor(mine, everything.contiguous(), group=self._group)
        return mine

    def all_reduce(self, values: torch.Tensor, op: Any = dist.ReduceOp.SUM) -> None:
        """All-reduce in place."""
        if self._group is not None:
            dist.all_reduce(values, op, group=self._group)


class GatherFeatures(torch.autograd.Function):
    """All-gather in forward, reduce-scatter in backward."""

    @staticmethod
    def forward(ctx: Any, mine: torch.Tensor, exchange: Exchange, forward: str, backward: str) -> torch.Tensor:
        """float32[n, f] -> float32[world * n, f]. `forward` and `backward` name the parts of the step around it."""
        ctx.exchange, ctx.part = exchange, backward
        with exchange.during(forward):
            return exchange.all_gather(mine)

    @staticmethod
    def backward(ctx: Any, gradients: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        """float32[world * n, f] -> float32[n, f]."""
        with ctx.exchange.during(ctx.part):
            return ctx.exchange.reduce_scatter(gradients), None, None, None


class ShardedCrossEntropy(torch.autograd.Function):
    """Mean cross-entropy of all workers' samples; each worker has the logits of its own classes."""

    @staticmethod
    def forward(
        ctx: Any, logits: torch.Tensor, labels: torch.Tensor, first_class: int, exchange: Exchange, part: str
    ) -> torch.Tensor:
        """logits: float32[n, own classes]; labels: int64[n], of all classes, equal on all workers. The loss, a scalar,
        is equal too."""
        largest = logits.max(dim=1).values
        with exchange.during(part):
            exchange.all_reduce(largest, dist.ReduceOp.MAX)
        exponentials = (logits - largest[:, None]).exp_()
        local = labels - first_class
        is_mine = (local >= 0) & (local < logits.shape[1])
        rows, columns = is_mine.nonzero()[:, 0], local[is_mine]
        totals = torch.zeros(2, logits.shape[0])
        totals[0] = exponentials.sum(dim=1)
        totals[1, rows] = logits[rows, columns]
        with exchange.during(part):
            exchange.all_reduce(totals)
        exponentials /= totals[0][:, None]
        ctx.save_for_backward(exponentials, rows, columns)
        return (totals[0].log() + largest - totals[1]).mean()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None, None, None]:
        """(softmax - one-hot) / n, for this worker's classes."""
        probabilities, rows, columns = ctx.saved_tensors
        into_logits = probabilities.clone()
        into_logits[rows, columns] -= 1
        return into_logits.mul_(gradient / probabilities.shape[0]), None, None, None, None
