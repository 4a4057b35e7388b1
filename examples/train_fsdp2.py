"""Trains with FSDP2 (`fully_shard`), and says how long the passes of a step take and what crosses the network.

    torchrun --nproc-per-node 4 examples/train_fsdp2.py
    NETFOLD_SWITCH=10.0.0.5:7171 torchrun ... examples/train_fsdp2.py --interface eth0    # on each worker

In the backward pass FSDP gathers the parameters of the next layer while it scatters the gradients of this one. With a
switch, Netfold then sends both through the switch, at the same time. The model has 25.6 million parameters, as
ResNet-50 has, in 10 layers.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

import netfold.torch  # noqa: F401  (registers the backend)

LAYERS, WIDTH, BATCH = 10, 1600, 4


def sharded_model(layers: int, width: int) -> nn.Sequential:
    """Layers of `width` x `width` parameters, each sharded by itself over all ranks."""
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(layers)))
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    # On a GPU the all-gather of the next layer runs on a stream of its own. On a CPU it must be asked not to block.
    model._set_unshard_async_op(True)
    return model


def bytes_of(interface: str) -> list[int]:
    """The bytes that the interface has sent and received; without an interface, none."""
    counters = Path("/sys/class/net") / interface / "statistics"
    return [int((counters / name).read_text()) for name in ("tx_bytes", "rx_bytes")] if interface else [0, 0]


def main() -> None:
    """Train, and print a line of JSON on rank 0: seconds of the slowest rank, and bytes of rank 0, for each step."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--backend", default="netfold")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--layers", type=int, default=LAYERS)
    parser.add_argument("--width", type=int, default=WIDTH)
    parser.add_argument("--interface", default="", help="count the bytes of this interface")
    arguments = parser.parse_args()
    dist.init_process_group(arguments.backend)
    model = sharded_model(arguments.layers, arguments.width)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    steps = []
    for step in range(arguments.steps):
        torch.manual_seed(step * dist.get_world_size() + dist.get_rank())
        inputs = torch.randn(BATCH, arguments.width)
        dist.barrier()
        sent, received = bytes_of(arguments.interface)
        start = time.perf_counter()
        loss = model(inputs).square().mean()
        forward = time.perf_counter()
        loss.backward()
        end = time.perf_counter()
        optimizer.step()
        optimizer.zero_grad()
        slowest = torch.tensor([forward - start, end - forward, end - start])
        dist.all_reduce(slowest, dist.ReduceOp.MAX)
        mean_loss = loss.detach() / dist.get_world_size()
        dist.all_reduce(mean_loss)
        now_sent, now_received = bytes_of(arguments.interface)
        names = ("forward_s", "backward_s", "step_s")
        steps.append({name: round(seconds, 4) for name, seconds in zip(names, slowest.tolist(), strict=True)})
        steps[-1].update(sent_bytes=now_sent - sent, received_bytes=now_received - received)
    if dist.get_rank() == 0:
        later = steps[len(steps) // 2 :]
        medians = {name: statistics.median(each[name] for each in later) for name in steps[0]}
        print(json.dumps({"steps": steps, "median_of_later_half": medians, "loss": mean_loss.item()}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
