"""What a cluster costs: switches, network cards, cables and optics, servers and GPUs, at the prices of a file."""

from __future__ import annotations

from netfold.plan.cluster.fabric import CABLE
from netfold.plan.cluster.graph import SWITCH
from netfold.plan.cluster.spec import Cluster

PARTS = ("switch", "switch_port", "folding_switch", "nic", "cable", "optics", "server", "gpu")


def count_of(cluster: Cluster) -> dict[str, int]:
    """How many of each part. `optics`: ends of cables between switches; `folding_switch`: in place of a switch."""
    graph = cluster.graph()
    switches = {at for at, node in enumerate(graph.nodes) if node.kind == SWITCH}
    folding = sum(graph.nodes[at].fold_bit_s > 0 for at in switches)
    between = sum(graph.resources[link.resource].role == CABLE for link in graph.links) // 2
    ports = sum(link.source in switches for link in graph.links)
    workers = len(graph.hosts)
    layout = cluster.layout
    servers = workers // layout.gpus if layout else workers
    nics = servers * layout.nics if layout else workers
    return {
        "switch": len(switches) - folding,
        "switch_port": ports,
        "folding_switch": folding,
        "nic": nics,
        "cable": between + nics,
        "optics": 2 * between,
        "server": servers,
        "gpu": workers,
    }


def price_of(cluster: Cluster) -> float | None:
    """In the currency of the prices; None where none is given. Parts without a price are free of charge."""
    if not cluster.prices:
        return None
    prices = {"folding_switch": cluster.prices.get("switch", 0.0)} | cluster.prices
    return sum(count * prices.get(part, 0.0) for part, count in count_of(cluster).items())
