"""The time of an all-reduce on a cluster: simulated at a few sizes, linear between them.

`auto` is what netfold does by default beside a switch: the switch folds a share, the ranks fold the rest (sharing.py).

With hashed routes one simulation is not representative: `seeds` simulations run, and their median is the time.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from netfold.algorithms import IN_NETWORK
from netfold.capacity import sent_among
from netfold_lab.errors import UsageError
from netfold_lab.plan.cluster.folding import BOX
from netfold_lab.plan.cluster.graph import SWITCH, Graph
from netfold_lab.plan.cluster.server import Layout
from netfold_lab.plan.cluster.spec import Cluster, Software
from netfold_lab.plan.library import mpi
from netfold_lab.plan.library.curve import Curve
from netfold_lab.plan.step import closed
from netfold_lab.plan.step.names import ALL_GATHER, ALL_REDUCE
from netfold_lab.plan.step.sharing import DIVIDED_BYTES_MIN, Shared, Way, divided

FP32_BYTES = 4
ELEMENTS_MIN = 1 << 8
PIECES = 256  # of a tensor, at most: smaller pieces change times by less than one per cent
PIECE_MIN = 1 << 14
# With more ranks steps run in lock-step, equal steps are simulated once, and algorithms by pieces are left out.
LARGE_WORLD = 128
DIRECT_MAX = 64  # ranks, beyond which flows between all pairs are too many
SHARDED = (closed.NCCL, "ring", "direct")  # they also run reduce-scatter and all-gather
LEAST, MEDIAN, MOST = range(3)
AUTO = "auto"
SIMULATED = (AUTO, "ring", "halving-doubling", "hdrm", "hierarchical", "double-binary-tree", IN_NETWORK)
COMPARED = (closed.MEASURED, *closed.COMPARED, *SIMULATED)


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

    def of(self, collective: str) -> Contender:
        """The same algorithm for another collective. Weights, which an all-gather carries, are never coded."""
        if collective == ALL_REDUCE:
            return self
        wire = "fp32" if collective == ALL_GATHER else self.wire
        return replace(self, wire=wire, options=(("collective", collective), *self.options))

    def one_of_each(self, group: int) -> Contender:
        """The same algorithm among one GPU of each group of so many."""
        return self if group == 1 else replace(self, options=(*self.options, ("one_of", group)))

    def within(self, group: int) -> Contender:
        """The same algorithm within a group of so many GPUs."""
        return replace(self, options=(*self.options, ("within", group)))


@dataclass
class Net:
    """A cluster, prepared for simulation."""

    graph: Graph
    software: Software
    ranks: tuple[int, ...] = ()
    seeds: int = 1
    layout: Layout | None = None
    kind: str = ""
    curve: Curve | None = None
    topology: Any = None
    _times: dict[tuple[Contender, int], tuple[float, float, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.topology = self.graph.topology()
        self.machine = closed.machine_of(self.graph, self.layout, self.software, self.kind)

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
        """Simulate one all-reduce of `count` elements. Raises ValueError for an invalid one.

        Of a tensor that is divided, `share` is the part through switches, and transfers are those among the ranks.
        Closed forms and measured curves have no transfers."""
        contender = self._resolved(contender, FP32_BYTES * count)
        if contender.algorithm == closed.MEASURED:
            assert self.curve is not None
            bits = np.zeros(len(self.topology.capacity_bit_s))
            return {"time_s": self.curve.seconds(FP32_BYTES * count), "bits_by_resource": bits}
        if contender.algorithm in closed.NAMES:
            assert self.machine is not None
            capacities = len(self.topology.capacity_bit_s)
            size = FP32_BYTES * count * self.software.element_bits(contender.wire) / self.software.element_bits("fp32")
            options = dict(contender.options)
            machine = self.machine.divided(options.get("tensor", 1), options.get("pipeline", 1))
            machine = machine.one_of_each(options.get("one_of", 1))
            machine = machine.within(options.get("within", machine.world))
            collective = options.get("collective", ALL_REDUCE)
            return closed.simulate(self.graph, machine, capacities, contender.algorithm, size, collective)
        if self._is_divided(contender):
            return self._divided(contender, count, seed, transfers)
        return self._simulated(contender, count, seed, transfers)

    def _resolved(self, contender: Contender, size_bytes: float) -> Contender:
        """The algorithm that runs: Open MPI takes another one for other sizes."""
        if contender.algorithm != mpi.NAME:
            return contender
        return replace(contender, algorithm=mpi.chosen(self.world, size_bytes))

    def _simulated(
        self, contender: Contender, count: int, seed: int = 0, transfers: bool = False, fold_root: int | None = None
    ) -> dict[str, Any]:
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
            fold_root=fold_root,
            **dict(contender.options),
        )

    def _is_divided(self, contender: Contender) -> bool:
        return contender.algorithm == AUTO or (contender.algorithm == IN_NETWORK and len(self.boxes) > 1)

    @property
    def boxes(self) -> list[int]:
        """The nodes of folding machines beside the fabric."""
        return [at for at, node in enumerate(self.graph.nodes) if node.role == BOX]

    def _divided(self, contender: Contender, count: int, seed: int, transfers: bool) -> dict[str, Any]:
        """One all-reduce that several machines, or machines and ranks, carry together."""
        through = Contender(IN_NETWORK, contender.wire)
        roots: list[int | None] = [*self.boxes] or [None]
        ways = [self._way(through, count, seed, root) for root in roots]
        ranks = Contender("direct" if self.world <= DIRECT_MAX else "ring", contender.wire)
        among = self._way(ranks, count, seed) if contender.algorithm == AUTO else None
        found: Shared = divided(ways, among, self._capacities(), FP32_BYTES * count < DIVIDED_BYTES_MIN)
        told: dict[str, Any] = {"time_s": found.seconds, "bits_by_resource": found.bits, "share": found.share}
        if transfers:
            left = max(1, round(count * (1 - found.share)))
            told["transfers"] = self._simulated(ranks, left, seed, transfers=True)["transfers"]
        return told

    def _way(self, contender: Contender, count: int, seed: int, root: int | None = None) -> Way:
        whole = self._simulated(contender, count, seed, fold_root=root)
        times = {count: whole["time_s"]}

        def at(elements: int) -> float:
            if elements not in times:
                times[elements] = self._simulated(contender, elements, seed, fold_root=root)["time_s"]
            return times[elements]

        return Way(whole["bits_by_resource"], lambda part: between_powers(at, part * count) if part > 0 else 0.0)

    def _capacities(self) -> Any:
        return self.topology.capacity_bit_s

    def on(self, graph: Graph, software: Software | None = None, ranks: tuple[int, ...] | None = None) -> Net:
        """The same cluster with another graph, software or order of ranks."""
        return Net(
            graph,
            software or self.software,
            self.ranks if ranks is None else ranks,
            self.seeds,
            self.layout,
            self.kind,
            self.curve,
        )

    def seconds(self, contender: Contender, size_bytes: float, quantile: int = MEDIAN) -> float:
        """Seconds of one all-reduce of this number of bytes of fp32: simulated at powers of two, linear between
                them. It includes coding and staging, if the file has their rates. `quantile`: of several seeds
        LEAST, MEDIAN or MOST."""
        contender = self._resolved(contender, size_bytes)
        if contender.algorithm in closed.EVERY:
            return self._at(contender, max(1, math.ceil(size_bytes / FP32_BYTES)))[quantile]
        simulated = between_powers(lambda count: self._at(contender, count)[quantile], size_bytes / FP32_BYTES)
        return max(simulated, self._coding_s(contender, size_bytes)) + self._staging_s(size_bytes)

    def _coding_s(self, contender: Contender, size_bytes: float) -> float:
        """A worker's engine encodes what it sends and decodes what it receives, while other packets are on their
        way."""
        software = self.software
        if contender.wire == "fp32":
            return 0.0
        copies = 1.0 if contender.algorithm == IN_NETWORK else sent_among(self.world)
        copies /= 2 if contender.options and contender.options[0][0] == "collective" else 1
        rates = [rate for rate in (software.encode_bytes_s, software.decode_bytes_s) if rate]
        return sum(copies * size_bytes / rate for rate in rates)

    def _staging_s(self, size_bytes: float) -> float:
        """A bucket is copied to host memory before its all-reduce, and back after it."""
        return 2 * size_bytes / self.software.stage_bytes_s if self.software.stage_bytes_s else 0.0

    def _at(self, contender: Contender, count: int) -> tuple[float, float, float]:
        key = (contender, count)
        if key not in self._times:
            runs = [self.simulate(contender, count, seed)["time_s"] for seed in range(self._seeds_for(contender))]
            self._times[key] = min(runs), statistics.median(runs), max(runs)
        return self._times[key]

    def _seeds_for(self, contender: Contender) -> int:
        is_fixed = contender.algorithm in (IN_NETWORK, *closed.EVERY)
        is_hashed = self.graph.spread == "hash" and not is_fixed
        return self.seeds if is_hashed else 1


def between_powers(at: Callable[[int], float], elements: float) -> float:
    """A time at powers of two, linear between them."""
    count = max(ELEMENTS_MIN, math.ceil(elements))
    lower = 1 << (count.bit_length() - 1)
    if lower == count:
        return at(lower)
    at_lower, at_upper = at(lower), at(2 * lower)
    return at_lower + (at_upper - at_lower) * (count - lower) / lower


def net_of(cluster: Cluster, seeds: int = 1) -> Net:
    """Prepare a cluster's graph and software."""
    return Net(cluster.graph(), cluster.software, cluster.ranks, seeds, cluster.layout, cluster.kind, cluster.measured)


