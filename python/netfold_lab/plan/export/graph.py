"""A cluster's graph as `topology.txt` of HPCC / ns-3 and as GraphML, in the form that importers.py reads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from netfold_lab.errors import UsageError
from netfold_lab.plan.cluster.graph import HOST, Graph

GIGA = 1e9


def cables(graph: Graph) -> Iterator[tuple[int, int, float, float]]:
    """Both directions as one cable: ends, bit/s, seconds. Raises UsageError for links that do not form a cable."""
    seen: dict[tuple[int, int], tuple[float, float]] = {}
    shared = [link.resource for link in graph.links]
    for link in graph.links:
        kind = graph.resources[link.resource].capacity_bit_s, link.latency_s
        if shared.count(link.resource) > 1 or kind[0] == float("inf"):
            name = graph.resources[link.resource].name
            raise UsageError(f"{name} is inside a server: leave out `servers:` to write only the fabric")
        back = link.target, link.source
        if back in seen:
            if seen[back] != kind:
                names = " and ".join(graph.nodes[end].name for end in back)
                raise UsageError(f"the two directions between {names} differ")
            yield (*back, *kind)
        else:
            seen[link.source, link.target] = kind


def hpcc(graph: Graph) -> Iterator[str]:
    """The lines of topology.txt."""
    laid = list(cables(graph))
    switches = [at for at, node in enumerate(graph.nodes) if node.kind != HOST]
    yield f"{len(graph.nodes)} {len(switches)} {len(laid)}"
    yield " ".join(map(str, switches))
    for one, other, rate, latency in laid:
        yield f"{one} {other} {rate / GIGA:g}Gbps {latency * 1e9:g}ns 0"


def write_graphml(path: Path, graph: Graph) -> None:
    """Write the GraphML file. Raises OSError."""
    import networkx as nx

    drawn = nx.Graph()
    width = len(str(len(graph.nodes)))
    for at, node in enumerate(graph.nodes):
        drawn.add_node(f"{at:0{width}}", kind="host" if node.kind == HOST else "switch", name=node.name)
    for one, other, rate, latency in cables(graph):
        drawn.add_edge(f"{one:0{width}}", f"{other:0{width}}", rate_gbit_s=rate / GIGA, latency_us=latency * 1e6)
    nx.write_graphml(drawn, path)
