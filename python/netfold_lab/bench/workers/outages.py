"""A worker of `netfold bench outages`: `python -m netfold_lab.bench.workers.outages CONTROL SETUP RANK`.

SETUP is a JSON file: hosts, world, store, switch, hidden, format, timeout_s, status.

It trains a classifier of digits with DistributedDataParallel. Commands:

    -> `train STEPS`     from the same first parameters each time; 0: until the file `status`.stop exists
    <- `done {"ends": [...], "digest": "9f86d081"}`     of CLOCK_MONOTONIC, in seconds, and of the parameters

Rank 0 writes into the file `status`, after each step: the number of the step, and how many switches are lost.
"""

from __future__ import annotations

import json
import os
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import FileStore

from netfold_lab.bench.digits import LEARNING_RATE, MOMENTUM, SEED, load_digits
from netfold_lab.bench.train.worker import digest
from netfold_lab.bench.workers.rank import answer, in_json

BATCH = 16
CLASSES = 10


class Worker:
    """One rank of the training."""

    def __init__(self, setup: dict[str, Any], rank: int) -> None:
        from netfold.torch.backend import backend_of

        os.environ |= {
            "NETFOLD_SWITCH": setup["switch"],
            "NETFOLD_BIND": setup["hosts"][rank],
            "NETFOLD_FORMAT": setup["format"],
            "NETFOLD_LOG": "warning",
        }
        dist.init_process_group(
            "netfold",
            store=FileStore(setup["store"], setup["world"]),
            rank=rank,
            world_size=setup["world"],
            timeout=timedelta(seconds=setup["timeout_s"]),
        )
        group = dist.group.WORLD
        assert group is not None
        self._backend = backend_of(group)
        self._rank = rank
        self._hidden = setup["hidden"]
        self._status = Path(setup["status"])
        self._digits = load_digits()

    def train(self, steps: str) -> dict[str, Any]:
        """Train from the first parameters; returns when each step ended."""
        torch.manual_seed(SEED)
        pictures, labels = self._digits.train_pictures, self._digits.train_labels
        hidden = nn.Linear(self._hidden, self._hidden)
        first, last = nn.Linear(pictures.shape[1], self._hidden), nn.Linear(self._hidden, CLASSES)
        model = nn.parallel.DistributedDataParallel(nn.Sequential(first, nn.ReLU(), hidden, nn.ReLU(), last))
        optimizer = torch.optim.SGD(model.parameters(), LEARNING_RATE, MOMENTUM)
        order = torch.Generator().manual_seed(SEED + self._rank)
        ends: list[float] = []
        while self._goes_on(len(ends), int(steps)):
            batch = torch.randint(len(labels), (BATCH,), generator=order)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(pictures[batch]), labels[batch]).backward()
            optimizer.step()
            ends.append(time.monotonic())
            self._write_status(len(ends))
        return {"ends": ends if self._rank == 0 else [], "digest": digest(model.parameters())}

    def _goes_on(self, done: int, steps: int) -> bool:
        """Whether there is one more step: rank 0 decides for all."""
        if steps:
            return done < steps
        stop = torch.tensor(self._rank == 0 and self._status.with_suffix(".stop").exists(), dtype=torch.int32)
        dist.broadcast(stop, 0)
        return not stop.item()

    def _write_status(self, done: int) -> None:
        if self._rank != 0 or self._backend is None:
            return
        new = self._status.with_suffix(".new")
        new.write_text(f"{done} {self._backend.stats()['lost_switches']}")
        new.replace(self._status)


def main() -> None:
    """Join the group, then answer commands."""
    control, setup_path, rank = sys.argv[1:4]
    torch.set_num_threads(1)
    worker = Worker(json.loads(Path(setup_path).read_text()), int(rank))
    try:
        answer(control, int(rank), in_json({"train": worker.train}))
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
