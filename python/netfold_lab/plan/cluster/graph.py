"""The cluster as a graph: nodes, links of one direction, and resources. Only resources have a capacity.

The terms are the simulator's (core/sim/topology.h): a worker runs on a *host*; a *switch* forwards packets and may
fold; other nodes (a NIC, a PCIe switch, a socket) only forward. Links that share a resource share its capacity. The
*role* of a node or resource is its kind in reports: "NIC", "PCIe root port", "UPI", "spine link".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

HOST, SWITCH, OTHER = "host", "switch", "other"


@dataclass(frozen=True)
class Node:
    """`fold_bit_s`: rate of folding in operand bits per second; 0: the node does not fold."""

    kind: str
    name: str
    role: str
    fold_bit_s: float = 0.0


@dataclass(frozen=True)
class Resource:
    """`capacity_bit_s` in bits per second."""

    name: str
    role: str
    capacity_bit_s: float


@dataclass(frozen=True)
class Link:
    """From node to node by number, over a resource. Routes have the least sum of costs."""

    source: int
    target: int
    resource: int
    latency_s: float = 0.0
    cost: float = 1.0


@dataclass
class Graph:
    """`spread`: the choice among routes of equal cost, "hash" or "destination"."""

    nodes: list[Node] = field(default_factory=list)
    resources: list[Resource] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    spread: str = "hash"

    @property
    def hosts(self) -> list[int]:
        """Nodes with workers, in the order of their numbers."""
        return [at for at, node in enumerate(self.nodes) if node.kind == HOST]

    def add_node(self, kind: str, name: str, role: str) -> int:
        """Add a node or resource; returns its number."""
        self.nodes.append(Node(kind, name, role))
        return len(self.nodes) - 1

    def add_resource(self, name: str, role: str, capacity_bit_s: float) -> int:
        """Add a node or resource; returns its number."""
        self.resources.append(Resource(name, role, capacity_bit_s))
        return len(self.resources) - 1

    def add_link(
        self, source: int, target: int, role: str, capacity_bit_s: float, latency_s: float = 0.0, cost: float = 1.0
    ) -> int:
        """Add one direction with a resource of its own; returns the resource."""
        name = f"{self.nodes[source].name} -> {self.nodes[target].name}"
        resource = self.add_resource(name, role, capacity_bit_s)
        self.links.append(Link(source, target, resource, latency_s, cost))
        return resource

    def add_cable(
        self, one: int, other: int, role: str, capacity_bit_s: float, latency_s: float = 0.0, cost: float = 1.0
    ) -> tuple[int, int]:
        """Add both directions; returns their resources."""
        return (
            self.add_link(one, other, role, capacity_bit_s, latency_s, cost),
            self.add_link(other, one, role, capacity_bit_s, latency_s, cost),
        )

    def share(self, source: int, target: int, resource: int, latency_s: float = 0.0, cost: float = 1.0) -> None:
        """Add one direction over an existing resource."""
        self.links.append(Link(source, target, resource, latency_s, cost))

    def fold_at(self, nodes: Sequence[int], bit_s: float) -> None:
        """Let nodes fold this number of operand bits per second."""
        for at in nodes:
            self.nodes[at] = replace(self.nodes[at], fold_bit_s=bit_s)

    def scaled(self, role: str, factor: float) -> Graph:
        """This graph with the capacity of all resources of a role multiplied by a factor."""
        resources = [
            replace(each, capacity_bit_s=each.capacity_bit_s * factor) if each.role == role else each
            for each in self.resources
        ]
        return Graph(list(self.nodes), resources, list(self.links), self.spread)

    def topology(self) -> Any:
        """The simulator's topology. Raises ValueError for an invalid graph."""
        from netfold import _core

        made = _core.Topology()
        add = {HOST: made.add_host, SWITCH: made.add_switch, OTHER: made.add_other}
        for node in self.nodes:
            add[node.kind](node.name)
        for resource in self.resources:
            made.add_resource(resource.capacity_bit_s, resource.name)
        for link in self.links:
            made.add_link(link.source, link.target, resource=link.resource, latency_s=link.latency_s, cost=link.cost)
        for at, node in enumerate(self.nodes):
            if node.fold_bit_s:
                made.set_fold_rate(at, node.fold_bit_s)
        made.check()
        return made

    def networkx(self) -> Any:
        """A directed graph of networkx: nodes have kind, name and role; edges have rate_bit_s and latency_s."""
        import networkx as nx

        drawn = nx.DiGraph()
        for at, node in enumerate(self.nodes):
            drawn.add_node(at, kind=node.kind, name=node.name, role=node.role)
        for link in self.links:
            rate = self.resources[link.resource].capacity_bit_s
            drawn.add_edge(link.source, link.target, rate_bit_s=rate, latency_s=link.latency_s)
        return drawn

    def unreachable(self) -> tuple[str, str] | None:
        """Two hosts without a path between them, or None. Hosts do not forward."""
        hosts = self.hosts
        if len(hosts) < 2:
            return None
        first, ends = hosts[0], set(hosts)
        onwards: list[list[int]] = [[] for _ in self.nodes]
        back: list[list[int]] = [[] for _ in self.nodes]
        for link in self.links:
            onwards[link.source].append(link.target)
            back[link.target].append(link.source)
        for way in (onwards, back):
            seen, able = {first}, [first]
            while able:
                for each in way[able.pop()]:
                    if each not in seen:
                        seen.add(each)
                        if each not in ends:
                            able.append(each)
            for other in hosts:
                if other not in seen:
                    return self.nodes[first].name, self.nodes[other].name
        return None
