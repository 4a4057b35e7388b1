"""The cost of a cluster: switches, NICs, cables and optics, servers and GPUs, with the prices of a file."""

from __future__ import annotations

from netfold_lab.plan.cluster.fabric import CABLE
from netfold_lab.plan.cluster.folding import BOX, BOX_LINK
from netfold_lab.plan.cluster.graph import SWITCH
from netfold_lab.plan.cluster.spec import Cluster

PARTS = ("switch", "switch_port", "folding_switch", "nic", "cable", "optics", "server", "gpu")


def count_of(cluster: Cluster) -> dict[str, int]:
    """The number of each part. `optics`: ends of cables between switches; `folding_switch`: in place of a switch.
    Switches are boxes: virtual ones that share a box count once."""
    graph = cluster.graph()
    switches = {at for at, node in enumerate(graph.nodes) if node.kind == SWITCH}
    folding = sum(graph.nodes[at].fold_bit_s > 0 for at in switches)
    boxes = sum(node.role == BOX for node in graph.nodes)
    between = sum(graph.resources[link.resource].role == CABLE for link in graph.links) // 2
    ports = sum(link.source in switches for link in graph.links)
    to_boxes = sum(graph.resources[link.resource].role == BOX_LINK for link in graph.links) // 2
    workers = len(graph.hosts)
    layout = cluster.layout
    servers = workers // layout.gpus if layout else workers
    nics = servers * layout.nics if layout else workers
    return {
        "switch": -(-(len(switches) - folding) // cluster.virtual_switches),
        "switch_port": ports,
        "folding_switch": -(-(folding - boxes) // cluster.virtual_switches) + boxes,
        "nic": nics,
        "cable": between + nics + to_boxes,
        "optics": 2 * between,
        "server": servers,
        "gpu": workers,
    }


def price_of(cluster: Cluster) -> float | None:
    """The cost in the currency of the prices; None without prices. Parts without a price cost nothing."""
    if not cluster.prices:
        return None
    prices = {"folding_switch": cluster.prices.get("switch", 0.0)} | cluster.prices
    return sum(count * prices.get(part, 0.0) for part, count in count_of(cluster).items())
