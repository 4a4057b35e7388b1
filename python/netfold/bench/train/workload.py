"""One worker's training step, taken apart: forward, backward, exposed all-reduce, weight update.

Gradients are all-reduced bucket by bucket. A bucket's weights are updated as soon as its sum is there, while later
buckets are still on their way; what a step waits for in between is *exposed*. After "AI Smart NICs", figure 3b.
"""

from __future__ import annotations

import torch.distributed as dist

from netfold.bench.train.buckets import Buckets
from netfold.bench.train.laps import BACKWARD, EXPOSED, FORWARD, UPDATE, Laps
from netfold.bench.train.models import make_task
from netfold.bench.train.profiles import Profile


class DataParallel:
    """A model of which every worker has all, trained on batches of their own."""

    def __init__(self, profile: Profile, rank: int) -> None:
        self._task = make_task(profile, rank)
        self._buckets = Buckets(self._task.model, profile.bucket_bytes, profile.workers)
        self.parameters = list(self._task.model.parameters())
        self.gradient_bytes = self._buckets.size_bytes
        self.loaders: frozenset[int] = frozenset()

    def step(self, group: dist.ProcessGroup | None, overlaps: bool, prefetches: bool) -> Laps:
        """One step, its gradients all-reduced through `group`. Group None: computation alone, all of
        it, but the weights stay as they are, since every worker's gradients differ."""
        self._buckets.exchange_in(group, overlaps)
        laps = Laps()
        loss = self._task.loss()
        laps.end(FORWARD)
        loss.backward()
        laps.end(BACKWARD)
        finish(self._buckets, laps, in_earnest=group is not None)
        return laps

    def close(self) -> None:
        """Nothing runs beside the step."""


def finish(buckets: Buckets, laps: Laps, in_earnest: bool) -> None:
    """What follows backward: wait for each bucket's sum, update its weights."""
    buckets.start_rest()
    for bucket in buckets.all:
        if bucket.work is not None:
            bucket.work.wait()
            bucket.work = None
        laps.end(EXPOSED)
        bucket.update(in_earnest)
        laps.end(UPDATE)
