"""Runs a function on every rank of a process group, each rank a process of its own, with bounded time.

Ranks are forked from a server that has torch loaded already, so a test costs about a second.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

_context = multiprocessing.get_context("forkserver")
# DDP loads dynamo, which takes seconds: once here, not in every rank.
_context.set_forkserver_preload(["torch._dynamo", "torch.distributed.fsdp", "netfold.torch"])


@dataclass(frozen=True)
class Outcome:
    """The end of a rank: the result of the body or the traceback of its exception, its exit status, and the time."""

    value: Any
    error: str
    exit_status: int | None
    ended_at: float


def run_ranks(
    body: Callable[..., Any],
    *arguments: Any,
    world: int = 2,
    backend: str = "netfold",
    environment: dict[str, str] | None = None,
    timeout_s: float = 60.0,
    joins: bool = True,
) -> list[Outcome]:
    """Call `body(rank, *arguments)` on `world` ranks inside a process group; returns their outcomes by rank.

    With joins=False the body makes the process group itself, of the store file that comes as its second argument.
    Ranks that have not ended after `timeout_s` seconds are killed and have exit status None.
    """
    with tempfile.TemporaryDirectory(prefix="netfold-ranks-") as folder:
        meeting = str(Path(folder, "store"))
        ranks = []
        for rank in range(world):
            here, there = _context.Pipe(duplex=False)
            settings = (backend, meeting, world, environment or {}, joins)
            process = _context.Process(target=_rank_main, args=(there, body, rank, settings, arguments), daemon=True)
            process.start()
            there.close()
            ranks.append((process, here))
        deadline = time.monotonic() + timeout_s
        answers = [_answer(pipe, deadline) for _, pipe in ranks]  # all of them first: a full pipe holds a rank up
        return [
            Outcome(*answer[:2], _end(process, deadline), answer[2])
            for (process, _), answer in zip(ranks, answers, strict=True)
        ]


def values(outcomes: list[Outcome]) -> list[Any]:
    """The result of every rank; fails with the traceback of a rank that failed."""
    for rank, outcome in enumerate(outcomes):
        assert not outcome.error, f"rank {rank}:\n{outcome.error}"
        assert outcome.exit_status == 0, f"rank {rank} ended with {outcome.exit_status}"
    return [outcome.value for outcome in outcomes]


def open_sockets() -> set[str]:
    """The sockets that this process has open, by their names in /proc."""
    found = set()
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # the directory's own descriptor is closed by now
            found.add(str(each.readlink()))
    return {each for each in found if each.startswith("socket:")}


def _answer(pipe: Connection, deadline: float) -> tuple[Any, str, float]:
    try:
        if pipe.poll(max(0.0, deadline - time.monotonic())):
            return pipe.recv()
    except EOFError:
        return None, "", time.monotonic()
    return None, "no answer in time", time.monotonic()


def _end(process: Any, deadline: float) -> int | None:
    process.join(max(0.1, deadline - time.monotonic()))
    exit_status = process.exitcode
    if exit_status is None:
        process.kill()
        process.join()
    return exit_status


def _rank_main(
    pipe: Connection, body: Callable[..., Any], rank: int, settings: tuple, arguments: tuple[Any, ...]
) -> None:
    import torch
    import torch.distributed as dist

    backend, meeting, world, environment, joins = settings
    for name in [name for name in os.environ if name.startswith("NETFOLD_")]:
        del os.environ[name]
    os.environ.update({"NETFOLD_ALGORITHM": "in-network", **environment})  # what most tests are about
    torch.set_num_threads(1)
    torch.manual_seed(0)
    value, error = None, ""
    try:
        if joins:
            dist.init_process_group(
                backend,
                init_method=f"file://{meeting}",
                rank=rank,
                world_size=world,
                timeout=timedelta(seconds=30),
            )
            value = body(rank, *arguments)
        else:
            value = body(rank, meeting, *arguments)
    except BaseException:
        error = traceback.format_exc()
    pipe.send((value, error, time.monotonic()))
    if dist.is_initialized():
        dist.destroy_process_group()
