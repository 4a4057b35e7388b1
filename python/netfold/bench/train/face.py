"""The in-house application of "EFLOPS", section VII-B: classifying pictures into very many classes.

The feature extractor, a small convolutional network, is data parallel: its gradients are all-reduced from within
backward. The classifier is model parallel (sharded.py). Batches are prepared by the step itself, or by a thread beside
the step before: then a step ends once the next batch is there, as in the steady state of a long job.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn

from netfold.bench.train.buckets import LEARNING_RATE, Buckets
from netfold.bench.train.laps import BACKWARD, FORWARD, LOADING, UPDATE, Laps
from netfold.bench.train.loader import Loader
from netfold.bench.train.models import SEED
from netfold.bench.train.profiles import Profile
from netfold.bench.train.resnet import convolution
from netfold.bench.train.sharded import Exchange, GatherFeatures, ShardedCrossEntropy
from netfold.bench.train.workload import finish

CHANNELS = (32, 64, 128, 256)


def feature_extractor(features: int) -> nn.Sequential:
    """float32[n, 3, h, w] -> float32[n, features]: four halvings of the picture, then its mean."""
    layers: list[nn.Module] = []
    inputs = 3
    for channels in CHANNELS:
        layers += [convolution(inputs, channels, 3, stride=2), nn.ReLU(inplace=True)]
        layers += [convolution(channels, channels, 3), nn.ReLU(inplace=True)]
        inputs = channels
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, features))


def classes_of(rank: int, classes: int, world: int) -> range:
    """The classes that a worker holds: neighbours, as evenly as they go."""
    return range(rank * classes // world, (rank + 1) * classes // world)


class ModelParallelFace:
    """One worker's extractor, its part of the classifier and its pictures."""

    def __init__(self, profile: Profile, rank: int) -> None:
        torch.manual_seed(SEED)
        self._world = profile.workers
        self.extractor = feature_extractor(profile.features)
        own = classes_of(rank, profile.classes, profile.workers)
        torch.manual_seed(SEED + 1 + rank)
        self.first_class = own.start
        self.classifier = nn.Linear(profile.features, len(own), bias=False)
        self._classifier_update = torch.optim.SGD(self.classifier.parameters(), lr=LEARNING_RATE)
        self._buckets = Buckets(self.extractor, profile.bucket_bytes, averaged_over=1)  # the loss is all workers' mean
        self._loader = Loader(profile.image, profile.batch, profile.classes, SEED + 1000 + rank)
        self._next = self._loader.prepare()
        self.loaders = frozenset({self._loader.thread_id})
        self.parameters = list(self.extractor.parameters())
        self.gradient_bytes = self._buckets.size_bytes

    def step(self, group: dist.ProcessGroup | None, overlaps: bool, prefetches: bool) -> Laps:
        """One step. Group None: computation alone, the weights stay as they are."""
        in_earnest = group is not None
        self._buckets.exchange_in(group, overlaps)
        laps = Laps()
        following = None
        if prefetches:
            (pictures, labels), following = self._next, self._loader.prefetch()
        else:
            pictures, labels = self._loader.prepare()
        laps.end(LOADING)
        self.loss(pictures, labels, Exchange(group, self._world, laps)).backward()
        laps.end(BACKWARD)
        finish(self._buckets, laps, in_earnest)
        self._update_classifier(in_earnest)
        laps.end(UPDATE)
        if following is not None:
            self._next = following.result()
        laps.end(LOADING)
        return laps

    def loss(self, pictures: torch.Tensor, labels: torch.Tensor, exchange: Exchange) -> torch.Tensor:
        """The mean loss of all workers' samples, told to the laps as forward and exposed."""
        mine = self.extractor(pictures)
        features = GatherFeatures.apply(mine, exchange, FORWARD, BACKWARD)
        with exchange.during(FORWARD):
            everyones = exchange.all_gather(labels)
        logits = self.classifier(features)
        return ShardedCrossEntropy.apply(logits, everyones, self.first_class, exchange, FORWARD)

    def _update_classifier(self, in_earnest: bool) -> None:
        self._classifier_update.param_groups[0]["lr"] = LEARNING_RATE if in_earnest else 0.0
        self._classifier_update.step()
        self._classifier_update.zero_grad(set_to_none=False)

    def close(self) -> None:
        """End the loader's thread."""
        self._loader.close()
