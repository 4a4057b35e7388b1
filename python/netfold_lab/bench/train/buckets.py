"""Gradients in buckets. A bucket is a flat tensor that is all-reduced when backward has filled it, or after backward.

Parameters fill the buckets in reverse order, which is about the order in which backward reaches them. A parameter's
gradient is a view into its bucket, as in DDP with `gradient_as_bucket_view`: nothing is copied.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import nn

LEARNING_RATE = 1e-3


class Bucket:
    """Parameters, their gradients in one flat tensor, and the optimizer that updates them."""

    def __init__(self, parameters: list[nn.Parameter], averaged_over: int) -> None:
        self.gradients = torch.zeros(sum(parameter.numel() for parameter in parameters))
        self.missing = self.size = len(parameters)
        self.filled_at = 0.0  # when the last backward filled it, in seconds of the monotonic clock
        self.work: dist.Work | None = None
        self._rate = LEARNING_RATE / averaged_over
        self._optimizer = torch.optim.SGD(parameters, lr=self._rate)
        parts = self.gradients.split([parameter.numel() for parameter in parameters])
        for parameter, part in zip(parameters, parts, strict=True):
            parameter.grad = part.view(parameter.shape)

    def update(self, in_earnest: bool = True) -> None:
        """Apply the gradients and clear them. With `in_earnest` False it does the same work, but the weights stay."""
        for group in self._optimizer.param_groups:
            group["lr"] = self._rate if in_earnest else 0.0
        self._optimizer.step()
        self.gradients.zero_()
        self.missing = self.size


class Buckets:
    """All buckets of a model. `exchange_in` sets the group, and whether all-reduces start within backward."""

    def __init__(self, model: nn.Module, bucket_bytes: int, averaged_over: int) -> None:
        """A bucket is full when it holds `bucket_bytes`; 0: each parameter has a bucket of its own. Gradients are
        summed over the workers; the sum must be divided by `averaged_over`."""
        self._group: dist.ProcessGroup | None = None
        self._in_backward = False
        self.all = [Bucket(parameters, averaged_over) for parameters in _parts(model, bucket_bytes)]
        for bucket in self.all:
            for parameter in bucket._optimizer.param_groups[0]["params"]:
                parameter.register_post_accumulate_grad_hook(lambda _, mine=bucket: self._ready(mine))

    @property
    def size_bytes(self) -> int:
        """Bytes of all gradients."""
        return sum(bucket.gradients.numel() * bucket.gradients.element_size() for bucket in self.all)

    def exchange_in(self, group: dist.ProcessGroup | None, in_backward: bool) -> None:
        """Set how the next backward's gradients are all-reduced; group None: not at all."""
        self._group = group
        self._in_backward = in_backward

    def start_rest(self) -> None:
        """Start the all-reduces that backward did not start."""
        for bucket in self.all:
            if bucket.work is None:
                self._start(bucket)

    def _ready(self, bucket: Bucket) -> None:
        bucket.missing -= 1
        if bucket.missing == 0:
            bucket.filled_at = time.monotonic()
            if self._in_backward:
                self._start(bucket)

    def _start(self, bucket: Bucket) -> None:
        if self._group is not None:
            bucket.work = dist.all_reduce(bucket.gradients, group=self._group, async_op=True)


def _parts(model: nn.Module, bucket_bytes: int) -> Iterator[list[nn.Parameter]]:
    part: list[nn.Parameter] = []
    for parameter in reversed(list(model.parameters())):
        part.append(parameter)
        if sum(each.numel() * each.element_size() for each in part) >= bucket_bytes:
            yield part
            part = []
    if part:
        yield part
