"""The models to train: the paper's multi-layer perceptron and ResNet-50, with a constant batch of synthetic data."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

from netfold_lab.bench.train.profiles import Profile
from netfold_lab.bench.train.resnet import resnet50

SEED = 11
CLASSES = 1000


@dataclass
class Task:
    """A model, this worker's batch of inputs and targets, and the loss."""

    model: nn.Module
    inputs: torch.Tensor
    targets: torch.Tensor

    def loss(self) -> torch.Tensor:
        """Mean squared error, or cross-entropy if the targets are classes."""
        outputs = self.model(self.inputs)
        distance = functional.mse_loss if self.targets.is_floating_point() else functional.cross_entropy
        return distance(outputs, self.targets)


def perceptron(layers: int, width: int) -> nn.Sequential:
    """`layers` square matrices without biases, a ReLU after each ("AI Smart NICs", section III)."""
    stack: list[nn.Module] = []
    for _ in range(layers):
        linear = nn.Linear(width, width, bias=False)
        nn.init.kaiming_normal_(linear.weight, nonlinearity="relu")
        stack += [linear, nn.ReLU()]
    return nn.Sequential(*stack)


def make_task(profile: Profile, rank: int) -> Task:
    """The model: the same weights on every rank, and a batch of its own on each."""
    torch.manual_seed(SEED)
    if profile.model == "mlp":
        model: nn.Module = perceptron(profile.layers, profile.width)
        shape: tuple[int, ...] = (profile.batch, profile.width)
    else:
        model = resnet50(CLASSES)
        shape = (profile.batch, 3, profile.image, profile.image)
    generator = torch.Generator().manual_seed(SEED + 1 + rank)
    inputs = torch.randn(shape, generator=generator)
    if profile.model == "mlp":
        return Task(model, inputs, torch.randn(shape, generator=generator))
    return Task(model, inputs, torch.randint(CLASSES, (profile.batch,), generator=generator))
