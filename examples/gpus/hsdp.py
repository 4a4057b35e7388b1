"""Sharded in a machine, replicated between machines: Netfold is the backend of the mesh dimension "replicate".

Torch 2.14 or newer. REPLICAS is the number of machines.

REPLICAS=2 torchrun --nproc-per-node 4 examples/gpus/hsdp.py
"""

from __future__ import annotations

import os

import torch.distributed as dist
from task import make_model, own_device, train
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def main() -> None:
    """NCCL (on CPUs: Gloo) shards in the machine, Netfold sums between machines."""
    device = own_device()
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    replicas = int(os.environ["REPLICAS"])
    mesh = init_device_mesh(
        device.type,
        (replicas, dist.get_world_size() // replicas),
        mesh_dim_names=("replicate", "shard"),
        backend_override={"replicate": "netfold"},
    )
    model = make_model(device)
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    train(model, device)
    dist.destroy_process_group()


main()
