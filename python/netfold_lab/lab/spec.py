"""The description of a lab: its workers and links. This file checks the values."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from netfold.algorithms import bigraph_of
from netfold.topology.wiring import BIGRAPH, FAT_TREE, KINDS, Wiring
from netfold_lab.errors import UsageError
from netfold_lab.lab import names

WORKERS_MAX = 200
RATE_MAX_MBIT_S = 1e6
BURST_MAX_BYTES = 1 << 30
LATENCY_MAX_MS = 1e6
STAR = "star"
FABRICS = (STAR, *KINDS)
SOCKETS, DPDK = "sockets", "dpdk"  # the folding program of a star: beside the bridge, or the fabric itself
# Rate in Mbit/s, burst in bytes, latency in ms. Dozens of workers and switches share a machine's cores; slow links
# leave the cores idle. The deep queue of a switch models the lossless networks of BiGraphs.
LINKS = {STAR: (200.0, 131072, 20.0), BIGRAPH: (10.0, 16384, 1000.0), FAT_TREE: (10.0, 16384, 1000.0)}


@dataclass(frozen=True)
class Faults:
    """Fault rates of packets on the way from sender to receiver; fractions from 0 to 1."""

    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not 0.0 <= value < 1.0:
                raise UsageError(f"--{name} must be a fraction of the packets, from 0 to below 1, not {value}")

    def __bool__(self) -> bool:
        return any(asdict(self).values())

    def text(self, seed: int) -> str:
        """The faults in the notation of the seeded fault-injecting link."""
        return f"loss={self.loss},duplicate={self.duplicate},reorder={self.reorder},seed={seed}"


@dataclass(frozen=True)
class LabSpec:
    """One emulated cluster. A rate of 0 leaves a link unshaped.

    `fabric` is one of FABRICS; one that is not a star has a `shape`, sub-nodes x switches, and that number of
    workers."""

    workers: int = 8
    rate_mbit_s: float = 200.0
    switch_rate_mbit_s: float = 0.0
    mtu: int = 1500
    burst_bytes: int = 131072
    latency_ms: float = 20.0
    faults: Faults = field(default_factory=Faults)
    fabric: str = STAR
    shape: tuple[int, int] = (0, 0)
    switch: str = SOCKETS
    switches: int = 1  # of a star
    leaves: int = 0  # of a star: switches with a block of the workers each, below the first one; 0: no tree

    def __post_init__(self) -> None:
        self._check_fabric()
        if not 1 <= self.workers <= WORKERS_MAX:
            raise UsageError(f"--workers must be from 1 to {WORKERS_MAX}, not {self.workers}")
        if not all(0 <= rate <= RATE_MAX_MBIT_S for rate in (self.rate_mbit_s, self.switch_rate_mbit_s)):
            raise UsageError(f"a link's rate must be from 0 (not shaped) to {RATE_MAX_MBIT_S:g} Mbit/s")
        if not 576 <= self.mtu <= 65535:
            raise UsageError(f"--mtu must be from 576 to 65535 bytes, not {self.mtu}")
        if self.burst_bytes < self.mtu + 14:
            raise UsageError(f"--burst-bytes must hold a packet ({self.mtu + 14} bytes), {self.burst_bytes} does not")
        if self.burst_bytes > BURST_MAX_BYTES:
            raise UsageError(f"--burst-bytes must be at most {BURST_MAX_BYTES}, not {self.burst_bytes}")
        if not 0 < self.latency_ms <= LATENCY_MAX_MS:
            raise UsageError(
                f"--latency-ms, the longest time that a packet may queue, must be from above 0 to {LATENCY_MAX_MS:g}"
            )

    def links_text(self) -> str:
        """The rates of the links, for titles."""
        if self.fabric != STAR:
            return f"{self.rate_mbit_s:g} Mbit/s a link of a {self.shape[0]}x{self.shape[1]} {self.fabric}"
        text = f"{self.rate_mbit_s:g} Mbit/s a link"
        if self.leaves:
            return f"{text}, {self.leaves} switches below one, an uplink {self.rate_mbit_s:g} Mbit/s"
        if self.switch != SOCKETS:
            return text
        of_switch = f"{self.switch_rate_mbit_s:g} Mbit/s" if self.switch_rate_mbit_s else "not shaped"
        if self.switches == 1:
            return f"{text}, the switch's {of_switch}"
        return f"{text}, each of {self.switches} switches {of_switch}"

    def _check_fabric(self) -> None:
        if self.fabric not in FABRICS:
            raise UsageError(f"--fabric must be one of {', '.join(FABRICS)}, not {self.fabric}")
        if (self.fabric == STAR) != (self.shape == (0, 0)):
            raise UsageError("--shape (sub-nodes x switches, such as 4x8) needs --fabric bigraph or fat-tree")
        if self.switch not in (SOCKETS, DPDK):
            raise UsageError(f"--switch must be {SOCKETS} or {DPDK}, not {self.switch}")
        if self.switch == DPDK and (self.fabric != STAR or self.faults):
            raise UsageError(
                "--switch dpdk needs --fabric star, and supports only faults by netfold (--faults-by netfold)"
            )
        if not 1 <= self.switches <= names.SWITCHES_MAX:
            raise UsageError(f"--switches must be from 1 to {names.SWITCHES_MAX}, not {self.switches}")
        if self.switches > 1 and (self.fabric != STAR or self.switch != SOCKETS):
            raise UsageError("several --switches need --fabric star and --switch sockets")
        self._check_leaves()
        if (wiring := self.wiring()) is None:
            return
        if self.workers != wiring.workers:
            raise UsageError(
                f"--shape {self.shape[0]}x{self.shape[1]} has {wiring.workers} workers, not {self.workers}"
            )
        if self.faults or self.switch_rate_mbit_s:
            raise UsageError("faults and the rate of the switch need --fabric star")

    def _check_leaves(self) -> None:
        if not self.leaves:
            return
        if self.fabric != STAR or self.switch != SOCKETS or self.switches > 1:
            raise UsageError("--leaves needs --fabric star, --switch sockets and one --switches")
        if self.faults:
            raise UsageError("--leaves supports only faults by netfold (--faults-by netfold)")
        if not 1 < self.leaves < names.SWITCHES_MAX or self.workers % self.leaves:
            raise UsageError(
                f"--leaves must be from 2 to {names.SWITCHES_MAX - 1} and divide the {self.workers} workers, not "
                f"{self.leaves}"
            )

    @property
    def boxes(self) -> int:
        """The machines with a switch: the leaves, and the one above them."""
        return self.leaves + 1 if self.leaves else self.switches

    def wiring(self) -> Wiring | None:
        """The switches and cables; None for a star. Raises UsageError for an invalid shape."""
        if self.fabric == STAR:
            return None
        try:
            return Wiring(self.fabric, *self.shape)
        except ValueError as error:
            raise UsageError(f"--shape: {error}") from None


def spec_of(
    fabric: str,
    shape: str,
    workers: int | None,
    rate_mbit_s: float | None,
    burst_bytes: int | None,
    latency_ms: float | None,
    switch_rate_mbit_s: float | None = 0.0,
    **more: Any,
) -> LabSpec:
    """A lab from a user's options: None stands for the fabric's default. `shape`: 4x8, or empty. Raises UsageError.

    The machine of a switch beside the bridge has one NIC, by default one like a worker's. A leaf has a port for each of
    its workers, and an uplink like a worker's link."""
    if fabric not in FABRICS:
        raise UsageError(f"--fabric must be one of {', '.join(FABRICS)}, not {fabric}")
    try:
        parsed = bigraph_of(shape) if shape else (0, 0)
    except ValueError as error:
        raise UsageError(f"--shape: {error}") from None
    usual = LINKS[fabric]
    rate_mbit_s = usual[0] if rate_mbit_s is None else rate_mbit_s
    if switch_rate_mbit_s is None:
        beside = more.get("switch", SOCKETS) == SOCKETS and not more.get("leaves")
        switch_rate_mbit_s = rate_mbit_s if fabric == STAR and beside else 0.0
    return LabSpec(
        workers=workers if workers is not None else (parsed[0] * parsed[1] or 8),
        rate_mbit_s=rate_mbit_s,
        switch_rate_mbit_s=switch_rate_mbit_s,
        burst_bytes=usual[1] if burst_bytes is None else burst_bytes,
        latency_ms=usual[2] if latency_ms is None else latency_ms,
        fabric=fabric,
        shape=parsed,
        **more,
    )
