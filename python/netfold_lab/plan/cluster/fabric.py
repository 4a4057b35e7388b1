"""The network between servers: the simulator's own builders, or a graph that a file lists.

A fabric has *ports* for NICs, or for workers if the file does not describe servers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from netfold_lab.plan.cluster import limits
from netfold_lab.plan.cluster.graph import HOST, SWITCH, Graph

EDGE, CABLE = "edge link", "fabric link"
KINDS = ("star", "bigraph", "fat-tree", "leaf-spine", "torus2d", "dragonfly")


def build(kind: str, sizes: dict[str, int], rate_bit_s: float, latency_s: float, uplink_bit_s: float = 0.0) -> Graph:
    """A fabric of one of KINDS. `uplink_bit_s`: the rate of cables between switches, if it differs from the ports'
    rate.

    Raises ValueError for an invalid shape.
    """
    from netfold import _core

    of = _core.Topology
    link = {"rate_bit_s": rate_bit_s, "latency_s": latency_s}
    makers = {
        "star": lambda: of.star(sizes["ports"], **link),
        "bigraph": lambda: of.bigraph(sizes["sub_nodes"], sizes["switches"], **link),
        "fat-tree": lambda: of.fat_tree(sizes["sub_nodes"], sizes["switches"], **link),
        "leaf-spine": lambda: of.leaf_spine(sizes["leaves"], sizes["spines"], sizes["ports_per_leaf"], **link),
        "torus2d": lambda: of.torus(sizes["rows"], sizes["columns"], sizes.get("ports_per_switch", 1), **link),
        "dragonfly": lambda: of.dragonfly(sizes["groups"], sizes["routers"], sizes.get("ports_per_switch", 1), **link),
    }
    graph = from_topology(makers[kind](), uplink_bit_s)
    graph.spread = "destination" if kind == "bigraph" else "hash"
    return graph


def cables(kind: str, sizes: dict[str, int]) -> int:
    """The estimated number of cables of a fabric of one of KINDS, with those at ports."""
    ports = sizes.get("ports_per_switch", 1)
    if kind in ("bigraph", "fat-tree"):
        return sizes["switches"] * (sizes["switches"] // 4 + sizes["sub_nodes"])
    if kind == "leaf-spine":
        return sizes["leaves"] * (sizes["spines"] + sizes["ports_per_leaf"])
    if kind == "torus2d":
        return sizes["rows"] * sizes["columns"] * (2 + ports)
    if kind == "dragonfly":
        return sizes["groups"] * (sizes["routers"] * (sizes["routers"] + ports) + sizes["groups"])
    return sizes["ports"]


def from_topology(made: Any, uplink_bit_s: float = 0.0) -> Graph:
    """The simulator's topology as a graph."""
    graph = Graph()
    for kind, name in made.nodes:
        graph.add_node(kind, name, "worker" if kind == HOST else kind)
    links, capacities = made.links, made.capacity_bit_s
    columns = (links["from"], links["to"], links["resource"], links["latency_s"])
    for source, target, resource, latency in zip(*(column.tolist() for column in columns), strict=True):
        is_edge = HOST in (graph.nodes[source].kind, graph.nodes[target].kind)
        rate = float(capacities[resource]) if is_edge or not uplink_bit_s else uplink_bit_s
        graph.add_link(source, target, EDGE if is_edge else CABLE, rate, latency)
    return graph


def listed(hosts: Sequence[str], switches: Sequence[str], cables: Sequence[tuple[str, str, float, float]]) -> Graph:
    """A fabric from a graph. A cable has two directions: (one end, other end, bit/s, seconds).

    Raises ValueError that names an end that is neither host nor switch, or that is listed twice.
    """
    graph, numbers = Graph(), dict[str, int]()
    for kind, names in ((HOST, hosts), (SWITCH, switches)):
        for name in names:
            if name in numbers:
                raise ValueError(f"{name} is listed twice")
            numbers[name] = graph.add_node(kind, name, "worker" if kind == HOST else kind)
    for one, other, rate, latency in cables:
        for end in (one, other):
            if end not in numbers:
                raise ValueError(f"a link ends at {end}, which is neither host nor switch")
        if one == other:
            raise ValueError(f"a link connects {one} with itself; name the node at its other end")
        if not rate > 0:
            raise ValueError(f"the link from {one} to {other} has a rate of {rate} bit/s; it must be above 0")
        if not latency >= 0:
            raise ValueError(f"the link from {one} to {other} has a latency of {latency} s; it must be 0 or more")
        if fault := limits.fault("rate_gbit_s", rate / 1e9) or limits.fault("latency_us", latency * 1e6):
            raise ValueError(f"the link from {one} to {other}: {fault}")
        is_edge = HOST in (graph.nodes[numbers[one]].kind, graph.nodes[numbers[other]].kind)
        graph.add_cable(numbers[one], numbers[other], EDGE if is_edge else CABLE, rate, latency)
    return graph


def layers(graph: Graph) -> tuple[list[int], list[int]]:
    """Switches with ports (leaves), and those without (spines)."""
    leaves = {link.target for link in graph.links if graph.nodes[link.source].kind == HOST}
    switches = [at for at, node in enumerate(graph.nodes) if node.kind == SWITCH]
    return [at for at in switches if at in leaves], [at for at in switches if at not in leaves]
