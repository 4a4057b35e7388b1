"""One worker's training step in parts: forward, backward, exposed all-reduce, weight update.

Gradients are all-reduced bucket by bucket. A bucket's weights are updated when its sum arrives, while later buckets are
in flight. The time that a step waits in between is *exposed*. After "AI Smart NICs", figure 3b.
"""

from __future__ import annotations

import torch.distributed as dist

from netfold_lab.bench.train.buckets import Buckets
from netfold_lab.bench.train.models import make_task
from netfold_lab.bench.train.profiles import Profile
from netfold_lab.bench.train.step_timer import BACKWARD, EXPOSED, FORWARD, UPDATE, StepTimer


class DataParallel:
    """A model that every worker has completely; each worker trains it on its own batches."""

    def __init__(self, profile: Profile, rank: int) -> None:
        self._task = make_task(profile, rank)
        self._buckets = Buckets(self._task.model, profile.bucket_bytes, profile.workers)
        self.parameters = list(self._task.model.parameters())
        self.gradient_bytes = self._buckets.size_bytes
        self.loaders: frozenset[int] = frozenset()
        self._backward_began = 0.0

    def step(self, group: dist.ProcessGroup | None, overlaps: bool, prefetches: bool) -> StepTimer:
        """One step, its gradients all-reduced through `group`. Group None: only computation. All of it runs, but the
        weights stay, because every worker's gradients differ."""
        self._buckets.exchange_in(group, overlaps)
        timer = StepTimer()
        loss = self._task.loss()
        timer.end(FORWARD)
        self._backward_began = timer.ended[FORWARD]
        loss.backward()
        timer.end(BACKWARD)
        finish(self._buckets, timer, in_earnest=group is not None)
        return timer

    def buckets(self) -> list[tuple[int, float]]:
        """Of each bucket, in the order of all-reduces: its elements, and the seconds from the start of the last
        backward until it was full."""
        return [(each.gradients.numel(), each.filled_at - self._backward_began) for each in self._buckets.all]

    def close(self) -> None:
        """Does nothing: no thread runs beside the step."""


def finish(buckets: Buckets, timer: StepTimer, in_earnest: bool) -> None:
    """The part after backward: wait for each bucket's sum, update its weights."""
    buckets.start_rest()
    for bucket in buckets.all:
        if bucket.work is not None:
            bucket.work.wait()
            bucket.work = None
        timer.end(EXPOSED)
        bucket.update(in_earnest)
        timer.end(UPDATE)
