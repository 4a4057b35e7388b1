"""The training steps that `netfold plan check-train` predicts and measures.

The default cases mean something on a machine with two cores: computation and communication take about as long as each
other. At 448 samples most steps wait for gradients in fp32, and compute longer than they send in bfp; at 1792 samples
most steps compute.

The threads that compute are pinned to the cores in turn. Otherwise the kernel moves them at times of its own, and with
an odd number of workers each step has another time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from netfold.algorithms import IN_NETWORK
from netfold_lab.bench.train.profile import Network
from netfold_lab.bench.train.profiles import Profile
from netfold_lab.bench.train.variants import Variant, offloaded
from netfold_lab.errors import UsageError
from netfold_lab.lab.spec import LabSpec

ALGORITHMS = ("ring", IN_NETWORK)
FORMATS = ("fp32", "bfp")
CALIBRATION_WORKERS = 2


@dataclass(frozen=True)
class Way:
    """A way to exchange gradients. `overlaps`: all-reduces start within backward, not after it. `is_narrow`: the link
    of the switch has a rate of its own, not one that carries all workers at once."""

    algorithm: str
    format: str
    overlaps: bool
    is_narrow: bool = False

    @property
    def name(self) -> str:
        """Its name in reports."""
        when = "overlapped" if self.overlaps else "after backward"
        return f"{self.algorithm} {self.format} {when}{', narrow' if self.is_narrow else ''}"

    @property
    def variant(self) -> Variant:
        """The variant of `netfold bench train`."""
        return replace(offloaded(self.algorithm, self.format), overlaps=self.overlaps, spreads=True)


@dataclass(frozen=True)
class Job:
    """The cases of one lab: its workers train with this batch, in each of these ways."""

    profile: Profile
    ways: tuple[Way, ...]


@dataclass(frozen=True)
class CheckSettings:
    """The cases and their network. `rate_mbit_s`: of workers' links. `switch_rate_mbit_s`: of the switch's link where
    it is narrow; 0: it never is. `attempts`: to measure a step that other programs disturb. Two workers calibrate, so
    steps of two workers are not cases."""

    workers: tuple[int, ...]
    batches: tuple[int, ...]
    algorithms: tuple[str, ...] = ALGORITHMS
    formats: tuple[str, ...] = FORMATS
    rate_mbit_s: float = 200.0
    switch_rate_mbit_s: float = 400.0
    layers: int = 20
    width: int = 512
    repeat: int = 3
    attempts: int = 3
    timeout_s: float = 120.0
    network: Network = field(default=Network())

    def __post_init__(self) -> None:
        if min(self.workers) <= CALIBRATION_WORKERS:
            raise UsageError(
                f"--workers must be above {CALIBRATION_WORKERS}, not {min(self.workers)}: {CALIBRATION_WORKERS} "
                "workers calibrate, so their steps are not cases"
            )
        for option, given, known in (
            ("--algorithm", self.algorithms, ALGORITHMS),
            ("--format", self.formats, FORMATS),
        ):
            if strange := [one for one in given if one not in known]:
                raise UsageError(f"{option} takes {', '.join(known)} with commas, not {strange[0]!r}")
        if not (math.isfinite(self.rate_mbit_s) and self.rate_mbit_s > 0):
            raise UsageError(f"--rate-mbit-s must be above 0, not {self.rate_mbit_s}")
        wide = self.wide_mbit_s(min(self.workers))
        if not 0 <= self.switch_rate_mbit_s < wide:
            raise UsageError(
                f"--switch-rate-mbit-s must be from 0 to below {wide:g}, the rate of the links of {min(self.workers)} "
                f"workers together, not {self.switch_rate_mbit_s:g}"
            )
        if not self.timeout_s > 0:
            raise UsageError(f"--timeout-s must be above 0, not {self.timeout_s}")

    def wide_mbit_s(self, workers: int) -> float:
        """The rate of a link of the switch that carries all workers at once."""
        return self.rate_mbit_s * workers

    def narrow_mbit_s(self, workers: int) -> float:
        """The rate of the narrow link of the switch. For the two workers that calibrate it is half of a wide one: the
        rate of the cases may be wide for them."""
        return self.switch_rate_mbit_s if workers > CALIBRATION_WORKERS else self.wide_mbit_s(workers) / 2

    def lab(self, workers: int, is_narrow: bool = False) -> LabSpec:
        """The lab."""
        switch_rate = self.narrow_mbit_s(workers) if is_narrow else self.wide_mbit_s(workers)
        return replace(self.network.lab(workers, self.rate_mbit_s), switch_rate_mbit_s=switch_rate)

    def profile(self, workers: int, batch: int) -> Profile:
        """The perceptron of "AI Smart NICs"."""
        return Profile("mlp", workers, batch, self.layers, self.width)

    def ways(self) -> tuple[Way, ...]:
        """All ways, those with a wide link of the switch first."""
        wide = [
            Way(algorithm, format, overlaps)
            for algorithm in self.algorithms
            for format in self.formats
            for overlaps in (True, False)
        ]
        narrow = [replace(way, is_narrow=True) for way in wide if way.algorithm == IN_NETWORK]
        return (*wide, *(narrow if self.switch_rate_mbit_s else ()))

    def calibration_ways(self, batch: int) -> tuple[Way, ...]:
        """Those that two workers calibrate with this batch: all with the first one, else those within backward."""
        return tuple(way for way in self.ways() if way.overlaps or batch == self.batches[0])

    def jobs(self) -> list[Job]:
        """The labs, one after the other."""
        return [Job(self.profile(count, batch), self.ways()) for count in self.workers for batch in self.batches]

    @property
    def calibration_repeat(self) -> int:
        """Timed steps of each way that calibrates: more than of a case, because an error of theirs is in every case."""
        return 2 * self.repeat

    def steps(self) -> int:
        """The number of steps, for a progress bar."""
        ways, jobs = len(self.ways()), len(self.workers) * len(self.batches)
        calibrated = sum(2 + len(self.calibration_ways(batch)) for batch in self.batches)
        return calibrated * (self.calibration_repeat + 1) + jobs * ways * (self.repeat + 1)
