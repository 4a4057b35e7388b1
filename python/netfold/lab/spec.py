"""What a lab is: how many workers, what their links are like. Checked here, once."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field

from netfold.lab.errors import UsageError
from netfold.topology.wiring import KINDS, Wiring

WORKERS_MAX = 200
STAR = "star"
FABRICS = (STAR, *KINDS)


@dataclass(frozen=True)
class Faults:
    """What happens to a packet on its way from sender to receiver; fractions from 0 to 1."""

    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not 0.0 <= value < 1.0:
                raise UsageError(f"--{name} is a fraction of the packets, from 0 to below 1, not {value}")

    def __bool__(self) -> bool:
        return any(asdict(self).values())

    def text(self, seed: int) -> str:
        """The description the seeded fault-injecting link takes."""
        return f"loss={self.loss},duplicate={self.duplicate},reorder={self.reorder},seed={seed}"


@dataclass(frozen=True)
class LabSpec:
    """One emulated cluster. A rate of 0 leaves a link unshaped.

    `fabric` is one of FABRICS; one that is no star has a `shape`, sub-nodes x switches, and as many workers."""

    workers: int = 8
    rate_mbit_s: float = 200.0
    switch_rate_mbit_s: float = 0.0
    mtu: int = 1500
    burst_bytes: int = 131072
    latency_ms: float = 20.0
    faults: Faults = field(default_factory=Faults)
    fabric: str = STAR
    shape: tuple[int, int] = (0, 0)

    def __post_init__(self) -> None:
        self._check_fabric()
        if not 1 <= self.workers <= WORKERS_MAX:
            raise UsageError(f"--workers is from 1 to {WORKERS_MAX}, not {self.workers}")
        if not all(math.isfinite(rate) and rate >= 0 for rate in (self.rate_mbit_s, self.switch_rate_mbit_s)):
            raise UsageError("a link rate is a positive number of Mbit/s, or 0 for an unshaped link")
        if not 576 <= self.mtu <= 65535:
            raise UsageError(f"--mtu is from 576 to 65535 bytes, not {self.mtu}")
        if self.burst_bytes < self.mtu + 14:
            raise UsageError(f"--burst-bytes must hold a packet ({self.mtu + 14} bytes), {self.burst_bytes} does not")
        if not (math.isfinite(self.latency_ms) and self.latency_ms > 0):
            raise UsageError("--latency-ms, the longest a packet may queue, is a positive number of milliseconds")

    def _check_fabric(self) -> None:
        if self.fabric not in FABRICS:
            raise UsageError(f"--fabric is one of {', '.join(FABRICS)}, not {self.fabric}")
        if (self.fabric == STAR) != (self.shape == (0, 0)):
            raise UsageError("--shape (as 4x8: sub-nodes x switches) goes with --fabric bigraph or fat-tree")
        if (wiring := self.wiring()) is None:
            return
        if self.workers != wiring.workers:
            raise UsageError(f"--shape {self.shape[0]}x{self.shape[1]} has {wiring.workers} workers, not {self.workers}")
        if self.faults or self.switch_rate_mbit_s:
            raise UsageError("faults and the rate of the switch box are for --fabric star")

    def wiring(self) -> Wiring | None:
        """The switches and cables; None for a star. Raises UsageError for a shape that makes none."""
        if self.fabric == STAR:
            return None
        try:
            return Wiring(self.fabric, *self.shape)
        except ValueError as error:
            raise UsageError(f"--shape: {error}") from None
