"""The demo: trains a real classifier three times, twice with gradients folded in the network and once with Gloo."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from netfold_lab.demo.report import Run, make_run
from netfold_lab.demo.workers import run_workers

__all__ = ["TRIALS", "Trial", "machine_name", "train_all"]


@dataclass(frozen=True)
class Trial:
    """One run: its name, torch's backend, the algorithm and the wire format."""

    name: str
    backend: str
    algorithm: str
    format: str


TRIALS = (
    Trial("Netfold, fp32", "netfold", "in-network", "fp32"),
    Trial("Netfold, bfp16", "netfold", "in-network", "bfp"),
    Trial("Gloo, fp32", "gloo", "ring", "fp32"),
)

Progress = Callable[[Trial, dict[str, Any] | None], None]


def train_all(workers: int, epochs: int, batch: int, progress: Progress) -> list[Run]:
    """Run every trial, one after the other, through a switch in this process.

    `progress` is called with (trial, None) when a run starts, then with (trial, {"epoch", "loss", ...}) at each of rank
    0's steps. Raises WorkerFailed with the end of a worker's output.
    """
    from netfold import _core

    switch = _core.Switch("127.0.0.1:0")
    try:
        return [_train(trial, switch.address, workers, epochs, batch, progress) for trial in TRIALS]
    finally:
        switch.close()


def _train(trial: Trial, switch: str, workers: int, epochs: int, batch: int, progress: Progress) -> Run:
    environment = {}
    if trial.backend == "netfold":  # on one machine `auto` would use shared memory, not the switch
        settings = {"SWITCH": switch, "ALGORITHM": trial.algorithm, "FORMAT": trial.format}
        environment = {f"NETFOLD_{name}": value for name, value in settings.items()}
    progress(trial, None)
    results = run_workers(trial.backend, workers, epochs, batch, environment, lambda event: progress(trial, event))
    return make_run(trial.name, trial.backend, trial.algorithm, trial.format, results)


def machine_name() -> str:
    """The machine in a few words: processor architecture, cores, system."""
    return f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()} {platform.release()}"
