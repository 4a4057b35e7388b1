"""Training tasks: a small perceptron learns handwritten digits; a deeper one learns the answers of a random teacher."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import nn

from netfold_lab.bench import digits
from netfold_lab.errors import UsageError
from netfold_lab.packages import need

DIGITS, MLP = NAMES = ("digits", "mlp")
TEACHER_SEED = 17
INPUTS, CLASSES = 24, 8
TRAIN, TEST = 6000, 2000
WIDTH, HIDDEN_LAYERS = 96, 6


@dataclass(frozen=True)
class Task:
    """Inputs float32[n, k] and classes int64[n], for training and for the test; a new model from a seed."""

    train_inputs: torch.Tensor
    train_classes: torch.Tensor
    test_inputs: torch.Tensor
    test_classes: torch.Tensor
    model: nn.Module


def check(name: str) -> None:
    """Raises UsageError for an unknown task, ModuleNotFoundError if a package is missing."""
    if name not in NAMES:
        raise UsageError(f"--task must be one of {', '.join(NAMES)}, not {name}")
    if name == DIGITS:
        need("sklearn")


def _stack(*widths: int) -> nn.Sequential:
    layers = [layer for i, o in pairwise(widths) for layer in (nn.Linear(i, o), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


def _teacher() -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs, and the class of each by a random perceptron with one hidden layer."""
    torch.manual_seed(TEACHER_SEED)
    teacher = _stack(INPUTS, 4 * INPUTS, CLASSES)
    inputs = torch.randn(TRAIN + TEST, INPUTS)
    with torch.no_grad():
        outputs = teacher(inputs)
        return inputs, ((outputs - outputs.mean(0)) / outputs.std(0)).argmax(dim=1)


def make_task(name: str, seed: int) -> Task:
    """The task; equal on every rank. The seed is for the model; the data are always the same."""
    if name == DIGITS:
        found = digits.load_digits()
        model = digits.make_classifier(seed)
        return Task(found.train_pictures, found.train_labels, found.test_pictures, found.test_labels, model)
    inputs, classes = _teacher()
    torch.manual_seed(seed)
    model = _stack(INPUTS, *[WIDTH] * HIDDEN_LAYERS, CLASSES)
    return Task(inputs[:TRAIN], classes[:TRAIN], inputs[TRAIN:], classes[TRAIN:], model)
