"""Trains every run with every seed to the end, and says how each came along."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from netfold.algorithms import IN_NETWORK
from netfold.bench.convergence import tasks
from netfold.bench.convergence.runs import Run
from netfold.bench.convergence.tasks import DIGITS
from netfold.bench.sites import LocalSite
from netfold.bench.train.crew import Crew, index_of
from netfold.bench.train.variants import Group
from netfold.lab.errors import UsageError

WORKER = "netfold.bench.convergence.worker"
POINTS = 100


@dataclass(frozen=True)
class Plan:
    """What to train, how often and how long. `batch` is a worker's; seeds are 0, 1, ..."""

    runs: tuple[Run, ...]
    task: str = DIGITS
    workers: int = 6
    epochs: int = 40
    batch: int = 16
    seeds: int = 3
    algorithm: str = "ring"
    timeout_s: float = 60.0

    def __post_init__(self) -> None:
        tasks.check(self.task)
        if not 2 <= self.workers <= 64:
            raise UsageError(f"--workers is from 2 to 64, not {self.workers}")
        for name in ("epochs", "batch", "seeds"):
            if getattr(self, name) < 1:
                raise UsageError(f"--{name} is at least 1, not {getattr(self, name)}")

    def steps(self) -> int:
        """Epochs of all runs, for a progress bar."""
        return len(self.runs) * self.seeds * self.epochs


@dataclass
class Course:
    """How one run went with one seed: loss (all workers' mean) and test accuracy of every epoch."""

    loss: list[float]
    accuracy: list[float]
    same_bits: bool


def train_all(plan: Plan, progress: Callable[[str], None]) -> list[dict[str, Any]]:
    """One entry of `results` a run. `progress` hears of every epoch. Raises MeasurementError with a worker's words."""
    groups: list[Group] = []
    told = [{"group": index_of(groups, run.group(plan.algorithm)), "feedback": run.feedback} for run in plan.runs]
    setup = {
        "task": plan.task,
        "batch": plan.batch,
        "runs": told,
        "groups": [{"backend": group.backend, "options": group.options()} for group in groups],
    }
    courses: dict[Run, list[Course]] = {run: [] for run in plan.runs}
    progress("starting every worker")
    with (
        LocalSite(plan.workers) as site,
        Crew(site, WORKER, setup, plan.timeout_s, plan.algorithm == IN_NETWORK) as crew,
    ):
        for seed in range(plan.seeds):
            for number, run in enumerate(plan.runs):
                crew.ask(f"begin {number} {seed}")
                courses[run].append(_train(crew, plan, f"{run.name}, seed {seed}", progress))
    return [_entry(plan, run, courses) for run in plan.runs]


def _train(crew: Crew, plan: Plan, name: str, progress: Callable[[str], None]) -> Course:
    course = Course([], [], False)
    for epoch in range(plan.epochs):
        workers = crew.ask(f"epoch {epoch}")
        course.loss.append(statistics.fmean(one["loss"] for one in workers))
        course.accuracy.append(workers[0]["accuracy"])
        progress(f"{name}: {course.accuracy[-1]:.1%}")
    course.same_bits = len(set(crew.ask("digest"))) == 1
    return course


def _by_epoch(courses: list[list[float]]) -> list[float]:
    return [statistics.fmean(epoch) for epoch in zip(*courses, strict=True)]


def _entry(plan: Plan, run: Run, courses: dict[Run, list[Course]]) -> dict[str, Any]:
    mine, exact = courses[run], courses[plan.runs[0]]
    finals = [course.accuracy[-1] for course in mine]
    away = statistics.fmean(finals) - statistics.fmean(course.accuracy[-1] for course in exact)
    return {
        "name": run.name,
        "system": "netfold",
        "algorithm": plan.algorithm,
        "format": "bfp" if run.mantissa else "fp32",
        "mantissa": run.mantissa or None,
        "error_feedback": run.feedback,
        "workers": plan.workers,
        "accuracy": statistics.fmean(finals),
        "accuracy_of_seeds": finals,
        "points_from_fp32": POINTS * away,
        "loss_last": statistics.fmean(course.loss[-1] for course in mine),
        "accuracy_by_epoch": _by_epoch([course.accuracy for course in mine]),
        "loss_by_epoch": _by_epoch([course.loss for course in mine]),
        "same_bits": all(course.same_bits for course in mine),
    }