def contenders(
    cluster: Cluster,
    graph: Graph,
    wanted: Sequence[str] = (),
    is_sharded: bool = False,
    tensor: int = 1,
    pipeline: int = 1,
    has_groups: bool = False,
) -> list[Contender]:
    """The algorithms of `wanted` (empty: COMPARED) that this cluster supports. `is_sharded`: those that also run
    reduce-scatter and all-gather. `tensor`, `pipeline`: those among the GPUs that hold the same part of a model which
    so many divide, which are NCCL's. `has_groups`: groups of GPUs share experts, or shards. Raises UsageError for a
    wanted one that does not."""
    divided = {"tensor": tensor, "pipeline": pipeline} if tensor * pipeline > 1 else {}
    if divided or has_groups:
        if strange := [name for name in wanted if not name.startswith(closed.NCCL)]:
            what = "tensor" if tensor > 1 else "pipeline"
            what = f"{what} parallelism" if divided else "groups of GPUs"
            raise UsageError(f"{strange[0]} is not planned with {what}; take {closed.NCCL}")
        wanted = wanted or (closed.NCCL,)
    if is_sharded and (strange := [name for name in wanted if name not in SHARDED]):
        raise UsageError(f"{strange[0]} is an all-reduce; for sharded training take {', '.join(SHARDED)}")
    found = []
    for name in wanted or (SHARDED if is_sharded else COMPARED):
        options = _options(name, cluster, graph, bool(wanted))
        if options is not None:
            options |= divided
            found.append(Contender(name, closed.wire_of(name, cluster.software.wire), tuple(options.items())))
    return found


def _options(name: str, cluster: Cluster, graph: Graph, is_wanted: bool) -> dict[str, Any] | None:
    """Parameters of an algorithm on a cluster; None if the cluster does not support it, or if it is not compared unless
    it is named."""
    world = len(graph.hosts)
    if name == "hdrm":
        shape = cluster.shape
        fits = shape is not None and shape[0] * shape[1] == world and not cluster.ranks
        return {"sub_nodes": shape[0], "switches": shape[1]} if shape and fits else None
    if name == "hierarchical":
        group = cluster.layout.gpus if cluster.layout else 1
        return {"group": group} if 1 < group < world and (is_wanted or world <= LARGE_WORLD) else None
    if name == closed.MEASURED:
        return {} if cluster.measured is not None else None
    if name in closed.NAMES:
        machine = closed.machine_of(graph, cluster.layout, cluster.software, cluster.kind)
        return {} if machine is not None and closed.pieces_of(machine, name) else None
    if name in (AUTO, IN_NETWORK):
        return {} if any(node.kind == SWITCH and node.fold_bit_s for node in graph.nodes) else None
    is_late = name == "double-binary-tree" and not is_wanted and world > LARGE_WORLD
    return None if is_late or (name == "direct" and world > DIRECT_MAX) else {}
