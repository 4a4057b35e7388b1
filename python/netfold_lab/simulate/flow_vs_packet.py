"""The difference between packet and flow simulation: all-reduces of small worlds, simulated both ways."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

SHAPES = ((2, 8), (4, 16), (8, 32))  # 16, 64 and 256 workers
NETWORKS = (("bigraph", "destination"), ("bigraph", "hash"), ("fat_tree", "hash"))
ALGORITHMS = ("ring", "halving-doubling", "hdrm")
MIB = (1, 16)
RATE_BIT_S, HOP_S = 100e9, 500e-9
WAYS: dict[str, dict[str, Any]] = {  # packet models: with all assumptions of flows, then without one of them
    "cut-through, flows in turn": {"cut_through": True, "fair_queues": True},
    "store-and-forward, flows in turn": {"cut_through": False, "fair_queues": True},
    "cut-through, as they came": {"cut_through": True, "fair_queues": False},
}


def cases() -> Iterator[tuple[tuple[int, int], str, str, str, int]]:
    """Shape, network, spread, algorithm and MiB; for 256 workers only small tensors."""
    for shape in SHAPES:
        for network, spread in NETWORKS:
            for algorithm in ALGORITHMS:
                for mib in MIB[: 1 if shape == SHAPES[-1] else None]:
                    yield shape, network, spread, algorithm, mib


def measure(start: str, on_result: Callable[[], None] = lambda: None) -> list[dict[str, Any]]:
    """Each case's time with flows, and the difference of each packet model (0.05: 5% longer)."""
    from netfold import _core

    results = []
    for shape, network, spread, algorithm, mib in cases():
        sub_nodes, switches = shape
        topology = getattr(_core.Topology, network)(*shape, rate_bit_s=RATE_BIT_S, latency_s=HOP_S)
        workers, count = sub_nodes * switches, mib << 18
        workload = _core.Workload.collective(
            algorithm, workers, count, start=start, sub_nodes=sub_nodes, switches=switches
        )
        flows_s = _core.simulate_workload(topology, workload, spread=spread)["time_s"]
        longer = {}
        for way, settings in WAYS.items():
            found = _core.simulate_packets(
                topology, workload, spread=spread, priorities="hop", priority_count=2, **settings
            )
            longer[way] = found["time_s"] / flows_s - 1
        results.append(
            {
                "system": "netfold",
                "algorithm": algorithm,
                "network": f"{network}, {spread}",
                "workers": workers,
                "size_bytes": mib << 20,
                "start": start,
                "time_s": flows_s,
                "packets_longer": longer,
            }
        )
        on_result()
    return results


def sentences(results: list[dict[str, Any]]) -> Iterator[str]:
    """Every case, then the extremes of each model."""
    for one in results:
        ways = ", ".join(f"{one['packets_longer'][way]:+.1%}" for way in WAYS)
        where = f"{one['network']}, {one['workers']} workers, {one['size_bytes'] >> 20} MiB"
        yield f"{one['algorithm']}, {where}: {one['time_s'] * 1e6:.0f} us; packets {ways}"
    for way in WAYS:
        found = [one["packets_longer"][way] for one in results]
        yield f"{way}: packets take {min(found):+.1%} to {max(found):+.1%} longer, {_within(found)} within 5%"


def _within(found: list[float]) -> str:
    return f"{sum(abs(each) <= 0.05 for each in found)} of {len(found)}"
