"""The demo: a real classifier trained three times, with gradients folded in the network and by Gloo."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from netfold.demo.report import Run, make_run
from netfold.demo.workers import run_workers

__all__ = ["PLANS", "Plan", "machine_name", "train_all"]


@dataclass(frozen=True)
class Plan:
    """One run to do: what it is called, torch's backend, the algorithm and the wire format."""

    name: str
    backend: str
    algorithm: str
    format: str


PLANS = (
    Plan("Netfold, fp32", "netfold", "in-network", "fp32"),
    Plan("Netfold, bfp16", "netfold", "in-network", "bfp"),
    Plan("Gloo, fp32", "gloo", "ring", "fp32"),
)

Progress = Callable[[Plan, dict[str, Any] | None], None]


def train_all(workers: int, epochs: int, batch: int, progress: Progress) -> list[Run]:
    """Do every plan, one after the other, through a switch in this process.

    `progress` hears (plan, None) when a run starts, then (plan, {"epoch", "loss", ...}) at each of rank 0's steps.
    Raises WorkerFailed with a worker's last words.
    """
    from netfold import _core

    switch = _core.Switch("127.0.0.1:0")
    try:
        return [_train(plan, switch.address, workers, epochs, batch, progress) for plan in PLANS]
    finally:
        switch.close()


def _train(plan: Plan, switch: str, workers: int, epochs: int, batch: int, progress: Progress) -> Run:
    environment = {"NETFOLD_SWITCH": switch, "NETFOLD_FORMAT": plan.format} if plan.backend == "netfold" else {}
    progress(plan, None)
    results = run_workers(plan.backend, workers, epochs, batch, environment, lambda event: progress(plan, event))
    return make_run(plan.name, plan.backend, plan.algorithm, plan.format, results)


def machine_name() -> str:
    """The machine in a few words: processor architecture, cores, system."""
    return f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()} {platform.release()}"
