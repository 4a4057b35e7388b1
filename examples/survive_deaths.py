"""Training that goes on when a worker dies, and takes in workers that come, with torchft and Netfold.

    pip install 'netfold[torchft,demo]'
    torchft_lighthouse --min_replicas 1 --join_timeout_ms 1000                              # once
    TORCHFT_LIGHTHOUSE=http://10.0.0.5:29510 torchrun --nproc-per-node 1 examples/survive_deaths.py --replica 0
    TORCHFT_LIGHTHOUSE=http://10.0.0.5:29510 torchrun --nproc-per-node 1 examples/survive_deaths.py --replica 1

Kill a worker and start it again: it takes the parameters from another one. docs/how-to/survive-failures.md says more.
"""

from __future__ import annotations

import argparse
import zlib
from datetime import timedelta
from typing import Any

import torch
from sklearn.datasets import load_digits
from torch import nn
from torchft import Manager
from torchft.ddp import DistributedDataParallel
from torchft.optim import OptimizerWrapper

from netfold.torchft import ProcessGroupNetfold

BATCH = 32


def main() -> None:
    """Train for a number of steps, and print a line for each."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--replica", type=int, required=True)
    parser.add_argument("--steps", type=int, default=200)
    arguments = parser.parse_args()

    digits = load_digits()
    pictures = torch.as_tensor((digits.data - digits.data.mean()) / digits.data.std()).float()
    labels = torch.as_tensor(digits.target).long()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def state() -> dict[str, Any]:
        return {"model": model.state_dict(), "optimizer": optimizer.state_dict()}

    def load(state: dict[str, Any]) -> None:
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])

    manager = Manager(
        pg=ProcessGroupNetfold(timeout=timedelta(seconds=20)),
        min_replica_size=1,
        load_state_dict=load,
        state_dict=state,
        replica_id=f"replica_{arguments.replica}",
        timeout=timedelta(seconds=20),
    )
    managed = DistributedDataParallel(manager, model)
    managed_optimizer = OptimizerWrapper(manager, optimizer)
    while manager.current_step() < arguments.steps:
        step = manager.current_step()
        # A batch for this step and replica: one that joins later begins with the batches of that time.
        order = torch.Generator().manual_seed(step * 1000 + arguments.replica)
        batch = torch.randint(len(labels), (BATCH,), generator=order)
        managed_optimizer.zero_grad()
        loss = nn.functional.cross_entropy(managed(pictures[batch]), labels[batch])
        loss.backward()
        managed_optimizer.step()
        done, replicas = manager.current_step(), manager.num_participants()
        bits = zlib.crc32(b"".join(each.detach().numpy().tobytes() for each in model.parameters()))
        print(
            f"step {done}: {'' if done > step else 'not '}committed by {replicas} replicas, "
            f"loss {loss.item():.4f}, parameters {bits:08x}",
            flush=True,
        )
    manager.shutdown(wait=False)


if __name__ == "__main__":
    main()
