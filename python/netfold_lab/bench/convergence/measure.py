"""Trains every run with every seed to the end, and reports loss and accuracy."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from netfold.algorithms import WITH_SWITCH
from netfold_lab.bench.convergence import tasks
from netfold_lab.bench.convergence.runs import Run
from netfold_lab.bench.convergence.tasks import DIGITS
from netfold_lab.bench.sites import LocalSite
from netfold_lab.bench.train.variants import Group
from netfold_lab.bench.train.workers import Workers, index_of
from netfold_lab.errors import UsageError

WORKER = "netfold_lab.bench.convergence.worker"
POINTS = 100


@dataclass(frozen=True)
class ConvergenceSettings:
    """Settings: the task, and how often and how long to train. `batch` is per worker; seeds are 0, 1, ..."""

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
            raise UsageError(f"--workers must be from 2 to 64, not {self.workers}")
        for name in ("epochs", "batch", "seeds"):
            if getattr(self, name) < 1:
                raise UsageError(f"--{name} must be at least 1, not {getattr(self, name)}")

    def steps(self) -> int:
        """The number of epochs of all runs, for a progress bar."""
        return len(self.runs) * self.seeds * self.epochs


@dataclass
class Course:
    """The results of one run with one seed: loss (mean of all workers) and test accuracy of every epoch."""

    loss: list[float]
    accuracy: list[float]
    same_bits: bool


def train_all(settings: ConvergenceSettings, progress: Callable[[str], None]) -> list[dict[str, Any]]:
    """Returns one entry of `results` for each run. Calls `progress` at every epoch. Raises MeasurementError with a
    worker's message."""
    groups: list[Group] = []
    told = [
        {"group": index_of(groups, run.group(settings.algorithm)), "feedback": run.feedback} for run in settings.runs
    ]
    setup = {
        "task": settings.task,
        "batch": settings.batch,
        "runs": told,
        "groups": [{"backend": group.backend, "options": group.options()} for group in groups],
    }
    courses: dict[Run, list[Course]] = {run: [] for run in settings.runs}
    progress("starting every worker")
    with (
        LocalSite(settings.workers) as site,
        Workers(site, WORKER, setup, settings.timeout_s, settings.algorithm in WITH_SWITCH) as workers,
    ):
        for seed in range(settings.seeds):
            for number, run in enumerate(settings.runs):
                workers.ask(f"begin {number} {seed}")
                courses[run].append(_train(workers, settings, f"{run.name}, seed {seed}", progress))
    return [_entry(settings, run, courses) for run in settings.runs]


def _train(workers: Workers, settings: ConvergenceSettings, name: str, progress: Callable[[str], None]) -> Course:
    course = Course([], [], False)
    for epoch in range(settings.epochs):
        answers = workers.ask(f"epoch {epoch}")
        course.loss.append(statistics.fmean(one["loss"] for one in answers))
        course.accuracy.append(answers[0]["accuracy"])
        progress(f"{name}: {course.accuracy[-1]:.1%}")
    course.same_bits = len(set(workers.ask("digest"))) == 1
    return course


def _by_epoch(courses: list[list[float]]) -> list[float]:
    return [statistics.fmean(epoch) for epoch in zip(*courses, strict=True)]


def _entry(settings: ConvergenceSettings, run: Run, courses: dict[Run, list[Course]]) -> dict[str, Any]:
    mine, exact = courses[run], courses[settings.runs[0]]
    finals = [course.accuracy[-1] for course in mine]
    away = statistics.fmean(finals) - statistics.fmean(course.accuracy[-1] for course in exact)
    return {
        "name": run.name,
        "system": "netfold",
        "algorithm": settings.algorithm,
        "format": "bfp" if run.mantissa else "fp32",
        "mantissa": run.mantissa or None,
        "error_feedback": run.feedback,
        "workers": settings.workers,
        "accuracy": statistics.fmean(finals),
        "accuracy_of_seeds": finals,
        "points_from_fp32": POINTS * away,
        "loss_last": statistics.fmean(course.loss[-1] for course in mine),
        "accuracy_by_epoch": _by_epoch([course.accuracy for course in mine]),
        "loss_by_epoch": _by_epoch([course.loss for course in mine]),
        "same_bits": all(course.same_bits for course in mine),
    }
