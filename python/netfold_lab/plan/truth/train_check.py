"""Predicts training steps, then measures them: `netfold plan check-train`.

Two workers calibrate (train_model.py). Then each lab of more workers is predicted before it is measured, and nothing is
fitted to it. Its ways to exchange take turns, so that a drift of the machine affects all alike.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from netfold.algorithms import WITH_SWITCH
from netfold_lab.bench.sites import LabSite
from netfold_lab.bench.train.profile import WORKER, Series, Step, take_step
from netfold_lab.bench.train.variants import COMPUTE_ALONE, Variant
from netfold_lab.bench.train.workers import Workers, setup_of
from netfold_lab.lab.cluster import Lab
from netfold_lab.plan.truth.other_load import least_disturbed
from netfold_lab.plan.truth.step_model import PredictedStep
from netfold_lab.plan.truth.train_cases import CALIBRATION_WORKERS, CheckSettings, Job, Way
from netfold_lab.plan.truth.train_model import (
    Calibration,
    LinkCosts,
    computation_of,
    delay_shown,
    link_costs,
    link_of,
    with_beside,
)

Tell = Callable[[str], None]
APART = replace(COMPUTE_ALONE, spreads=True)  # with a core for each of the workers that calibrate
TOGETHER = replace(COMPUTE_ALONE, compute_cores=(min(os.sched_getaffinity(0)),))  # with one core for both


@dataclass(frozen=True)
class Case:
    """One training step, predicted and measured."""

    workers: int
    batch: int
    way: Way
    predicted: PredictedStep
    measured: Series

    @property
    def measured_s(self) -> float:
        """The median of the measured steps."""
        return statistics.median(step.time_s for step in self.measured.steps)

    @property
    def off(self) -> float:
        """Predicted divided by measured, less 1."""
        return self.predicted.time_s / self.measured_s - 1


@dataclass
class Findings:
    """The results so far; they grow while the check runs. `others`: of each step that counts, the fraction of the cores
    that other programs used."""

    calibration: Calibration | None = None
    cases: list[Case] = field(default_factory=list)
    others: list[float] = field(default_factory=list)

    @property
    def off_mean(self) -> float:
        """The mean of the errors, without signs."""
        return statistics.fmean(abs(case.off) for case in self.cases)

    @property
    def off_worst(self) -> float:
        """The largest error, without its sign."""
        return max(abs(case.off) for case in self.cases)


def check(settings: CheckSettings, findings: Findings, tell: Tell) -> None:
    """Calibrate, predict and measure. `findings` gets each result at once, so that it has them after an interruption.
    Raises LabError, MeasurementError."""
    findings.calibration = calibration = calibrate(settings, findings.others, tell)
    for job in settings.jobs():
        count, batch = job.profile.workers, job.profile.batch
        predicted = {way: calibration.predicted(settings, count, batch, way) for way in job.ways}
        measured = {way: Series(way.variant) for way in job.ways}
        try:
            tell(f"starting {count} workers, batch {batch}")
            with Crew.at_work(settings, job, findings.others) as crew:
                crew.take_turns(measured, settings.repeat, tell)
        finally:
            findings.cases += [
                Case(count, batch, way, predicted[way], measured[way]) for way in job.ways if measured[way].steps
            ]


def calibrate(settings: CheckSettings, others: list[float], tell: Tell) -> Calibration:
    """Measure two workers: computation with each batch, every way to exchange with the first batch, and those within
    backward with all of them."""
    cores = len(os.sched_getaffinity(0))
    computation, crowded, links = {}, {}, {}
    measured: dict[int, dict[Way, Series]] = {}
    costs: dict[Way, LinkCosts] = {}
    counts: tuple[int, ...] = ()
    for batch in settings.batches:
        measured[batch] = {way: Series(way.variant) for way in settings.calibration_ways(batch)}
        job = Job(settings.profile(CALIBRATION_WORKERS, batch), tuple(measured[batch]))
        tell(f"starting {CALIBRATION_WORKERS} workers that calibrate, batch {batch}")
        with Crew.at_work(settings, job, others) as crew:
            alone, own_filled_s = crew.compute(APART, settings.calibration_repeat, tell)
            together, shared_filled_s = crew.compute(TOGETHER, settings.calibration_repeat, tell)
            counts = crew.counts()
            crew.take_turns(measured[batch], settings.calibration_repeat, tell)
        computation[batch] = computation_of(alone, own_filled_s, min(1.0, cores / CALIBRATION_WORKERS))
        crowded[batch] = computation_of(together, shared_filled_s, 1 / CALIBRATION_WORKERS)
        costs |= {
            way: link_costs(settings, way, counts, alone, steps, measured[batch][after])
            for way, steps in measured[batch].items()
            if way.overlaps and (after := replace(way, overlaps=False)) in measured[batch]
        }
    for way, cost in costs.items():
        told = max(settings.batches, key=lambda each: delay_shown(settings, way, counts, computation[each], cost))
        links[link_of(way)] = with_beside(cost, settings, way, counts, computation[told], measured[told][way])
    return Calibration(cores, counts, computation, crowded, links)


@dataclass(frozen=True)
class Crew:
    """The workers of a lab. They know `variants` by number. `others` is of Findings."""

    settings: CheckSettings
    lab: Lab
    workers: Workers
    variants: tuple[Variant, ...]
    others: list[float]

    @classmethod
    @contextmanager
    def at_work(cls, settings: CheckSettings, job: Job, others: list[float]) -> Iterator[Crew]:
        """Build the lab and start the workers of a job; end both afterwards."""
        variants = (APART, TOGETHER, *dict.fromkeys(way.variant for way in job.ways))
        is_switched = any(way.algorithm in WITH_SWITCH for way in job.ways)
        with (
            Lab(settings.lab(job.profile.workers)) as lab,
            Workers(LabSite(lab), WORKER, setup_of(job.profile, variants), settings.timeout_s, is_switched) as workers,
        ):
            yield cls(settings, lab, workers, variants, others)

    def step(self, variant: Variant, counts: bool) -> Step:
        """A step. If it counts, it is measured again while other programs disturb it."""
        number, workers = self.variants.index(variant), self.lab.spec.workers
        attempts = self.settings.attempts if counts else 1
        step, others = least_disturbed(lambda: take_step(self.workers, number), workers, attempts)
        if counts:
            self.others.append(others)
        return step

    def counts(self) -> tuple[int, ...]:
        """The elements of each bucket."""
        return tuple(count for count, _ in self.workers.ask("buckets")[0])

    def compute(self, variant: Variant, repeat: int, tell: Tell) -> tuple[Series, list[list[float]]]:
        """Steps without communication, and for each of them and each worker the seconds from the start of backward
        until each bucket was full."""
        alone, filled_s = Series(variant), list[list[float]]()
        for repetition in range(repeat + 1):
            step = self.step(variant, counts=repetition > 0)
            if repetition:
                alone.steps.append(step)
                filled_s += [[at_s for _, at_s in of_worker] for of_worker in self.workers.ask("buckets")]
            tell("calibration: computation")
        return alone, filled_s

    def take_turns(self, measured: Mapping[Way, Series], repeat: int, tell: Tell) -> None:
        """Add `repeat` steps of every way, in turn, after one that is not counted."""
        count = self.lab.spec.workers
        what = "calibration" if count == CALIBRATION_WORKERS else f"{count} workers"
        for repetition in range(repeat + 1):
            for is_narrow in (False, True):
                if not (ways := [way for way in measured if way.is_narrow == is_narrow]):
                    continue
                self.lab.set_switch_rate(self.settings.lab(count, is_narrow).switch_rate_mbit_s)
                for way in ways:
                    step = self.step(way.variant, counts=repetition > 0)
                    if repetition:
                        measured[way].steps.append(step)
                    tell(f"{what}: {way.name}")
