"""Which link carries what in which swap of a halving-doubling: what schedule and routes foretell, what links counted.

A *swap* is the pair of steps in which two partners exchange halves on the way down and again on the way up; its
connections are the same, so bytes that the kernel counted by sender and receiver fall to one swap.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from netfold.bench import tensors
from netfold.bench.comparison import Plan
from netfold.bench.measure import Team
from netfold.bench.sites import LabSite
from netfold.bench.systems import NetfoldHosts
from netfold.lab import flows
from netfold.lab.cluster import Lab
from netfold.lab.errors import UsageError
from netfold.lab.spec import LabSpec
from netfold.topology.wiring import BIGRAPH, Wiring

ALGORITHMS = ("hdrm", "halving-doubling")  # those whose every step is a swap
SURVEY_BYTES = 1 << 20  # at most: what larger tensors do is the same, and takes longer
ELEMENT_BYTES = 4
NOISE = 0.2  # of the largest connection on a link in a swap: less is acknowledgements

Cells = dict[tuple[tuple[int, int], int], list[int]]
"""By (link, swap): the bytes of each connection there. A link is a cable in one direction, (from switch, to switch)."""


@dataclass(frozen=True)
class LinkUse:
    """One picture: an algorithm's bytes by link and swap."""

    algorithm: str
    source: str  # predicted or measured
    swaps: int
    cells: Cells

    def connections_max(self) -> int:
        """The most connections that any link carries in one swap."""
        return max((len(each) for each in self.cells.values()), default=0)


class Swaps:
    """The swaps of one schedule: which pair of ranks meets in which."""

    def __init__(self, algorithm: str, world: int, count: int, shape: tuple[int, int], order: list[int]) -> None:
        from netfold import _core

        self.of: dict[tuple[int, int], int] = {}
        self.bytes: dict[tuple[int, int], int] = defaultdict(int)
        options = {"sub_nodes": shape[0], "switches": shape[1]}
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
    """By the schedule and the static routes of a BiGraph. `places`: each rank's position."""
    cells: Cells = defaultdict(list)
    for (sender, receiver), swap in swaps.of.items():
        for link in wiring.path(places[sender], places[receiver]):
            cells[link, swap].append(swaps.bytes[sender, receiver])
    return LinkUse(algorithm, "predicted", swaps.count, cells)


def measured(algorithm: str, swaps: Swaps, lab: Lab, site: LabSite, all_reduce: Callable[[str], None]) -> LinkUse:
    """By the kernel's counters, during one all-reduce that is not timed."""
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


def surveyed(spec: LabSpec, plan: Plan) -> list[str]:
    """Which algorithms of a plan can be surveyed on a lab. Raises UsageError where none can."""
    names = [each.algorithm for each in plan.hosts() if each.algorithm in ALGORITHMS]
    if spec.fabric != BIGRAPH or not names:
        raise UsageError(f"--links-out needs --fabric bigraph and --algorithm {' or '.join(ALGORITHMS)}")
    return names


def survey(spec: LabSpec, plan: Plan, progress: Callable[[str], None]) -> list[LinkUse]:
    """Each of the plan's algorithms that swaps, predicted and then measured, in a lab of its own; nothing is timed."""
    names = surveyed(spec, plan)
    hosts = [each for each in plan.hosts() if each.algorithm in names]
    uses = []
    with Lab(spec) as lab:
        site = LabSite(lab, plan.places(spec.workers))
        wiring = lab.fabric.wiring
        order = sorted(range(site.world), key=site.places.__getitem__)
        size_bytes = min(SURVEY_BYTES, max(plan.sizes.values()))
        tensor = tensors.make(site.directory, "links", size_bytes, "fp32", site.world, plan.seed)
        with Team(NetfoldHosts(hosts, "fp32"), site, plan.timeout_s) as team:
            team.prepare(tensor, "fp32")
            for name in names:
                progress(f"links of {name}")
                swaps = Swaps(name, site.world, tensor.count, spec.shape, order)
                uses.append(predicted(name, swaps, wiring, site.places))
                uses.append(measured(name, swaps, lab, site, lambda algorithm: team.run(algorithm, 1)))
    return uses


def with_links(entries: list[dict[str, Any]], uses: list[LinkUse]) -> list[dict[str, Any]]:
    """The entries of a report, those that were surveyed with what their links carried."""
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
