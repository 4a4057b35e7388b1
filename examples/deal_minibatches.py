"""A host deals out minibatches and hears when the gradients of its workers are summed; it receives no gradient.

    netfold switch --bind 127.0.0.1 --port 7171 &
    torchrun --nproc-per-node 4 examples/deal_minibatches.py 127.0.0.1:7171    # rank 0 is the host, three workers

This is case 1 of "An In-Network Parameter Aggregation using DPDK". The workers join a job at the switch, and the host
joins it as its observer. With `netfold switch --dpdk` the host may be behind any port.
"""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn

import netfold.torch
from netfold import _core

STEPS, BATCH = 60, 32
JOB = "minibatches"


def data() -> tuple[torch.Tensor, torch.Tensor]:
    """The pictures and their labels; every process has them, and the host says which to use."""
    digits = load_digits()
    return torch.as_tensor(digits.data / 16).float(), torch.as_tensor(digits.target).long()


def model() -> nn.Module:
    """The same parameters in every process."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))


def deal(switch: str, workers: int) -> None:
    """The host: a minibatch for each worker, then the next ones once the switch has summed their gradients."""
    pictures, _ = data()
    count = sum(parameter.numel() for parameter in model().parameters())
    observer = _core.AggregationObserver(switch, JOB, workers)
    heard = 0
    for _ in range(STEPS):
        summed = observer.expect(count)
        for worker in range(1, workers + 1):
            dist.send(torch.randint(len(pictures), (BATCH,)), worker)
        observer.wait(summed)
        heard += 1
    print(f"host: {heard} tensors summed, no gradient received")
    observer.close()


def work(switch: str, workers: int) -> None:
    """A worker: compute the gradient of the minibatch that the host sends, and average it over the workers."""
    pictures, labels = data()
    net = model()
    parameters = list(net.parameters())
    optimizer = torch.optim.SGD(parameters, lr=0.2, momentum=0.9)
    group = _core.SwitchGroup(switch, JOB, workers, dist.get_rank() - 1, hosted=True)
    chosen = torch.zeros(BATCH, dtype=torch.long)
    for _ in range(STEPS):
        dist.recv(chosen, 0)
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(pictures[chosen]), labels[chosen]).backward()
        gradient = torch.cat([parameter.grad.flatten() for parameter in parameters])
        address = gradient.data_ptr()
        group.wait(group.all_reduce(address, address, gradient.numel(), "fp32", "fp32", average=True))
        parts = gradient.split([parameter.numel() for parameter in parameters])
        for parameter, part in zip(parameters, parts, strict=True):
            parameter.grad.copy_(part.view_as(parameter))
        optimizer.step()
    if dist.get_rank() == 1:
        with torch.no_grad():
            right = (net(pictures).argmax(dim=1) == labels).float().mean().item()
        print(f"accuracy {right:.1%} with {workers} workers")
    group.close()


def main() -> None:
    """Rank 0 is the host."""
    switch = sys.argv[1]
    dist.init_process_group("netfold", pg_options=netfold.torch.Options(algorithm="auto"))
    run = deal if dist.get_rank() == 0 else work
    run(switch, dist.get_world_size() - 1)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
