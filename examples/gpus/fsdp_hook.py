"""Sharded in a machine, replicated between machines: FSDP2's all-reduce hook averages the shards with Netfold.

For torch before 2.14; hsdp.py is simpler with a newer one. REPLICAS is the number of machines.

REPLICAS=2 torchrun --nproc-per-node 4 examples/gpus/fsdp_hook.py
"""

from __future__ import annotations

import os

import torch.distributed as dist
from task import make_model, own_device, train
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import netfold.torch


def main() -> None:
    """Each rank folds its shard with the ranks that hold the same shard."""
    device = own_device()
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    replicas = int(os.environ["REPLICAS"])
    shape = (replicas, dist.get_world_size() // replicas)
    mesh = init_device_mesh(device.type, shape, mesh_dim_names=("replicate", "shard"))
    with netfold.torch.connect(mesh.get_group("replicate")) as group:
        model = make_model(device)
        for layer in model:
            fully_shard(layer, mesh=mesh["shard"])
        fully_shard(model, mesh=mesh["shard"])
        netfold.torch.average_shards(model, group)
        train(model, device)
    dist.destroy_process_group()


main()
