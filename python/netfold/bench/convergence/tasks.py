"""What is learned: handwritten digits by a small perceptron, and the answers of a random teacher by a deeper one."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import nn

from netfold.bench import digits
from netfold.lab.errors import UsageError

DIGITS, MLP = NAMES = ("digits", "mlp")
TEACHER_SEED = 17
INPUTS, CLASSES = 24, 8
TRAIN, TEST = 6000, 2000
WIDTH, HIDDEN_LAYERS = 96, 6


@dataclass(frozen=True)
class Task:
    """Inputs float32[n, k] and classes int64[n], to train on and to test with; a fresh model of this seed."""

    train_inputs: torch.Tensor
    train_classes: torch.Tensor
    test_inputs: torch.Tensor
    test_classes: torch.Tensor
    model: nn.Module


def check(name: str) -> None:
    """Raises UsageError for a task that is unknown, or needs what is not installed."""
    if name not in NAMES:
        raise UsageError(f"--task is one of {', '.join(NAMES)}, not {name}")
    if name == DIGITS and importlib.util.find_spec("sklearn") is None:
        raise UsageError(f"the digits come with scikit-learn, which `make setup` installs; or take --task {MLP}")


def _stack(*widths: int) -> nn.Sequential:
    layers = [layer for i, o in pairwise(widths) for layer in (nn.Linear(i, o), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


def _teacher() -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs and the class that a random perceptron of one hidden layer gives each."""
    torch.manual_seed(TEACHER_SEED)
    teacher = _stack(INPUTS, 4 * INPUTS, CLASSES)
    inputs = torch.randn(TRAIN + TEST, INPUTS)
    with torch.no_grad():
        outputs = teacher(inputs)
        return inputs, ((outputs - outputs.mean(0)) / outputs.std(0)).argmax(dim=1)


def make_task(name: str, seed: int) -> Task:
    """The same on every rank. The seed is the model's; the data are always the same."""
    if name == DIGITS:
        found = digits.load_digits()
        model = digits.make_classifier(seed)
        return Task(found.train_pictures, found.train_labels, found.test_pictures, found.test_labels, model)
    inputs, classes = _teacher()
    torch.manual_seed(seed)
    model = _stack(INPUTS, *[WIDTH] * HIDDEN_LAYERS, CLASSES)
    return Task(inputs[:TRAIN], classes[:TRAIN], inputs[TRAIN:], classes[TRAIN:], model)
