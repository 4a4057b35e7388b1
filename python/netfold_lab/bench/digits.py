"""A small classifier of scikit-learn's handwritten digits, the same on every rank. The demo trains it.

The data are 1797 grey pictures of 8x8 pixels in ten classes. A fixed fifth is for the test. Each worker trains on its
own share of the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import nn

HIDDEN = 256
SEED = 7
LEARNING_RATE = 0.05
MOMENTUM = 0.9


@dataclass(frozen=True)
class Digits:
    """Pictures are float32[n, 64] with mean 0 and deviation 1 over the training pictures; labels are int64[n]."""

    train_pictures: torch.Tensor
    train_labels: torch.Tensor
    test_pictures: torch.Tensor
    test_labels: torch.Tensor


def load_digits() -> Digits:
    """The digits, split by a fixed seed."""
    from sklearn import datasets, model_selection

    digits = datasets.load_digits()
    split = model_selection.train_test_split(
        digits.data, digits.target, test_size=0.2, random_state=SEED, stratify=digits.target
    )
    train_x, test_x, train_y, test_y = (torch.as_tensor(part) for part in split)
    mean, deviation = train_x.mean(), train_x.std()
    train_x, test_x = ((part - mean) / deviation for part in (train_x, test_x))
    return Digits(train_x.float(), train_y.long(), test_x.float(), test_y.long())


def make_classifier(seed: int = SEED) -> nn.Module:
    """A perceptron of three hidden layers, 151k parameters, the same weights on every call with the same seed."""
    torch.manual_seed(seed)
    widths = (64, HIDDEN, HIDDEN, HIDDEN)
    hidden = [layer for i, o in pairwise(widths) for layer in (nn.Linear(i, o), nn.ReLU())]
    return nn.Sequential(*hidden, nn.Linear(HIDDEN, 10))


def batches(count: int, rank: int, world: int, batch: int, epoch: int) -> list[torch.Tensor]:
    """Index tensors (int64[batch]) of this rank's batches in one epoch. Every rank gets the same number, and no picture
    twice."""
    order = torch.randperm(count, generator=torch.Generator().manual_seed(SEED * 1000 + epoch))
    share = count // world
    mine = order[rank * share : (rank + 1) * share]
    return [mine[start : start + batch] for start in range(0, share - batch + 1, batch)]


def train_steps(
    model: nn.Module, digits: Digits, rank: int, world: int, steps: int, batch: int, on_backward: Callable[[], None]
) -> float:
    """Run `steps` steps of SGD on this rank's batches; returns the last loss. `on_backward` is called between backward
    and update. It sums the gradients, unless the model has done so."""
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
    done, epoch, loss = 0, 0, torch.zeros(())
    while done < steps:
        for indices in batches(len(digits.train_labels), rank, world, batch, epoch)[: steps - done]:
            loss = nn.functional.cross_entropy(model(digits.train_pictures[indices]), digits.train_labels[indices])
            optimizer.zero_grad()
            loss.backward()
            on_backward()
            optimizer.step()
            done += 1
        epoch += 1
    return loss.item()


@torch.no_grad()
def accuracy(classifier: nn.Module, pictures: torch.Tensor, labels: torch.Tensor) -> float:
    """Share of pictures that are classified correctly, 0 to 1."""
    return float((classifier(pictures).argmax(dim=1) == labels).float().mean())
