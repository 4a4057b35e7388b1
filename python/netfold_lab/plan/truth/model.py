"""The time of an all-reduce in a lab: simulated on the lab's own graph, with a few constants of this machine.

A lab's links are token buckets. A full bucket passes its burst at once. So an all-reduce is shorter by the time of the
burst at the link's rate, but not shorter than the software time of its messages. Bytes on the wire are from
bench/bounds.py.

If the link of the switch has a rate, the switch is a machine beside the bridge: all workers' packets pass that link.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from netfold.algorithms import IN_NETWORK
from netfold.topology.wiring import BIGRAPH
from netfold_lab.bench import bounds
from netfold_lab.lab.spec import STAR, LabSpec
from netfold_lab.plan.cluster import fabric, folding
from netfold_lab.plan.cluster.graph import SWITCH, Graph

ELEMENT_BYTES = 4
PIECES, PIECE_MIN = 256, 2048
BITS = 8
FP32 = "fp32"
BFP = (16, 7)  # elements of a block, bits of a mantissa: the defaults of the backend
Routes = Mapping[tuple[int, int], list[int]]
"""For each (sender, receiver): the switches on the way, for pairs with a known route."""


@dataclass(frozen=True)
class Machine:
    """Constants of the emulating machine, by transport: seconds of software per message, and the usable part of a
    link's rate. In-network packets use UDP, packets among ranks TCP."""

    step_s: float = 0.0
    efficiency: float = 1.0
    switch_step_s: float = 0.0
    switch_efficiency: float = 1.0

    def of(self, algorithm: str) -> tuple[float, float]:
        """Seconds per message, and efficiency."""
        if algorithm == IN_NETWORK:
            return self.switch_step_s, self.switch_efficiency
        return self.step_s, self.efficiency


@dataclass
class LabModel:
    """Predicts all-reduces in a lab. `routes`: the paths of connections, if the kernel's hash chose them."""

    spec: LabSpec
    machine: Machine = field(default_factory=Machine)
    routes: Routes = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.graph = graph_of(self.spec)
        self.topology = self.graph.topology()
        for (one, other), switches in self.routes.items():
            self.topology.set_path(one, other, path(self.graph, one, other, switches))

    def seconds(self, algorithm: str, size_bytes: int) -> float:
        """The time of one all-reduce of fp32. Raises ValueError if the lab does not support the algorithm."""
        count = max(1, size_bytes // ELEMENT_BYTES)
        return max(self.busy_seconds(algorithm, self.spec.workers), self.busy_seconds(algorithm, count) - self.burst_s)

    @property
    def burst_s(self) -> float:
        """The time that a full token bucket saves."""
        return BITS * self.spec.burst_bytes / (self.spec.rate_mbit_s * 1e6)

    def busy_seconds(self, algorithm: str, count: int, wire: str = FP32) -> float:
        """The time of one all-reduce of `count` elements in a wire format, on links that were busy before: their token
        buckets are empty."""
        from netfold import _core

        step_s, efficiency = self.machine.of(algorithm)
        options: dict[str, Any] = {}
        if algorithm == "hdrm":
            options = dict(zip(("sub_nodes", "switches"), shape_of(self.spec), strict=True))
        run = _core.simulate(
            self.topology,
            algorithm,
            count,
            element_bits=element_bits(algorithm, count, self.spec.mtu, wire) / efficiency,
            step_latency_s=step_s,
            spread=self.graph.spread,
            piece_count=max(PIECE_MIN, count // PIECES),
            **options,
        )
        return run["time_s"]


def element_bits(algorithm: str, count: int, mtu: int, wire: str = FP32) -> float:
    """Bits of an element on the wire, with headers."""
    if algorithm == IN_NETWORK:
        return BITS * bounds.in_network_wire_bytes(count, mtu, wire) / count
    payload = mtu - bounds.IP_TCP
    return BITS * bounds.payload_bytes(count, wire, *BFP) / count * (mtu + bounds.ETHERNET) / payload


def shape_of(spec: LabSpec) -> tuple[int, int]:
    """Sub-nodes x switches; on a star the squarest BiGraph with the same number of workers, which orders HDRM's
    partners."""
    if spec.fabric != STAR:
        return spec.shape
    switches = 2
    while spec.workers // switches > switches // 2:
        switches *= 2
    return spec.workers // switches, switches


def graph_of(spec: LabSpec) -> Graph:
    """The lab's links as a graph. A star's bridge also represents the switch, unless the switch's link has a rate."""
    sizes = {"ports": spec.workers}
    if spec.fabric != STAR:
        sizes = {"sub_nodes": spec.shape[0], "switches": spec.shape[1]}
    made = fabric.build(spec.fabric, sizes, spec.rate_mbit_s * 1e6, 0.0)
    if spec.fabric == STAR:
        folds = [at for at, node in enumerate(made.nodes) if node.kind == SWITCH]
        if spec.switch_rate_mbit_s:
            beside = folding.Folding(folding.ATTACHED, link_bit_s=spec.switch_rate_mbit_s * 1e6)
            folds = folding.attach(made, folds, beside, 0.0, 0.0)
        made.fold_at(folds, float("inf"))
    made.spread = "destination" if spec.fabric == BIGRAPH else "hash"
    return made


def path(graph: Graph, one: int, other: int, switches: list[int]) -> list[int]:
    """The links from host to host over these switches, with the fabric's numbers."""
    numbers = [at for at, node in enumerate(graph.nodes) if node.kind == SWITCH]
    stops = [graph.hosts[one], *(numbers[each] for each in switches), graph.hosts[other]]
    by_ends = {(link.source, link.target): at for at, link in enumerate(graph.links)}
    return [by_ends[pair] for pair in pairwise(stops)]
