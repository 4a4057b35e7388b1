"""Data parallel training: a communication hook of DDP averages the gradients with Netfold. Torch 2.4 or newer.

torchrun --nproc-per-node 4 examples/gpus/ddp_hook.py
"""

from __future__ import annotations

import torch.distributed as dist
from task import make_model, own_device, train
from torch.nn.parallel import DistributedDataParallel

import netfold.torch


def main() -> None:
    """Train with NCCL (on CPUs: Gloo) for all that DDP does beside the gradients."""
    device = own_device()
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    with netfold.torch.connect() as group:
        model = DistributedDataParallel(make_model(device))
        model.register_comm_hook(group, netfold.torch.fold_hook)
        train(model, device)
    dist.destroy_process_group()


main()
