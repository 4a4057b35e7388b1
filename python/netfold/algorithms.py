"""All-reduce algorithms by name: what a user asks for, and what that means for one tensor.

`in-network` is folded by a switch. The others are *host algorithms*: the ranks fold among themselves, by a schedule of
core/schedule. `auto` takes a host algorithm by the tensor's size and the number of ranks: by what was measured on this
machine (netfold/chooser), and where nothing was, by the core's rule (core/schedule/schedule.h). Where it knows the
BiGraph that the hosts are on, `auto` takes hdrm wherever it would take halving-doubling or a ring.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

IN_NETWORK = "in-network"
AUTO = "auto"

BY_BANDWIDTH = ("ring", "halving-doubling")  # what hdrm stands in for where `auto` knows where the hosts are
SMALL_BYTES = 32 << 10  # broadcasts that a tree serves better

Choose = Callable[[int, int], str]
"""(bytes of a tensor, number of ranks): the host algorithm to take; alike on all ranks."""


@cache
def host_algorithms() -> tuple[str, ...]:
    """Those of the core's algorithms by which ranks all-reduce among themselves.

    The core is asked when this is first called, not before: `netfold --help` does without the extension.
    """
    from netfold import _core

    def is_one(name: str) -> bool:
        try:
            steps = _core.schedule(name, 2, 0, 2, sub_nodes=1, switches=2, group=1)
        except ValueError:  # a barrier
            return False
        return all(peer >= 0 for step in steps for _, peer, _, _ in step)  # below 0: the switch

    return tuple(name for name, _ in _core.algorithms() if is_one(name))


def host_choices() -> tuple[str, ...]:
    """What a user may ask for where there is no switch."""
    return (*host_algorithms(), AUTO)


def choices() -> tuple[str, ...]:
    """What a user may ask for."""
    return (IN_NETWORK, *host_choices())


def choose(size_bytes: int, world: int) -> str:
    """The built-in rule between machines, a `Choose`: bytes of a tensor and number of ranks to an algorithm."""
    return _usual(size_bytes, world, False)


def choose_on_one_machine(size_bytes: int, world: int) -> str:
    """The built-in rule among ranks of one machine."""
    return _usual(size_bytes, world, True)


def _usual(size_bytes: int, world: int, share_memory: bool) -> str:
    from netfold import _core

    return _core.usual_algorithm(size_bytes, world, share_memory)


def choose_broadcast(size_bytes: int) -> str:
    """How a tensor of so many bytes is broadcast: down a tree, or from rank to rank, each sending it once."""
    return "binomial" if size_bytes < SMALL_BYTES else "ring"


def bigraph_of(text: str) -> tuple[int, int]:
    """`4x8` as 4 sub-nodes at each of 8 switches. Raises ValueError."""
    parts = text.split("x")
    if len(parts) != 2 or not all(part.isdigit() and int(part) > 0 for part in parts):
        raise ValueError("write sub-nodes x switches, for example 4x8")
    return int(parts[0]), int(parts[1])


@dataclass(frozen=True)
class HostPlan:
    """A host algorithm with what it needs to know of the machines: `bigraph` (sub-nodes, switches) is hdrm's, `group`
    (ranks of one machine, neighbours in rank order) hierarchical's."""

    algorithm: str
    bigraph: tuple[int, int] = (0, 0)
    group: int = 0

    def for_tensor(self, size_bytes: int, world: int, choose: Choose = choose) -> dict[str, Any]:
        """The named arguments of `HostGroup.all_reduce`; `choose` is what `auto` goes by."""
        if self.algorithm == "hdrm":
            return {"algorithm": "hdrm", "sub_nodes": self.bigraph[0], "switches": self.bigraph[1]}
        if self.algorithm == "hierarchical":
            between = choose(size_bytes, self.parties(world))
            return {"algorithm": "hierarchical", "group": self.group, "between": between}
        chosen = choose(size_bytes, world) if self.algorithm == AUTO else self.algorithm
        if self.algorithm == AUTO and any(self.bigraph) and chosen in BY_BANDWIDTH:
            return HostPlan("hdrm", self.bigraph).for_tensor(size_bytes, world)
        return {"algorithm": chosen}

    def parties(self, world: int) -> int:
        """How many take part in what `choose` is asked for: the ranks, or with hierarchical their machines."""
        return -(-world // max(1, self.group)) if self.algorithm == "hierarchical" else world

    def check(self, world: int) -> None:
        """Raises ValueError where the algorithm cannot serve so many ranks, before any data moves."""
        from netfold import _core

        arguments = self.for_tensor(world, world)
        _core.schedule(arguments.pop("algorithm"), world, 0, world, **arguments)
