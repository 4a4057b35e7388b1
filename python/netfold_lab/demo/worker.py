"""The workers of the demo: `python -m netfold_lab.demo.worker BACKEND EPOCHS BATCH FOLDER PIPE...`, a pipe each.

Each trains with DDP and writes JSON lines to its pipe: rank 0 writes {"event": "step", ...} at each step, and every
rank {"event": "result", ...} at the end. FOLDER is where they meet, and where their errors go. PyTorch is
imported once: then the process forks.
"""

from __future__ import annotations

import hashlib
import json
import os
import statistics
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any, TextIO

import torch
import torch._dynamo  # each rank's optimizer would import it
import torch.distributed as dist
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from netfold_lab.bench.digits import Digits, accuracy, batches, load_digits, make_classifier
from netfold_lab.demo.stopwatch import Step, Stopwatch
from netfold_lab.demo.traffic import Traffic, client_traffic, tcp_traffic
from netfold_lab.demo.workers import errors_of

BUCKET_MIB = 0.1  # so that even this small model has several buckets to overlap
WARM_UP_STEPS = 5


def _traffic() -> Traffic:
    assert dist.group.WORLD is not None
    backend: Any = dist.group.WORLD._get_backend(torch.device("cpu"))
    folded = client_traffic(backend.stats()) if dist.get_backend() == "netfold" else Traffic()
    return folded + tcp_traffic()


def digest(model: torch.nn.Module) -> str:
    """SHA-256 of the parameters' bytes: equal only if every bit is equal."""
    return hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()


def train(digits: Digits, epochs: int, batch: int, steps_to: TextIO | None) -> dict[str, Any]:
    """Train in the default group; returns losses, test accuracy, steps and traffic of this rank."""
    rank, world = dist.get_rank(), dist.get_world_size()
    stopwatch = Stopwatch()
    model = DistributedDataParallel(make_classifier(), bucket_cap_mb=BUCKET_MIB)
    model.register_comm_hook(None, stopwatch.hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses: list[float] = []
    steps: list[Step] = []
    dist.barrier()
    before = _traffic()
    for epoch in range(epochs):
        for chosen in batches(len(digits.train_labels), rank, world, batch, epoch):
            stopwatch.begin()
            loss = functional.cross_entropy(model(digits.train_pictures[chosen]), digits.train_labels[chosen])
            stopwatch.span("forward", 0.0)
            at = stopwatch.now()
            loss.backward()
            stopwatch.span("backward", at)
            at = stopwatch.now()
            optimizer.step()
            optimizer.zero_grad()
            stopwatch.span("optimizer", at)
            steps.append(stopwatch.end())
            losses.append(loss.item())
            if steps_to is not None:
                print(json.dumps({"event": "step", "epoch": epoch, "loss": losses[-1]}), file=steps_to, flush=True)
    spent = _traffic() - before
    dist.barrier()  # a rank that leaves closes connections whose bytes the others have yet to read
    steady = steps[WARM_UP_STEPS:] or steps
    typical = sorted(steady, key=lambda step: step.time_s)[len(steady) // 2]
    return {
        "losses": losses,
        "test_accuracy": accuracy(model.module, digits.test_pictures, digits.test_labels),
        "parameter_bytes": sum(p.numel() * p.element_size() for p in model.parameters()),
        "digest": digest(model),
        "step_time_s": [step.time_s for step in steady],
        "exposed_s_median": statistics.median(step.exposed_s for step in steady),
        "typical_step": typical.as_dict(),
        "sent_bytes_per_step": spent.sent_bytes / len(steps),
        "received_bytes_per_step": spent.received_bytes / len(steps),
    }


def work(
    digits: Digits, backend: str, epochs: int, batch: int, folder: Path, rank: int, world: int, told: TextIO
) -> None:
    """Join, train, tell the result, leave."""
    os.dup2(os.open(errors_of(folder, rank), os.O_WRONLY | os.O_CREAT), sys.stderr.fileno())
    torch.set_num_threads(1)
    meeting = f"file://{folder}/store"
    dist.init_process_group(backend, init_method=meeting, rank=rank, world_size=world, timeout=timedelta(seconds=60))
    result = train(digits, epochs, batch, told if rank == 0 else None)
    print(json.dumps({"event": "result", "rank": rank, **result}), file=told, flush=True)
    dist.destroy_process_group()


def main() -> None:
    """Fork a rank for each pipe, and wait for all."""
    backend, epochs, batch, folder, *pipes = sys.argv[1:]
    digits = load_digits()
    for rank, pipe in enumerate(pipes):
        if os.fork() == 0:
            for other in pipes[rank + 1 :]:
                os.close(int(other))
            with os.fdopen(int(pipe), "w") as told:
                work(digits, backend, int(epochs), int(batch), Path(folder), rank, len(pipes), told)
            return
        os.close(int(pipe))
    for _ in pipes:
        os.wait()


if __name__ == "__main__":
    main()
