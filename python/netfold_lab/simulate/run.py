"""One run: a collective on a network, its time over the seeds, the busiest resources, a trace for Perfetto."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any

from netfold_lab.simulate.networks import HASH, Network

FP32_BITS = 32.0
PIECES = 256  # most pieces of a tensor, if pieces may overtake
PIECE_MIN = 1 << 12
BUSIEST = 5
MICROSECONDS = 1e6
MESSAGES_MAX = 50_000  # in a trace: with more the viewer stalls


@dataclass(frozen=True)
class Question:
    """`element_bits`: bits of an element on the wire; `start`: the start rule of transfers (core/sim/collective.h)."""

    algorithm: str
    count: int
    start: str = "runtime"
    step_latency_s: float = 0.0
    element_bits: float = FP32_BITS
    group: int = 0
    between: str = "ring"
    rehash: bool = False

    def options(self, network: Network) -> dict[str, Any]:
        """Arguments for the simulator and the schedule."""
        return {
            "start": self.start,
            "step_latency_s": self.step_latency_s,
            "element_bits": self.element_bits,
            "piece_count": max(PIECE_MIN, -(-self.count // PIECES)),
            "group": self.group,
            "between": self.between,
            **network.options,
        }


def _simulate(network: Network, question: Question, **more: Any) -> dict[str, Any]:
    from netfold import _core

    return _core.simulate(
        network.topology,
        question.algorithm,
        question.count,
        hosts=network.hosts,
        spread=network.spread,
        rehash=question.rehash,
        **question.options(network),
        **more,
    )


def simulate(network: Network, question: Question, seeds: int) -> dict[str, Any]:
    """The result of a command: `time_s` by seed, the median, the busiest resources of the last seed.

    Raises ValueError for an invalid collective.
    """
    found = _simulate(network, question, seeds=list(range(seeds if network.spread == HASH else 1)))
    times = found["time_s_by_seed"].tolist()
    return {
        "system": "netfold",
        "algorithm": question.algorithm,
        "workers": network.world,
        "time_s": times,
        "time_s_median": statistics.median(times),
        "time_s_p95": sorted(times)[max(0, -(-95 * len(times) // 100) - 1)],
        "kinds_of_steps": found["kinds"],
        "busiest": busiest(network, found["bits_by_resource"], found["time_s"]),
    }


def busiest(network: Network, bits: Any, time_s: float) -> list[dict[str, Any]]:
    """The resources with the highest use."""
    if time_s <= 0:
        return []
    use = bits / network.topology.capacity_bit_s / time_s
    order = (-use).argsort(kind="stable")[:BUSIEST]
    return [
        {
            "resource": network.topology.resource_name(int(at)),
            "busy": float(use[at]),
            "size_bytes": float(bits[at]) / 8,
        }
        for at in order
        if use[at] > 0
    ]


def packets(network: Network, question: Question, seed: int = 0, **settings: Any) -> dict[str, Any]:
    """The same with packets (core/sim/packet_simulator.h), for small worlds. Raises ValueError for an invalid
    collective."""
    from netfold import _core

    workload = _core.Workload.collective(question.algorithm, network.world, question.count, **question.options(network))
    return _core.simulate_packets(
        network.topology, workload, hosts=network.hosts, spread=network.spread, seed=seed, **settings
    )


def trace(network: Network, question: Question, seed: int = 0) -> dict[str, Any]:
    """Transfers in the Trace Event Format, with a lane for each sender; the first MESSAGES_MAX."""
    found = _simulate(network, question, seed=seed, transfers=True)
    columns = ("sender", "receiver", "step", "size_bits", "is_folded", "start_s", "end_s")
    rows = zip(*(found["transfers"][name].tolist() for name in columns), strict=True)
    events: list[dict[str, Any]] = [
        {"name": "process_name", "ph": "M", "pid": 0, "args": {"name": f"{question.algorithm} on {network.name}"}}
    ]
    for _, (sender, receiver, step, bits, folded, start, end) in zip(range(MESSAGES_MAX), rows, strict=False):
        events.append(
            {
                "name": f"to {receiver}" if receiver >= 0 else "fold in the network",
                "cat": "fold" if folded else "store",
                "ph": "X",
                "pid": 0,
                "tid": max(0, sender),
                "ts": start * MICROSECONDS,
                "dur": (end - start) * MICROSECONDS,
                "args": {"step": step, "size_bytes": bits / 8},
            }
        )
    return {"traceEvents": events, "displayTimeUnit": "ms"}
