"""Places of nodes in a picture: switches in rows, each server's parts below its leaf; or a single server, larger."""

from __future__ import annotations

from netfold_lab.plan.cluster.fabric import layers
from netfold_lab.plan.cluster.folding import BOX
from netfold_lab.plan.cluster.graph import HOST, OTHER, SWITCH, Graph

Places = dict[int, tuple[float, float]]


def places(graph: Graph, kind: str) -> Places:
    """The places of the whole fabric: switches, and the ends of ports (NICs or workers)."""
    leaves, spines = layers(graph)
    ends = [at for at, node in enumerate(graph.nodes) if node.role in ("NIC", "worker")]
    home = {link.source: link.target for link in graph.links if graph.nodes[link.target].kind == SWITCH}
    if kind == "bigraph":
        return _bigraph(graph, ends, home)
    if kind in ("star", "leaf-spine", "fat-tree"):
        leaves, spines = _rows(graph, ends, home)
        return _tree(leaves, spines, ends, home)
    return _free(graph, ends, home)


def _rows(graph: Graph, ends: list[int], home: dict[int, int]) -> tuple[list[int], list[int]]:
    leaves = list(dict.fromkeys(home[at] for at in ends))
    return leaves, [at for at, node in enumerate(graph.nodes) if node.kind == SWITCH and at not in set(leaves)]


def _tree(leaves: list[int], spines: list[int], ends: list[int], home: dict[int, int]) -> Places:
    found: Places = {}
    for x, at in enumerate(ends):
        found[at] = (float(x), 0.0)
    for leaf in leaves:
        own = [found[at][0] for at in ends if home[at] == leaf]
        found[leaf] = (sum(own) / len(own), 1.0)
    width = len(ends) - 1 or 1
    for number, spine in enumerate(spines):
        found[spine] = ((number + 0.5) * width / len(spines), 2.5)
    return found


def _bigraph(graph: Graph, ends: list[int], home: dict[int, int]) -> Places:
    switches = [at for at, node in enumerate(graph.nodes) if node.kind == SWITCH and node.role != BOX]
    half = len(switches) // 2
    each = max(1, len(ends) // len(switches))
    found: Places = {}
    for number, at in enumerate(switches):
        x = (number % half + 0.5) * each
        is_upper = number < half
        found[at] = (x, 1.5 if is_upper else -1.5)
        for place, end in enumerate(end for end in ends if home[end] == at):
            found[end] = (x + (place - (each - 1) / 2) * 0.8, 2.5 if is_upper else -2.5)
    boxes = [at for at, node in enumerate(graph.nodes) if node.role == BOX]
    return found | {at: (-2.0, float(number)) for number, at in enumerate(boxes)}


def _free(graph: Graph, ends: list[int], home: dict[int, int]) -> Places:
    import math

    import networkx as nx

    switches = [at for at, node in enumerate(graph.nodes) if node.kind == SWITCH]
    between = nx.Graph((one.source, one.target) for one in graph.links if {one.source, one.target} <= set(switches))
    between.add_nodes_from(switches)
    spread = nx.kamada_kawai_layout(between) if len(switches) > 1 else dict.fromkeys(switches, (0.0, 0.0))
    found = {at: (float(x) * 10, float(y) * 10) for at, (x, y) in spread.items()}
    for switch in switches:
        own = [at for at in ends if home[at] == switch]
        x, y = found[switch]
        outward = math.atan2(y, x)
        for number, at in enumerate(own):
            angle = outward + (number - (len(own) - 1) / 2) * 0.5
            found[at] = (x + 2 * math.cos(angle), y + 2 * math.sin(angle))
    return found


def server_places(graph: Graph) -> Places:
    """The places of the first server: NICs at the top, PCIe switches, then GPUs and sockets. Empty without servers."""
    names = [node.name for node in graph.nodes]
    own = [at for at, name in enumerate(names) if name.startswith("server 0 ")]
    rows: dict[str, list[int]] = {}
    for at in own:
        rows.setdefault(graph.nodes[at].role, []).append(at)
    heights = {"NIC": 4.0, "PCIe switch": 2.6, "GPU": 0.6, "port": 1.4, "socket": -0.8}
    width = max((len(row) for row in rows.values()), default=0) * 2.0
    found: Places = {}
    for role, row in rows.items():
        for number, at in enumerate(row):
            found[at] = ((number + 0.5) * width / len(row), heights.get(role, 0.0))
    bridge_of = {link.source: link.target for link in graph.links if graph.nodes[link.target].role == "PCIe switch"}
    for bridge in rows.get("PCIe switch", []):
        cards = [at for at in rows.get("NIC", []) if bridge_of.get(at) == bridge]
        for number, at in enumerate(cards):
            found[at] = found[bridge][0] + 2.0 * (number - (len(cards) - 1) / 2), heights["NIC"]
    return found if any(node.kind in (HOST, OTHER) for node in graph.nodes if node.role == "GPU") else {}
