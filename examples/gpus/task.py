"""The task of the examples in this folder: a small network learns a sum, on GPUs or on CPUs."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
from torch import nn

STEPS = 40


def own_device() -> torch.device:
    """The GPU of this rank on its machine, or the CPU of a machine without GPUs."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    return device


def make_model(device: torch.device) -> nn.Sequential:
    """The same network on every rank."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 1)).to(device)


def train(model: nn.Module, device: torch.device) -> None:
    """Train on data of this rank's own; rank 0 prints the first and the last loss."""
    torch.manual_seed(1 + dist.get_rank())
    inputs = torch.randn(256, 64, device=device)
    wanted = inputs.sum(1, keepdim=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = (model(inputs) - wanted).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    if dist.get_rank() == 0:
        print(f"loss {losses[0]:.3f} at first, {losses[-1]:.3f} after {STEPS} steps")
