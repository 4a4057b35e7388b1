"""The time of an all-reduce on a cluster: simulated at a few sizes, linear between them.

With hashed routes one simulation is not representative: `seeds` simulations run, and their median is the time.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from netfold.algorithms import IN_NETWORK
from netfold_lab.plan.cluster.graph import SWITCH, Graph
from netfold_lab.plan.cluster.spec import Cluster, Software

FP32_BYTES = 4
ELEMENTS_MIN = 1 << 8
PIECES = 256  # of a tensor, at most: smaller pieces change times by less than one per cent
PIECE_MIN = 1 << 14
# With more ranks steps run in lock-step, equal steps are simulated once, and algorithms by pieces are left out.
LARGE_WORLD = 128
DIRECT_MAX = 64  # ranks, beyond which flows between all pairs are too many
COMPARED = ("ring", "halving-doubling", "hdrm", "hierarchical", "double-binary-tree", IN_NETWORK)


@dataclass(frozen=True)
class Contender:
    """An algorithm and its parameters; `wire` is the format on the links."""

    algorithm: str
    wire: str = "fp32"
    options: tuple[tuple[str, Any], ...] = ()

    @property
    def name(self) -> str:
        """The name in tables."""
        return self.algorithm if self.wire == "fp32" else f"{self.algorithm}, {self.wire}"


@dataclass
class Net:
    """A cluster, prepared for simulation."""

    graph: Graph
    software: Software
    ranks: tuple[int, ...] = ()
    seeds: int = 1
    topology: Any = None
    _times: dict[tuple[Contender, int], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.topology = self.graph.topology()

    @property
    def world(self) -> int:
        """The number of workers."""
        return len(self.graph.hosts)

    @property
    def start(self) -> str:
        """The start rule of transfers: from the file; by default lock-step in large worlds."""
        is_large = self.world > LARGE_WORLD and self.software.start == "runtime"
        return "lock-step" if is_large else self.software.start

    def simulate(self, contender: Contender, count: int, seed: int = 0, transfers: bool = False) -> dict[str, Any]:
        """Simulate one all-reduce of `count` elements. Raises ValueError for an invalid one."""
        from netfold import _core

        return _core.simulate(
            self.topology,
            contender.algorithm,
            count,
            hosts=list(self.ranks),
            element_bits=self.software.element_bits(contender.wire),
            start=self.start,
            step_latency_s=self.software.step_latency_s,
            piece_count=max(PIECE_MIN, count // PIECES),
            spread=self.graph.spread,
            seed=seed,
            transfers=transfers,
            **dict(contender.options),
        )

    def seconds(self, contender: Contender, size_bytes: float) -> float:
        """Seconds of one all-reduce of this number of bytes of fp32: simulated at powers of two, linear between
        them."""
        elements = max(ELEMENTS_MIN, math.ceil(size_bytes / FP32_BYTES))
        lower = 1 << (elements.bit_length() - 1)
        if lower == elements:
            return self._at(contender, lower)
        at_lower, at_upper = self._at(contender, lower), self._at(contender, 2 * lower)
        return at_lower + (at_upper - at_lower) * (elements - lower) / lower

    def _at(self, contender: Contender, count: int) -> float:
        key = (contender, count)
        if key not in self._times:
            runs = [self.simulate(contender, count, seed)["time_s"] for seed in range(self._seeds_for(contender))]
            self._times[key] = statistics.median(runs)
        return self._times[key]

    def _seeds_for(self, contender: Contender) -> int:
        is_hashed = self.graph.spread == "hash" and contender.algorithm != IN_NETWORK
        return self.seeds if is_hashed else 1


def net_of(cluster: Cluster, seeds: int = 1) -> Net:
    """Prepare a cluster's graph and software."""
    return Net(cluster.graph(), cluster.software, cluster.ranks, seeds)


def contenders(cluster: Cluster, graph: Graph, wanted: Sequence[str] = ()) -> list[Contender]:
    """The algorithms of `wanted` (empty: COMPARED) that this cluster supports."""
    world, wire = len(graph.hosts), cluster.software.wire
    found = []
    for name in wanted or COMPARED:
        options: dict[str, Any] = {}
        if name == "hdrm":
            shape = cluster.shape
            if shape is None or shape[0] * shape[1] != world or cluster.ranks:
                continue
            options = {"sub_nodes": shape[0], "switches": shape[1]}
        elif name == "hierarchical":
            group = cluster.layout.gpus if cluster.layout else 1
            if not 1 < group < world or (not wanted and world > LARGE_WORLD):
                continue
            options = {"group": group}
        elif name == IN_NETWORK:
            if not any(node.kind == SWITCH and node.fold_bit_s for node in graph.nodes):
                continue
        elif (name == "double-binary-tree" and not wanted and world > LARGE_WORLD) or (
            name == "direct" and world > DIRECT_MAX
        ):
            continue
        found.append(Contender(name, wire, tuple(options.items())))
    return found
