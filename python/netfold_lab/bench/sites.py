"""The place of a measurement: a lab, or this machine's loopback."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from netfold_lab.errors import UsageError
from netfold_lab.lab import names
from netfold_lab.lab.cluster import Lab
from netfold_lab.lab.frame_star import FrameStar
from netfold_lab.lab.netns import enter
from netfold_lab.lab.shaping import Traffic

BLOCK, SHUFFLED = PLACEMENTS = ("block", "shuffled")  # of ranks over workers


def check_placement(placement: str) -> None:
    """Raises UsageError for a placement that is not in PLACEMENTS."""
    if placement not in PLACEMENTS:
        raise UsageError(f"--placement must be one of {', '.join(PLACEMENTS)}, not {placement}")


def places_of(placement: str, world: int, seed: int) -> list[int]:
    """The worker of each rank: neighbours side by side, or shuffled by the seed, as a scheduler may place them."""
    if placement == BLOCK:
        return list(range(world))
    import numpy as np

    return [int(place) for place in np.random.default_rng(seed).permutation(world)]


class Site(Protocol):
    """The properties of a place that a system needs to launch its ranks there."""

    world: int
    switches: int  # machines where a switch may run
    leaves: int  # of a tree of switches: below switch 0, with a block of the ranks each; 0: no tree
    directory: Path
    interface: str
    rate_mbit_s: float  # 0: not shaped
    mtu: int
    topology: Path | None  # the topology file with the places of the ranks, if known

    def command(self, rank: int) -> list[str]:
        """The words before a command that runs as a rank."""

    def switch_command(self, number: int = 0) -> list[str]:
        """The words before a command that runs on a switch's machine."""

    def address(self, rank: int) -> str:
        """A rank's address."""

    def switch_address(self, number: int = 0) -> str:
        """The address of a switch's machine."""

    def parent_address(self, leaf: int) -> str:
        """The address of switch 0, as a leaf reaches it."""

    def sent_up(self) -> list[Traffic]:
        """The traffic from every leaf to switch 0 so far."""

    def running_switch(self) -> str | None:
        """The address of a switch that is part of the network; None: a switch must be started."""

    def namespace(self, rank: int) -> str | None:
        """The network namespace of a rank, if it has one of its own."""

    def traffic(self) -> list[tuple[Traffic, Traffic]] | None:
        """Up and down traffic of every rank so far; None if ranks cannot be distinguished."""


class LabSite:
    """Ranks in a lab, each behind a link of its own."""

    def __init__(self, lab: Lab, places: Sequence[int] | None = None) -> None:
        """`places`: the worker that each rank runs on; if empty, rank r runs on worker r."""
        self._lab = lab
        self.places = list(places) if places is not None else list(range(lab.spec.workers))
        self.topology = lab.topology
        self.world = lab.spec.workers
        self.switches = lab.spec.switches
        self.leaves = lab.spec.leaves
        self.directory = lab.directory
        self.interface = names.INTERFACE
        self.rate_mbit_s = lab.spec.rate_mbit_s
        self.mtu = lab.spec.mtu

    def command(self, rank: int) -> list[str]:
        """Enter the worker's namespace."""
        return enter(self._lab.worker(self.places[rank]))

    def switch_command(self, number: int = 0) -> list[str]:
        """Enter a switch's namespace."""
        return enter(names.switch(self._lab.lab_id, number))

    def address(self, rank: int) -> str:
        """The worker's address in the lab."""
        return self._lab.fabric.address(self.places[rank])

    def switch_address(self, number: int = 0) -> str:
        """A switch's address in the lab."""
        return names.switch_address(number)

    def parent_address(self, leaf: int) -> str:
        """At the upper end of the leaf's uplink."""
        return names.uplink_addresses(leaf)[0]

    def sent_up(self) -> list[Traffic]:
        """Counted by the token buckets of the uplinks."""
        return [self._lab.sent_up(leaf) for leaf in range(self.leaves)]

    def running_switch(self) -> str | None:
        """The switch in the middle of a star, if it folds."""
        return self._lab.fabric.running_switch() if isinstance(self._lab.fabric, FrameStar) else None

    def namespace(self, rank: int) -> str | None:
        """The worker's namespace."""
        return self._lab.worker(self.places[rank])

    def traffic(self) -> list[tuple[Traffic, Traffic]] | None:
        """Counted by the token buckets of every worker's link."""
        return [self._lab.sent_and_received(place) for place in self.places]


class LocalSite:
    """All ranks on this machine's loopback."""

    switches = 1
    leaves = 0
    interface = "lo"
    rate_mbit_s = 0.0
    mtu = 65536
    topology: Path | None = None

    def __init__(self, world: int) -> None:
        self.world = world
        self.directory = Path(tempfile.mkdtemp(prefix="netfold-bench-"))

    def __enter__(self) -> LocalSite:
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)

    def command(self, rank: int) -> list[str]:
        """Empty: there is no namespace to enter."""
        return []

    def switch_command(self, number: int = 0) -> list[str]:
        """Empty: there is no namespace to enter."""
        return []

    def address(self, rank: int) -> str:
        """The loopback address."""
        return "127.0.0.1"

    def switch_address(self, number: int = 0) -> str:
        """The loopback address."""
        return "127.0.0.1"

    def parent_address(self, leaf: int) -> str:
        """The loopback address."""
        return "127.0.0.1"

    def sent_up(self) -> list[Traffic]:
        """None: there is no leaf."""
        return []

    def running_switch(self) -> str | None:
        """None: a switch must be started."""
        return None

    def namespace(self, rank: int) -> str | None:
        """None: ranks use the machine's own namespace."""
        return None

    def traffic(self) -> list[tuple[Traffic, Traffic]] | None:
        """None: loopback does not distinguish ranks."""
        return None
