"""A worker: `python -m netfold_lab.bench.train.worker CONTROL SETUP RANK`. SETUP is a JSON file with the fields of
workers.Setup.

It joins one process group for each way to communicate, then runs commands:

    -> `step VARIANT START_NS`     VARIANT an index into the setup's; starts at that time of CLOCK_MONOTONIC
    <- `done {"parts": ..., "computed": ..., "cpu": ...}`    seconds, the time when backward ended, CPU seconds
    -> `digest`
    <- `done "9f86d081"`           of the weights: equal on all workers if all folds were equal
    -> `buckets`                   not with the face classifier
    <- `done [[262144, 0.012], ...]`     elements, and seconds from the start of the last backward until it was full
"""

from __future__ import annotations

import json
import os
import sys
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from netfold_lab.bench.train import threads
from netfold_lab.bench.train.groups import join_all
from netfold_lab.bench.train.profiles import Profile
from netfold_lab.bench.train.step_timer import BACKWARD
from netfold_lab.bench.train.workload import DataParallel
from netfold_lab.bench.workers.rank import answer, in_json, sleep_until


def make_workload(profile: Profile, rank: int) -> Any:
    """The step of the profile's model."""
    if profile.model == "face":
        from netfold_lab.bench.train.large_softmax import ModelParallelFace

        return ModelParallelFace(profile, rank)
    return DataParallel(profile, rank)


def digest(parameters: Iterable[torch.Tensor]) -> str:
    """A checksum of the bits of all parameters."""
    total = 0
    for parameter in parameters:
        total = zlib.crc32(parameter.detach().numpy().reshape(-1).view("u1").data, total)
    return f"{total:08x}"


@contextmanager
def only_on(cores: list[int]) -> Iterator[None]:
    """Pin the calling thread, which computes, to these cores; empty: do not change it."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores or before)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


class Worker:
    """Answers the coordinator's commands."""

    def __init__(self, setup: dict[str, Any], rank: int) -> None:
        self._rank = rank
        self._variants = setup["variants"]
        self._groups = join_all(setup, rank)
        self._workload = make_workload(Profile(**setup["profile"]), rank)

    def step(self, variant: str, start_ns: str) -> dict[str, Any]:
        """Run one step of a variant, at the common start time; returns its parts."""
        return self._step(self._variants[int(variant)], int(start_ns))

    def size(self) -> int:
        """Bytes of all gradients."""
        return self._workload.gradient_bytes

    def digest(self) -> str:
        """The digest of the parameters."""
        return digest(self._workload.parameters)

    def buckets(self) -> list[tuple[int, float]]:
        """The buckets, and when the last backward filled them."""
        return self._workload.buckets()

    def _cores(self, variant: dict[str, Any]) -> list[int]:
        usable = sorted(os.sched_getaffinity(0))
        return [usable[self._rank % len(usable)]] if variant["spreads"] else variant["compute_cores"]

    def _step(self, variant: dict[str, Any], start_ns: int) -> dict[str, Any]:
        group = self._groups[variant["group"]]
        with only_on(self._cores(variant)):
            before = threads.by_role(self._workload.loaders)  # before the start, so that all workers start at once
            sleep_until(start_ns)
            timer = self._workload.step(group, variant["overlaps"], variant["prefetches"])
            after = threads.by_role(self._workload.loaders)
        spent = {role: asdict(after[role] - before[role]) for role in after}
        return {"parts": timer.seconds, "computed": timer.ended[BACKWARD], "cpu": spent}

    def close(self) -> None:
        """Leave every group."""
        self._workload.close()
        dist.destroy_process_group()


def main() -> None:
    """Join the groups, then answer commands."""
    control, setup_path, rank = sys.argv[1:4]
    torch.set_num_threads(1)
    worker = Worker(json.loads(Path(setup_path).read_text()), int(rank))
    try:
        replies = (worker.step, worker.size, worker.digest, worker.buckets)
        answer(control, int(rank), in_json({each.__name__: each for each in replies}))
    finally:
        worker.close()


if __name__ == "__main__":
    main()
