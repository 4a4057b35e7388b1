"""A training profile from start to end: a lab, its workers, the rate of its links, and every variant step by step."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from netfold.algorithms import IN_NETWORK
from netfold.bench.sites import BLOCK, LabSite, check_placement, places_of
from netfold.bench.train import match, rates
from netfold.bench.train.crew import Crew, setup_of
from netfold.bench.train.laps import EXPOSED, PARTS, part_skew_from_exposed
from netfold.bench.train.profiles import Profile
from netfold.bench.train.variants import BASELINE, COMPUTE_ALONE, Variant
from netfold.lab.cluster import Lab
from netfold.lab.errors import UsageError
from netfold.lab.spec import LINKS, STAR, LabSpec, spec_of

WORKER = "netfold.bench.train.worker"
CALIBRATION_STEPS = 3
PLACES_SEED = 1
SETTLE_RATE_MBIT_S = 1000.0  # of the links before the wanted rate is known
NETWORK_ALIKE, BASELINE_ALIKE = MATCHES = ("network", "baseline")  # what is as the paper's: rates.py, match.py
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Network:
    """Where the workers are: around a star, or in a fabric of a `shape` ("4x8", as lab.spec.spec_of takes it);
    `placement`, one of sites.PLACEMENTS, says how ranks lie over the workers."""

    fabric: str = STAR
    shape: str = ""
    placement: str = BLOCK
    mtu: int = 1500

    def __post_init__(self) -> None:
        check_placement(self.placement)

    def bigraph(self) -> tuple[int, int]:
        """Sub-nodes and switches; zeros of a star. Raises UsageError for a shape that is none."""
        return self.lab(None, SETTLE_RATE_MBIT_S).shape

    def usual_algorithms(self) -> str:
        """What is compared where nobody says."""
        return "ring,in-network" if self.fabric == STAR else "ring,hdrm"

    def lab(self, workers: int | None, rate_mbit_s: float) -> LabSpec:
        """Raises UsageError where it has no place for so many."""
        burst_bytes = LINKS[STAR][1]  # a smaller one would cut up what offloads sent in one piece: all of it costs CPU
        return spec_of(self.fabric, self.shape, workers, rate_mbit_s, burst_bytes, None, mtu=self.mtu)


@dataclass(frozen=True)
class Plan:
    """What to measure; computation alone has to be among the variants.

    `rate_mbit_s` 0: the one that gives `proportion` (seconds to send a worker's gradients once, per second of
    computation alone); `proportion` 0: the paper's. `match`, one of MATCHES: of BASELINE_ALIKE the rate makes the
    baseline, which has to be among the variants, wait as long as the paper's does."""

    profile: Profile
    variants: tuple[Variant, ...]
    repeat: int = 5
    rate_mbit_s: float = 0.0
    proportion: float = 0.0
    timeout_s: float = 120.0
    network: Network = Network()
    match: str = NETWORK_ALIKE

    def __post_init__(self) -> None:
        if self.repeat < 1:
            raise UsageError(f"--repeat is at least 1, not {self.repeat}")
        for name in ("rate_mbit_s", "proportion"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise UsageError(f"--{name.replace('_', '-')} is a positive number, or 0 for the paper's, not {value}")
        if not (math.isfinite(self.timeout_s) and self.timeout_s > 0):
            raise UsageError(f"--timeout-s is a positive number of seconds, not {self.timeout_s}")
        if self.match not in MATCHES:
            raise UsageError(f"--match is one of {', '.join(MATCHES)}, not {self.match}")
        if self.match == BASELINE_ALIKE and (self.rate_mbit_s or self.proportion):
            raise UsageError("--match baseline finds the rate by itself: leave out --rate and --proportion")
        if self.match == BASELINE_ALIKE and BASELINE not in self.variants:
            raise UsageError("--match baseline measures the baseline: --variants must have overlapped among them")
        if self.is_in_network() and self.network.fabric != STAR:
            raise UsageError("--algorithm in-network is for --fabric star")

    def is_in_network(self) -> bool:
        """Whether a switch takes part."""
        return any(one.group and one.group.algorithm == IN_NETWORK for one in self.variants)

    @property
    def wanted_proportion(self) -> float:
        """The paper's, where none is given."""
        return self.proportion or rates.proportion_for(self.profile.model, self.profile.batch)

    @property
    def rate_chosen_by(self) -> str:
        """What set the links' rate, in a word."""
        return "--rate" if self.rate_mbit_s else "baseline" if self.match == BASELINE_ALIKE else "proportion"

    def steps(self) -> int:
        """How many steps that is, for a progress bar."""
        matching = match.ROUNDS if self.match == BASELINE_ALIKE else 0
        return CALIBRATION_STEPS + matching + len(self.variants) * (self.repeat + 1)


@dataclass
class Step:
    """One step, a worker's mean: seconds by part, CPU seconds by role and mode; the switch's CPU seconds."""

    parts: dict[str, float]
    cpu: dict[str, dict[str, float]]
    switch_cpu_s: float

    @property
    def time_s(self) -> float:
        """All parts."""
        return sum(self.parts.values())


@dataclass
class Series:
    """The steps of one variant."""

    variant: Variant
    steps: list[Step] = field(default_factory=list)

    @property
    def median(self) -> Step:
        """The step of median time (the lower one of two): its parts add up to its time, medians of parts would not."""
        return sorted(self.steps, key=lambda step: step.time_s)[(len(self.steps) - 1) // 2]


@dataclass
class Outcome:
    """What was measured: the gradients of a worker in bytes, the links' rate, computation alone when that was chosen,
    and whether all workers ended with the same weights, bit for bit."""

    gradient_bytes: int
    rate_mbit_s: float
    compute_alone_s: float
    same_bits: bool
    series: list[Series]


def mean_step(workers: Sequence[dict[str, Any]], switch_cpu_s: float) -> Step:
    """The mean over the workers."""
    roles = workers[0]["cpu"]
    all_computed = max(one["computed"] for one in workers)
    parts = [part_skew_from_exposed(one["parts"], one["computed"], all_computed) for one in workers]
    return Step(
        {part: statistics.fmean(one[part] for one in parts) for part in PARTS},
        {
            role: {mode: statistics.fmean(one["cpu"][role][mode] for one in workers) for mode in roles[role]}
            for role in roles
        },
        switch_cpu_s,
    )


def take_step(crew: Crew, variant: int) -> Step:
    """One step of all workers."""
    before = crew.switch_cpu_s()
    workers = crew.step(variant)
    return mean_step(workers, crew.switch_cpu_s() - before)


def in_lab(plan: Plan, progress: Progress) -> Outcome:
    """In a lab of its own, gone afterwards. `progress` hears what was done. Raises MeasurementError, LabError."""
    profile = plan.profile
    spec = plan.network.lab(profile.workers, plan.rate_mbit_s or SETTLE_RATE_MBIT_S)
    places = places_of(plan.network.placement, profile.workers, PLACES_SEED)
    progress("starting every worker")
    with (
        Lab(spec) as lab,
        Crew(
            LabSite(lab, places), WORKER, setup_of(profile, plan.variants), plan.timeout_s, plan.is_in_network()
        ) as crew,
    ):
        gradient_bytes = crew.ask("size")[0]
        alone_s = compute_alone_s(crew, plan, progress)
        rate = plan.rate_mbit_s or rates.rate_mbit_s(
            gradient_bytes, profile.workers, alone_s, plan.wanted_proportion, plan.network.mtu
        )
        lab.set_rate(rate)
        if plan.match == BASELINE_ALIKE:
            rate = matching_rate(crew, lab, plan, rate, gradient_bytes, progress)
            lab.set_rate(rate)
        series = take_rounds(crew, plan, progress)
        same_bits = len(set(crew.ask("digest"))) == 1
    return Outcome(gradient_bytes, rate, alone_s, same_bits, series)


def compute_alone_s(crew: Crew, plan: Plan, progress: Progress) -> float:
    """Seconds of a step without communication, all workers computing at once as they will; the first step is not
    counted."""
    times = []
    for number in range(CALIBRATION_STEPS):
        times.append(take_step(crew, plan.variants.index(COMPUTE_ALONE)).time_s)
        progress(f"computation alone {number + 1} of {CALIBRATION_STEPS}")
    return statistics.median(times[1:])


def matching_rate(crew: Crew, lab: Lab, plan: Plan, first: float, gradient_bytes: int, progress: Progress) -> float:
    """The rate at which the baseline is exposed to all-reduces for as much of its step as the paper's."""

    def measure(rate: float) -> tuple[float, float]:
        lab.set_rate(rate)
        steps = [take_step(crew, plan.variants.index(BASELINE)) for _ in range(match.STEPS)]
        series = Series(BASELINE, steps[1:])
        progress(f"the baseline at {rate:g} Mbit/s")
        return series.median.time_s, series.median.parts[EXPOSED]

    def ring_s(rate: float) -> float:
        return rates.ring_s(gradient_bytes, plan.profile.workers, rate, plan.network.mtu)

    return match.search(first, rates.paper_exposed(), ring_s, measure)


def take_rounds(crew: Crew, plan: Plan, progress: Progress) -> list[Series]:
    """Step 1 of every variant, step 2 of every variant, ...: what drifts on a machine drifts for all. One warm-up."""
    series = [Series(variant) for variant in plan.variants]
    for repetition in range(plan.repeat + 1):
        for number, one in enumerate(series):
            step = take_step(crew, number)
            if repetition:
                one.steps.append(step)
            progress(f"{one.variant.name}: {f'{repetition} of {plan.repeat}' if repetition else 'warm-up'}")
    return series
