"""The task of the examples in this folder: a small classifier of scikit-learn's handwritten digits."""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset


def make_data() -> TensorDataset:
    """Pictures float32[1797, 64] and labels int64[1797]."""
    digits = load_digits()
    pictures = torch.as_tensor((digits.data - digits.data.mean()) / digits.data.std()).float()
    return TensorDataset(pictures, torch.as_tensor(digits.target).long())


def make_model() -> nn.Sequential:
    """The same on every rank."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
