"""Places for the boxes of a block diagram: data flows from left to right, and sorting by neighbours reduces crossings.
The result is deterministic: equal flows give an equal picture."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import pairwise

SWEEPS = 12


@dataclass(frozen=True)
class Bend:
    """The place where an edge passes a column."""

    edge: int
    column: int


Place = Hashable  # a node or a Bend


def backward(nodes: Sequence[Hashable], edges: Sequence[tuple[Hashable, Hashable]]) -> set[int]:
    """Indices of edges that close a cycle: edges to a node that the search has not left yet."""
    after: dict[Hashable, list[tuple[int, Hashable]]] = defaultdict(list)
    for index, (source, target) in enumerate(edges):
        after[source].append((index, target))
    state: dict[Hashable, int] = {}
    closing = set()

    def visit(node: Hashable) -> None:
        state[node] = 1
        for index, target in after[node]:
            if state.get(target) == 1:
                closing.add(index)
            elif target not in state:
                visit(target)
        state[node] = 2

    for node in nodes:
        if node not in state:
            visit(node)
    return closing


def columns(nodes: Sequence[Hashable], edges: Sequence[tuple[Hashable, Hashable]]) -> dict[Hashable, int]:
    """Columns of nodes: as far left as inputs allow, and sources next to their targets. The edges must have no
    cycle."""
    column = dict.fromkeys(nodes, 0)
    for _ in nodes:
        for source, target in edges:
            column[target] = max(column[target], column[source] + 1)
    fed = {target for _, target in edges}
    for node in nodes:
        targets = [column[target] for source, target in edges if source == node]
        if node not in fed and targets:
            column[node] = min(targets) - 1
    return column


def arrange(
    nodes: Sequence[Hashable], edges: Sequence[tuple[Hashable, Hashable]]
) -> tuple[list[list[Place]], list[list[Place]]]:
    """Columns of places from top to bottom, and each edge's path through them from its left end to its right end."""
    closing = backward(nodes, edges)
    forward = [edge[::-1] if index in closing else edge for index, edge in enumerate(edges)]
    column = columns(nodes, forward)
    ways: list[list[Place]] = []
    for index, (source, target) in enumerate(forward):
        bends = [Bend(index, at) for at in range(column[source] + 1, column[target])]
        ways.append([source, *bends, target])
    order: list[list[Place]] = [[] for _ in range(max(column.values()) + 1)]
    for node in nodes:
        order[column[node]].append(node)
    for way in ways:
        for bend in way[1:-1]:
            assert isinstance(bend, Bend)
            order[bend.column].append(bend)
    near: dict[tuple[Place, int], list[Place]] = defaultdict(list)  # neighbours to one side
    for way in ways:
        for left, right in pairwise(way):
            near[left, 1].append(right)
            near[right, -1].append(left)
    for sweep in range(SWEEPS):
        side = -1 if sweep % 2 == 0 else 1
        for places in order if side < 0 else reversed(order):
            height = {place: at / len(row) for row in order for at, place in enumerate(row, 1)}
            middle = {place: [height[other] for other in near[place, side]] or [height[place]] for place in places}
            mean = {place: sum(heights) / len(heights) for place, heights in middle.items()}
            places.sort(key=mean.__getitem__)
    return order, ways
