"""A BiGraph or a fat tree: two layers of switches, a cable between any two switches of different layers, and the
workers.

Terms (eflops.md IV-B). A BiGraph of M sub-nodes x N switches has N/2 switches in its upper half and N/2 in its lower,
numbered 0 .. N/2 - 1 and N/2 .. N - 1, and M workers at every switch. The fat tree of the same shape has the same
switches and cables. All of its workers are at the lower switches, the leaves, 2M at each; the upper switches are
spines. A worker's *position* counts the workers in the order of their switches.

Routes. A switch reaches a switch of the other half over the cable between them. It reaches a switch of its own half
over a switch of the other half. On a BiGraph the destination determines that switch, which spreads the traffic of a
switch over its cables. In a fat tree a hash of each connection chooses it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

BIGRAPH, FAT_TREE = "bigraph", "fat-tree"
KINDS = (BIGRAPH, FAT_TREE)


def check_shape(sub_nodes: int, switches: int) -> None:
    """Raises ValueError if a BiGraph cannot have this shape, or if its cables cannot carry the traffic of its
    workers."""
    if any(number < 1 or number & (number - 1) for number in (sub_nodes, switches)) or switches < 2:
        raise ValueError(
            f"{sub_nodes} sub-nodes x {switches} switches: both numbers must be powers of two, "
            "with at least two switches"
        )
    if sub_nodes > switches // 2:
        raise ValueError(
            f"{sub_nodes} sub-nodes x {switches} switches: a switch has {switches // 2} cables to the other half, one "
            f"for each of at most {switches // 2} sub-nodes"
        )


@dataclass(frozen=True)
class Wiring:
    """A fabric of `kind` (one of KINDS) with `sub_nodes` x `switches` workers. Raises ValueError if a BiGraph cannot
    have this shape."""

    kind: str
    sub_nodes: int
    switches: int

    def __post_init__(self) -> None:
        check_shape(self.sub_nodes, self.switches)

    @property
    def workers(self) -> int:
        """The number of workers."""
        return self.sub_nodes * self.switches

    @property
    def half(self) -> int:
        """Switches of one half."""
        return self.switches // 2

    def switch_of(self, position: int) -> int:
        """The switch that a worker is attached to."""
        if self.kind == BIGRAPH:
            return position // self.sub_nodes
        return self.half + position // (2 * self.sub_nodes)

    def port_of(self, position: int) -> int:
        """A worker's number among those of its switch."""
        return position % (self.sub_nodes if self.kind == BIGRAPH else 2 * self.sub_nodes)

    def other_half(self, switch: int) -> range:
        """The switches to which a switch has cables."""
        return range(self.half, self.switches) if switch < self.half else range(self.half)

    def cables(self) -> Iterator[tuple[int, int]]:
        """Every cable between switches: upper end, lower end."""
        return ((upper, lower) for upper in range(self.half) for lower in self.other_half(upper))

    def next_hops(self, switch: int, destination: int) -> list[int]:
        """The switches over which `switch` reaches another one; if there are several, a hash spreads the
        connections."""
        if destination in self.other_half(switch):
            return [destination]
        middles = self.other_half(switch)
        return [middles[destination % self.half]] if self.kind == BIGRAPH else list(middles)

    def path(self, sender: int, receiver: int) -> list[tuple[int, int]]:
        """The cables, each with its direction, that packets take on a BiGraph between two positions; empty within a
        switch."""
        assert self.kind == BIGRAPH, "only the kernel knows the choice of a hash"
        at, destination = self.switch_of(sender), self.switch_of(receiver)
        hops = []
        while at != destination:
            (following,) = self.next_hops(at, destination)
            hops.append((at, following))
            at = following
        return hops

    def name_of(self, switch: int) -> str:
        """The switch's name: upper 0, lower 2; in a fat tree spine 0, leaf 2."""
        upper, lower = ("upper", "lower") if self.kind == BIGRAPH else ("spine", "leaf")
        return f"{upper} {switch}" if switch < self.half else f"{lower} {switch - self.half}"
