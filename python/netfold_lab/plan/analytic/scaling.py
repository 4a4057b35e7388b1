"""Steps over numbers of nodes: Figure 4b of "FPGA-based AI Smart NICs", and the same axes for every algorithm.

Host algorithms run on the paper's smart NIC in place of its ring. `in-network` is a switch with the same NICs that
folds at the rate of its ports (Table II of "AllReduce-Switch").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from netfold_lab.errors import UsageError
from netfold_lab.plan.analytic import allreduce, iteration
from netfold_lab.plan.analytic.iteration import Step
from netfold_lab.plan.analytic.smart_nic import ARRIA, BFP_RATIO, SYSTEMS, XEON, SmartNic, Worker
from netfold_lab.plan.models.layers import Model

NODES_MAX = 4096
HOP_S = 1e-6  # from NIC to NIC, per step


@dataclass(frozen=True)
class Point:
    """A step of `nodes` workers. `scaling`: samples per second, relative to one node."""

    system: str
    algorithm: str
    format: str
    nodes: int
    step: Step
    scaling: float
    speedup_over_baseline: float

    def entry(self) -> dict[str, Any]:
        """The name in reports."""
        told = asdict(self)
        parts = told.pop("step")
        return told | parts | {"time_s_median": self.step.total_s}


def nodes_of(text: str) -> list[int]:
    """`3..32` as 3, 4, ... 32; `4,8,16` as these numbers; both can be combined with commas. Raises UsageError."""
    found: list[int] = []
    for part in text.split(","):
        first, dots, last = part.partition("..")
        try:
            found += range(int(first), int(last) + 1) if dots else [int(first)]
        except ValueError:
            raise UsageError(f"--nodes takes numbers and ranges, such as 3..32 or 4,8,16, not {part!r}") from None
    if not found or min(found) < 1 or max(found) > NODES_MAX:
        raise UsageError(f"--nodes must be from 1 to {NODES_MAX}, not {text}")
    return sorted(set(found))


def rates_of(nic: SmartNic) -> allreduce.Rates:
    """The smart NIC as a node for any algorithm."""
    return allreduce.Rates(nic.ethernet_bit_s * nic.usable, HOP_S, nic.adds_s, nic.pcie_bit_s, nic.ratio)


def points(model: Model, batch: int, nodes: Sequence[int], algorithms: Sequence[str] = ()) -> list[Point]:
    """The paper's three systems at each number of nodes, then `algorithms` without and with bfp."""
    if batch < 1:
        raise UsageError(f"--batch must be at least 1, not {batch}")
    baseline = {n: SYSTEMS["baseline"].step(model.layers, batch, n, XEON) for n in nodes}
    alone = SYSTEMS["baseline"].step(model.layers, batch, 1, XEON).total_s

    def point(system: str, algorithm: str, wire: str, n: int, step: Step) -> Point:
        scaled = n * alone / step.total_s
        return Point(system, algorithm, wire, n, step, scaled, baseline[n].total_s / step.total_s)

    found = [
        point(name, "ring", "bfp" if "bfp" in name else "fp32", n, system.step(model.layers, batch, n, XEON))
        for name, system in SYSTEMS.items()
        for n in nodes
    ]
    for algorithm in algorithms:
        for wire, ratio in (("fp32", 1.0), ("bfp", BFP_RATIO)):
            nic = SmartNic(ARRIA.ethernet_bit_s, ARRIA.adds_s, ARRIA.pcie_bit_s, ratio)
            for n in nodes:
                if algorithm in allreduce.algorithms(n):
                    step = any_step(model, batch, n, algorithm, rates_of(nic), XEON)
                    found.append(point(f"{algorithm}, {wire}", algorithm, wire, n, step))
    return found


def any_step(
    model: Model, batch: int, nodes: int, algorithm: str, rates: allreduce.Rates, worker: Worker
) -> iteration.Step:
    """T_total with any algorithm's T_AR."""
    times = [allreduce.reduce_s(algorithm, layer.parameters, nodes, rates) for layer in model.layers]
    return iteration.step(*worker.times(model.layers, batch), times)


def ratio(points_found: Sequence[Point], system: str, nodes: int) -> float:
    """A system's speed-up over the baseline at this number of nodes."""
    return next(p.speedup_over_baseline for p in points_found if p.system == system and p.nodes == nodes)
