"""Where a measurement runs: in a lab, or on this machine as it is."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from netfold.lab import names
from netfold.lab.cluster import Lab
from netfold.lab.errors import UsageError
from netfold.lab.frame_star import FrameStar
from netfold.lab.netns import enter
from netfold.lab.shaping import Traffic

BLOCK, SHUFFLED = PLACEMENTS = ("block", "shuffled")  # of ranks over workers


def check_placement(placement: str) -> None:
    """Raises UsageError for one that is none of PLACEMENTS."""
    if placement not in PLACEMENTS:
        raise UsageError(f"--placement is one of {', '.join(PLACEMENTS)}, not {placement}")


def places_of(placement: str, world: int, seed: int) -> list[int]:
    """The worker of each rank: neighbours side by side, or by the seed anywhere, as a scheduler hands them out."""
    if placement == BLOCK:
        return list(range(world))
    return [int(place) for place in np.random.default_rng(seed).permutation(world)]


class Site(Protocol):
    """What a system needs to know of a place to launch its ranks there."""

    world: int
    directory: Path
    interface: str
    rate_mbit_s: float  # 0: not shaped
    mtu: int
    topology: Path | None  # the file that says where the ranks sit, where that is known

    def command(self, rank: int) -> list[str]:
        """The words before a command that should run as a rank."""

    def switch_command(self) -> list[str]:
        """The words before a command that should run on the switch box."""

    def address(self, rank: int) -> str:
        """A rank's address."""

    def switch_address(self) -> str:
        """The switch box's address."""

    def running_switch(self) -> str | None:
        """Where a switch listens that is part of the network itself; None: one has to be started."""

    def namespace(self, rank: int) -> str | None:
        """The network namespace of a rank, where it has one of its own."""

    def traffic(self) -> list[tuple[Traffic, Traffic]] | None:
        """Up and down traffic of every rank so far; None where it cannot be told apart."""


class LabSite:
    """Ranks in a lab, each behind a link of its own."""

    def __init__(self, lab: Lab, places: Sequence[int] | None = None) -> None:
        """`places`: the worker that each rank runs on; none: worker 0 is rank 0, and so on."""
        self._lab = lab
        self.places = list(places) if places is not None else list(range(lab.spec.workers))
        self.topology = lab.topology
        self.world = lab.spec.workers
        self.directory = lab.directory
        self.interface = names.INTERFACE
        self.rate_mbit_s = lab.spec.rate_mbit_s
        self.mtu = lab.spec.mtu

    def command(self, rank: int) -> list[str]:
        """Enter the worker's namespace."""
        return enter(self._lab.worker(self.places[rank]))

    def switch_command(self) -> list[str]:
        """Enter the switch box's namespace."""
        return enter(names.switch(self._lab.lab_id))

    def address(self, rank: int) -> str:
        """The worker's address in the lab."""
        return self._lab.fabric.address(self.places[rank])

    def switch_address(self) -> str:
        """The switch box's address in the lab."""
        return names.switch_address()

    def running_switch(self) -> str | None:
        """In a star whose middle folds."""
        return self._lab.fabric.running_switch() if isinstance(self._lab.fabric, FrameStar) else None

    def namespace(self, rank: int) -> str | None:
        """The worker's namespace."""
        return self._lab.worker(self.places[rank])

    def traffic(self) -> list[tuple[Traffic, Traffic]] | None:
        """By the token buckets of every worker's link."""
        return [self._lab.sent_and_received(place) for place in self.places]


class LocalSite:
    """All ranks on this machine's loopback."""

    interface = "lo"
    rate_mbit_s = 0.0
    mtu = 65536
    topology = None

    def __init__(self, world: int) -> None:
        self.world = world
        self.directory = Path(tempfile.mkdtemp(prefix="netfold-bench-"))

    def __enter__(self) -> LocalSite:
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)

    def command(self, rank: int) -> list[str]:
        """Nothing to enter."""
        return []

    def switch_command(self) -> list[str]:
        """Nothing to enter."""
        return []

    def address(self, rank: int) -> str:
        """Loopback."""
        return "127.0.0.1"

    def switch_address(self) -> str:
        """Loopback."""
        return "127.0.0.1"

    def running_switch(self) -> str | None:
        """None."""
        return None

    def namespace(self, rank: int) -> str | None:
        """The machine's own."""
        return None

    def traffic(self) -> list[tuple[Traffic, Traffic]] | None:
        """Loopback does not tell ranks apart."""
        return None
