"""The application of "EFLOPS", section VII-B: it classifies pictures into very many classes.

The feature extractor, a small convolutional network, is data parallel: its gradients are all-reduced within backward.
The classifier is model parallel (sharded.py). The step itself prepares its batch, or a thread prepares it during the
step before. Then a step ends when the next batch is ready, as in the steady state of a long job.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn

from netfold_lab.bench.train.buckets import LEARNING_RATE, Buckets
from netfold_lab.bench.train.loader import Loader
from netfold_lab.bench.train.models import SEED
from netfold_lab.bench.train.profiles import Profile
from netfold_lab.bench.train.resnet import convolution
from netfold_lab.bench.train.sharded import Exchange, GatherFeatures, ShardedCrossEntropy
from netfold_lab.bench.train.step_timer import BACKWARD, FORWARD, LOADING, UPDATE, StepTimer
from netfold_lab.bench.train.workload import finish

CHANNELS = (32, 64, 128, 256)


def feature_extractor(features: int) -> nn.Sequential:
    """float32[n, 3, h, w] -> float32[n, features]: halves the picture four times, then takes its mean."""
    layers: list[nn.Module] = []
    inputs = 3
    for channels in CHANNELS:
        layers += [convolution(inputs, channels, 3, stride=2), nn.ReLU(inplace=True)]
        layers += [convolution(channels, channels, 3), nn.ReLU(inplace=True)]
        inputs = channels
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, features))


def classes_of(rank: int, classes: int, world: int) -> range:
    """The range of classes that a worker holds; ranges are as equal as possible."""
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
        self._buckets = Buckets(
            self.extractor, profile.bucket_bytes, averaged_over=1
        )  # the loss is the mean of all workers
        self._loader = Loader(profile.image, profile.batch, profile.classes, SEED + 1000 + rank)
        self._next = self._loader.prepare()
        self.loaders = frozenset({self._loader.thread_id})
        self.parameters = list(self.extractor.parameters())
        self.gradient_bytes = self._buckets.size_bytes

    def step(self, group: dist.ProcessGroup | None, overlaps: bool, prefetches: bool) -> StepTimer:
        """One step. Group None: only computation, and the weights stay."""
        in_earnest = group is not None
        self._buckets.exchange_in(group, overlaps)
        timer = StepTimer()
        following = None
        if prefetches:
            (pictures, labels), following = self._next, self._loader.prefetch()
        else:
            pictures, labels = self._loader.prepare()
        timer.end(LOADING)
        self.loss(pictures, labels, Exchange(group, self._world, timer)).backward()
        timer.end(BACKWARD)
        finish(self._buckets, timer, in_earnest)
        self._update_classifier(in_earnest)
        timer.end(UPDATE)
        if following is not None:
            self._next = following.result()
        timer.end(LOADING)
        return timer

    def loss(self, pictures: torch.Tensor, labels: torch.Tensor, exchange: Exchange) -> torch.Tensor:
        """The mean loss of all workers' samples; the timer counts it as forward and exposed."""
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
