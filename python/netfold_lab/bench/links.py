"""The load of each link in each swap of halving-doubling: predicted by schedule and routes, and counted by the links.

A *swap* is the pair of steps in which two partners exchange halves, once on the way down and once on the way up. Both
steps have the same connections, so bytes that the kernel counted by sender and receiver belong to one swap.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from netfold.topology.wiring import BIGRAPH, Wiring
from netfold_lab.bench import tensors
from netfold_lab.bench.comparison import ComparisonSettings
from netfold_lab.bench.measure import Team
from netfold_lab.bench.sites import LabSite
from netfold_lab.bench.systems import NetfoldHosts
from netfold_lab.errors import UsageError
from netfold_lab.lab import flows
from netfold_lab.lab.cluster import Lab
from netfold_lab.lab.spec import LabSpec

ALGORITHMS = ("hdrm", "halving-doubling")  # algorithms in which every step is a swap
SURVEY_BYTES = 1 << 20  # at most: larger tensors behave the same, and take longer
ELEMENT_BYTES = 4
NOISE = 0.2  # of the largest connection on a link in a swap: smaller counts are acknowledgements

Cells = dict[tuple[tuple[int, int], int], list[int]]
"""For each (link, swap): the bytes of each connection. A link is a cable in one direction, (from switch, to switch)."""


@dataclass(frozen=True)
class LinkUse:
    """One map: an algorithm's bytes by link and swap."""

    algorithm: str
    source: str  # predicted or measured
    swaps: int
    cells: Cells

    def connections_max(self) -> int:
        """The largest number of connections on any link in one swap."""
        return max((len(each) for each in self.cells.values()), default=0)


class Swaps:
    """The swaps of one schedule: the swap in which each pair of ranks exchanges."""

    def __init__(self, algorithm: str, world: int, count: int, shape: tuple[int, int], order: list[int]) -> None:
        from netfold import _core

        self.of: dict[tuple[int, int], int] = {}
        self.bytes: dict[tuple[int, int], int] = defaultdict(int)
        options: dict[str, Any] = {"sub_nodes": shape[0], "switches": shape[1]}
        if algorithm == "hdrm":
            options["order"] = order
        for rank in range(world):
            for number, step in enumerate(_core.schedule(algorithm, world, rank, count, **options)):
                for action, peer, _, elements in step:
                    if action == "send":
                        self.of.setdefault((rank, peer), number)
                        self.bytes[rank, peer] += elements * ELEMENT_BYTES
        self.count = 1 + max(self.of.values(), default=-1)


def predicted(algorithm: str, swaps: Swaps, wiring: Wiring, places: list[int]) -> LinkUse:
    """Predict the load from the schedule and the static routes of a BiGraph. `places`: each rank's position."""
    cells: Cells = defaultdict(list)
    for (sender, receiver), swap in swaps.of.items():
        for link in wiring.path(places[sender], places[receiver]):
            cells[link, swap].append(swaps.bytes[sender, receiver])
    return LinkUse(algorithm, "predicted", swaps.count, cells)


def measured(algorithm: str, swaps: Swaps, lab: Lab, site: LabSite, all_reduce: Callable[[str], object]) -> LinkUse:
    """Measure the load with the kernel's counters, during one all-reduce that is not timed."""
    flows.start(lab)
    try:
        all_reduce(algorithm)
        found = flows.read(lab)
    finally:
        flows.stop(lab)
    rank_at = {site.address(rank): rank for rank in range(site.world)}
    cells: Cells = defaultdict(list)
    for (begin, end, sender, receiver), count in found.items():
        swap = swaps.of.get((rank_at[sender], rank_at[receiver]))
        if swap is not None:
            cells[(begin, end), swap].append(count)
    for key, each in cells.items():
        cells[key] = [count for count in each if count >= NOISE * max(each)]
    return LinkUse(algorithm, "measured", swaps.count, cells)


def surveyed(spec: LabSpec, settings: ComparisonSettings) -> list[str]:
    """The algorithms that can be surveyed in a lab. Raises UsageError if there is no such algorithm."""
    names = [each.algorithm for each in settings.hosts() if each.algorithm in ALGORITHMS]
    if spec.fabric != BIGRAPH or not names:
        raise UsageError(f"--links-out needs --fabric bigraph and --algorithm {' or '.join(ALGORITHMS)}")
    return names


def survey(spec: LabSpec, settings: ComparisonSettings, progress: Callable[[str], None]) -> list[LinkUse]:
    """Predict, then measure each algorithm of the plan that consists of swaps, in a lab of its own, without timing."""
    names = surveyed(spec, settings)
    hosts = [each for each in settings.hosts() if each.algorithm in names]
    uses = []
    with Lab(spec) as lab:
        site = LabSite(lab, settings.places(spec.workers))
        wiring = spec.wiring()
        assert wiring is not None, "checked by surveyed"
        order = sorted(range(site.world), key=site.places.__getitem__)
        size_bytes = min(SURVEY_BYTES, max(settings.sizes.values()))
        tensor = tensors.make(site.directory, "links", size_bytes, "fp32", site.world, settings.seed)
        with Team(NetfoldHosts(hosts, "fp32"), site, settings.timeout_s) as team:
            team.prepare(tensor, "fp32")
            for name in names:
                progress(f"links of {name}")
                swaps = Swaps(name, site.world, tensor.count, spec.shape, order)
                uses.append(predicted(name, swaps, wiring, site.places))
                uses.append(measured(name, swaps, lab, site, lambda algorithm: team.run(algorithm, 1)))
    return uses


def with_links(entries: list[dict[str, Any]], uses: list[LinkUse]) -> list[dict[str, Any]]:
    """The entries of a report, with the loads of links added to those that were surveyed."""
    told: dict[str, dict[str, Any]] = defaultdict(dict)
    for use in uses:
        told[use.algorithm] |= {
            f"connections_per_link_max_{use.source}": use.connections_max(),
            f"links_{use.source}": [
                {"from_switch": begin, "to_switch": end, "swap": swap, "connection_bytes": each}
                for ((begin, end), swap), each in sorted(use.cells.items())
            ],
        }
    return [one | told[one["algorithm"]] if one["system"] == "netfold" else one for one in entries]
