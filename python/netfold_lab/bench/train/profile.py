"""A training profile from start to end: a lab, its workers, the rate of its links, and every variant step by step."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from netfold.algorithms import WITH_SWITCH
from netfold_lab.bench.sites import BLOCK, LabSite, check_placement, places_of
from netfold_lab.bench.train import rate_search, rates
from netfold_lab.bench.train.profiles import Profile
from netfold_lab.bench.train.step_timer import EXPOSED, PARTS, part_skew_from_exposed
from netfold_lab.bench.train.variants import BASELINE, COMPUTE_ALONE, Variant
from netfold_lab.bench.train.workers import Workers, setup_of
from netfold_lab.errors import UsageError
from netfold_lab.lab.cluster import Lab
from netfold_lab.lab.spec import LINKS, STAR, LabSpec, spec_of

WORKER = "netfold_lab.bench.train.worker"
CALIBRATION_STEPS = 3
PLACES_SEED = 1
SETTLE_RATE_MBIT_S = 1000.0  # of the links until the final rate is known
NETWORK_ALIKE, BASELINE_ALIKE = MATCHES = ("network", "baseline")  # what matches the paper: rates.py, rate_search.py
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Network:
    """The network of the workers: a star, or a fabric with a `shape` ("4x8", as lab.spec.spec_of takes it).
    `placement`, one of sites.PLACEMENTS, maps ranks to workers."""

    fabric: str = STAR
    shape: str = ""
    placement: str = BLOCK
    mtu: int = 1500

    def __post_init__(self) -> None:
        check_placement(self.placement)

    def bigraph(self) -> tuple[int, int]:
        """Sub-nodes and switches; zeros for a star. Raises UsageError for an invalid shape."""
        return self.lab(None, SETTLE_RATE_MBIT_S).shape

    def usual_algorithms(self) -> str:
        """The default algorithms."""
        return "ring,in-network" if self.fabric == STAR else "ring,hdrm"

    def lab(self, workers: int | None, rate_mbit_s: float) -> LabSpec:
        """Raises UsageError if the site has no place for this number of workers."""
        burst_bytes = LINKS[STAR][1]  # a smaller burst would cut up the large packets of offloads, which costs CPU time
        return spec_of(self.fabric, self.shape, workers, rate_mbit_s, burst_bytes, None, mtu=self.mtu)


@dataclass(frozen=True)
class ProfileSettings:
    """Settings of the measurement; the variants must include computation without communication.

    `rate_mbit_s` 0: the rate that gives `proportion` (seconds to send a worker's gradients once, per second of
    computation); `proportion` 0: the paper's. `match`, one of MATCHES: with BASELINE_ALIKE the rate makes the baseline,
    which must be among the variants, wait as long as the paper's baseline."""

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
            raise UsageError(f"--repeat must be at least 1, not {self.repeat}")
        for name in ("rate_mbit_s", "proportion"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise UsageError(
                    f"--{name.replace('_', '-')} must be a positive number, or 0 for the paper's value, not {value}"
                )
        if not (math.isfinite(self.timeout_s) and self.timeout_s > 0):
            raise UsageError(f"--timeout-s must be a positive number of seconds, not {self.timeout_s}")
        if self.match not in MATCHES:
            raise UsageError(f"--match must be one of {', '.join(MATCHES)}, not {self.match}")
        if self.match == BASELINE_ALIKE and (self.rate_mbit_s or self.proportion):
            raise UsageError("--match baseline finds the rate by itself: leave out --rate and --proportion")
        if self.match == BASELINE_ALIKE and BASELINE not in self.variants:
            raise UsageError("--match baseline measures the baseline: --variants must include overlapped")
        if self.is_in_network() and self.network.fabric != STAR:
            raise UsageError("--algorithm in-network needs --fabric star")

    def is_in_network(self) -> bool:
        """Whether a switch takes part."""
        return any(one.group and one.group.algorithm in WITH_SWITCH for one in self.variants)

    @property
    def wanted_proportion(self) -> float:
        """The proportion; the paper's by default."""
        return self.proportion or rates.proportion_for(self.profile.model, self.profile.batch)

    @property
    def rate_chosen_by(self) -> str:
        """The source of the links' rate, in a word."""
        return "--rate" if self.rate_mbit_s else "baseline" if self.match == BASELINE_ALIKE else "proportion"

    def steps(self) -> int:
        """The number of steps, for a progress bar."""
        matching = rate_search.ROUNDS if self.match == BASELINE_ALIKE else 0
        return CALIBRATION_STEPS + matching + len(self.variants) * (self.repeat + 1)


@dataclass
class Step:
    """One step, as a mean over the workers: seconds by part, CPU seconds by role and mode, and the switch's CPU
    seconds."""

    parts: dict[str, float]
    cpu: dict[str, dict[str, float]]
    switch_cpu_s: float

    @property
    def time_s(self) -> float:
        """The seconds of all parts."""
        return sum(self.parts.values())


@dataclass
class Series:
    """The steps of one variant."""

    variant: Variant
    steps: list[Step] = field(default_factory=list)

    @property
    def median(self) -> Step:
        """The step with the median time (the lower one of two). Its parts add up to its time, medians of parts would
        not."""
        return sorted(self.steps, key=lambda step: step.time_s)[(len(self.steps) - 1) // 2]


@dataclass
class Outcome:
    """The results: a worker's gradients in bytes, the links' rate, the computation time that the rate was chosen by,
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


def take_step(workers: Workers, variant: int) -> Step:
    """One step of all workers."""
    before = workers.switch_cpu_s()
    parts = workers.step(variant)
    return mean_step(parts, workers.switch_cpu_s() - before)


def in_lab(settings: ProfileSettings, progress: Progress) -> Outcome:
    """Measure in a lab of its own, which is removed afterwards. `progress` is told of each step. Raises
    MeasurementError, LabError."""
    profile = settings.profile
    spec = settings.network.lab(profile.workers, settings.rate_mbit_s or SETTLE_RATE_MBIT_S)
    places = places_of(settings.network.placement, profile.workers, PLACES_SEED)
    progress("starting every worker")
    with (
        Lab(spec) as lab,
        Workers(
            LabSite(lab, places),
            WORKER,
            setup_of(profile, settings.variants),
            settings.timeout_s,
            settings.is_in_network(),
        ) as workers,
    ):
        gradient_bytes = workers.ask("size")[0]
        alone_s = compute_alone_s(workers, settings, progress)
        rate = settings.rate_mbit_s or rates.rate_mbit_s(
            gradient_bytes, profile.workers, alone_s, settings.wanted_proportion, settings.network.mtu
        )
        lab.set_rate(rate)
        if settings.match == BASELINE_ALIKE:
            rate = matching_rate(workers, lab, settings, rate, gradient_bytes, progress)
            lab.set_rate(rate)
        series = take_rounds(workers, settings, progress)
        same_bits = len(set(workers.ask("digest"))) == 1
    return Outcome(gradient_bytes, rate, alone_s, same_bits, series)


def compute_alone_s(workers: Workers, settings: ProfileSettings, progress: Progress) -> float:
    """Seconds of a step without communication, with all workers computing at once. The first step is not counted."""
    times = []
    for number in range(CALIBRATION_STEPS):
        times.append(take_step(workers, settings.variants.index(COMPUTE_ALONE)).time_s)
        progress(f"computation {number + 1} of {CALIBRATION_STEPS}")
    return statistics.median(times[1:])


def matching_rate(
    workers: Workers, lab: Lab, settings: ProfileSettings, first: float, gradient_bytes: int, progress: Progress
) -> float:
    """The rate at which the baseline waits for all-reduces during the same fraction of its step as the paper's."""

    def measure(rate: float) -> tuple[float, float]:
        lab.set_rate(rate)
        steps = [take_step(workers, settings.variants.index(BASELINE)) for _ in range(rate_search.STEPS)]
        series = Series(BASELINE, steps[1:])
        progress(f"the baseline at {rate:g} Mbit/s")
        return series.median.time_s, series.median.parts[EXPOSED]

    def ring_s(rate: float) -> float:
        return rates.ring_s(gradient_bytes, settings.profile.workers, rate, settings.network.mtu)

    return rate_search.search(first, rates.paper_exposed(), ring_s, measure)


def take_rounds(workers: Workers, settings: ProfileSettings, progress: Progress) -> list[Series]:
    """Step 1 of every variant, step 2 of every variant, and so on: a machine's drift affects all variants equally. One
    warm-up."""
    series = [Series(variant) for variant in settings.variants]
    for repetition in range(settings.repeat + 1):
        for number, one in enumerate(series):
            step = take_step(workers, number)
            if repetition:
                one.steps.append(step)
            progress(f"{one.variant.name}: {f'{repetition} of {settings.repeat}' if repetition else 'warm-up'}")
    return series
