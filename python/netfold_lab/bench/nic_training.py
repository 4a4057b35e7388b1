"""Trains the digits classifier twice with the same data, ranks and format: with all-reduces in simulated smart NICs,
and in software's ring. Both must end with the same parameters, bit for bit."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

TIMEOUT_S = 900.0


def _train(rank: int, world: int, meeting: str, environment: dict[str, str], steps: int, batch: int) -> dict[str, Any]:
    os.environ.update(environment)
    import torch
    import torch.distributed as dist
    from torch._C._distributed_c10d import FileStore
    from torch.nn.parallel import DistributedDataParallel

    import netfold.torch  # noqa: F401  (registers the backend)
    from netfold.torch.backend import backend_of
    from netfold_lab.bench.digits import accuracy, load_digits, make_classifier, train_steps

    torch.set_num_threads(1)
    store = FileStore(meeting, world)
    dist.init_process_group("netfold", store=store, rank=rank, world_size=world)
    digits = load_digits()
    model = DistributedDataParallel(make_classifier())
    start = time.monotonic()
    loss = train_steps(model, digits, rank, world, steps, batch, on_backward=lambda: None)  # DDP sums during backward
    elapsed_s = time.monotonic() - start
    flat = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    group = dist.group.WORLD
    backend = backend_of(group) if group is not None else None
    said = {
        "parameters": flat.numpy().tobytes(),
        "accuracy": accuracy(model, digits.test_pictures, digits.test_labels),
        "loss": loss,
        "time_s": elapsed_s,
        "stats": backend.stats() if backend is not None else {},
    }
    dist.barrier()
    dist.destroy_process_group()
    return said


def _rank_main(pipe: Connection, *arguments: Any) -> None:
    try:
        pipe.send(_train(*arguments))
    except BaseException as error:
        pipe.send(error)
        raise


def train(nic: str, wire: str, world: int, steps: int, batch: int) -> list[dict[str, Any]]:
    """The result of each rank's training: parameters (bytes), accuracy, loss, time_s, stats. Raises RuntimeError with
    the first rank's error, or if a rank does not end."""
    environment = {"NETFOLD_NIC": nic, "NETFOLD_FORMAT": wire, "NETFOLD_ALGORITHM": "ring"}
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="netfold-nic-training-") as folder:
        ranks = []
        for rank in range(world):
            here, there = context.Pipe(duplex=False)
            arguments = (there, rank, world, str(Path(folder, "store")), environment, steps, batch)
            process = context.Process(target=_rank_main, args=arguments, daemon=True)
            process.start()
            there.close()
            ranks.append((process, here))
        deadline = time.monotonic() + TIMEOUT_S
        said: list[Any] = []
        try:
            for rank, (_, pipe) in enumerate(ranks):
                if not pipe.poll(max(0.0, deadline - time.monotonic())):
                    raise RuntimeError(f"rank {rank} did not end within {TIMEOUT_S:g} s")
                answer = pipe.recv()
                if isinstance(answer, BaseException):
                    raise RuntimeError(f"rank {rank} failed: {answer}") from answer
                said.append(answer)
            for process, _ in ranks:
                process.join(max(0.0, deadline - time.monotonic()))
        finally:
            for process, _ in ranks:
                if process.is_alive():
                    process.kill()
                process.join()
    return said


def compare(wire: str, world: int, steps: int, batch: int) -> dict[str, Any]:
    """Train both ways. `same`: whether all ranks of both ended with the same bits."""
    nics = train("simulated", wire, world, steps, batch)
    software = train("", wire, world, steps, batch)
    first = nics[0]["parameters"]
    stats = nics[0]["stats"]
    return {
        "system": "netfold",
        "algorithm": "ring",
        "format": wire,
        "world": world,
        "steps": steps,
        "parameters": len(first) // 4,
        "same": all(rank["parameters"] == first for rank in [*nics, *software]),
        "accuracy": nics[0]["accuracy"],
        "loss": nics[0]["loss"],
        "time_s": nics[0]["time_s"],
        "software_time_s": software[0]["time_s"],
        "nic_cycles": stats["nic_cycles"],
        "nic_cycles_per_s": stats["nic_cycles_per_s"],
        "nic_time_200_mhz_s": stats["nic_time_200_mhz_s"],
        "nic_requests": stats["nic_requests"],
    }
