"""All-reduce algorithms by name: the names that users choose from, and the algorithm that a name stands for at one
tensor.

With `in-network` a switch folds. With `split` a switch folds a share of each large tensor, and the ranks fold the rest
at the same time. The others are *host algorithms*: the ranks fold among themselves, by a schedule of core/schedule.

`auto` picks a host algorithm by the tensor's size and the number of ranks. It uses the times measured on this machine
(netfold/chooser). Without measurements it uses the core's rule (core/schedule/schedule.h). If `auto` knows the BiGraph
of the hosts, it picks hdrm in place of halving-doubling and ring, also for reduce-scatters and all-gathers.

The *order* says whether sums must have the bits of the in-network fold, pairwise in rank order (`rank`), or may have
those of each algorithm's own order (`any`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

IN_NETWORK = "in-network"
SPLIT = "split"
WITH_SWITCH = (IN_NETWORK, SPLIT)
AUTO = "auto"
DIRECT, RING, HDRM = "direct", "ring", "hdrm"
RANK, ANY = "rank", "any"
ORDERS = (RANK, ANY)

BY_BANDWIDTH = (RING, "halving-doubling")  # `auto` replaces these by hdrm on a known BiGraph
SMALL_BYTES = 32 << 10  # up to this size a tree broadcasts faster

Choose = Callable[[int, int], str]
"""(bytes of a tensor, number of ranks) to the host algorithm; every rank gets the same answer."""


@cache
def host_algorithms() -> tuple[str, ...]:
    """The core's algorithms by which ranks all-reduce among themselves.

    The first call loads the core, not the import: `netfold --help` works without the extension.
    """
    from netfold import _core

    def is_one(name: str) -> bool:
        try:
            steps = _core.schedule(name, 2, 0, 2, sub_nodes=1, switches=2, group=1)
        except ValueError:  # it is a barrier
            return False
        return all(peer >= 0 for step in steps for _, peer, _, _ in step)  # below 0: the switch

    return tuple(name for name, _ in _core.algorithms() if is_one(name))


def with_switch(names: str) -> str:
    """A list with commas, in which `split` replaces `auto`: with a switch, `auto` shares the work with it."""
    return ",".join(SPLIT if name == AUTO else name for name in names.split(","))


def host_choices() -> tuple[str, ...]:
    """The names that a user may choose without a switch."""
    return (*host_algorithms(), AUTO)


def choices() -> tuple[str, ...]:
    """The names that a user may choose."""
    return (*WITH_SWITCH, *host_choices())


def choose(size_bytes: int, world: int) -> str:
    """The built-in rule between machines, a `Choose`: from bytes of a tensor and number of ranks to an algorithm."""
    return _usual(size_bytes, world, False)


def choose_on_one_machine(size_bytes: int, world: int) -> str:
    """The built-in rule among ranks of one machine."""
    return _usual(size_bytes, world, True)


def _usual(size_bytes: int, world: int, share_memory: bool) -> str:
    from netfold import _core

    return _core.usual_algorithm(size_bytes, world, share_memory)


@cache
def sums_in_rank_order(algorithm: str, world: int, wire: str) -> bool:
    """Whether all-reduces by this algorithm have the bits of the in-network fold, if they travel in format `wire`."""
    from netfold import _core

    return _core.sums_in_rank_order(algorithm, world, wire)


def in_rank_order(choose: Choose, wire: str) -> Choose:
    """`choose`, but `direct` where its choice would sum in another order."""

    def choice(size_bytes: int, world: int) -> str:
        chosen = choose(size_bytes, world)
        return chosen if sums_in_rank_order(chosen, world, wire) else DIRECT

    return choice


def choose_broadcast(size_bytes: int) -> str:
    """The algorithm that broadcasts a tensor of this size: a tree, or a chain in which each rank sends it once."""
    return "binomial" if size_bytes < SMALL_BYTES else "ring"


def bigraph_of(text: str) -> tuple[int, int]:
    """`4x8` as 4 sub-nodes at each of 8 switches. Raises ValueError."""
    parts = text.split("x")
    if len(parts) != 2 or not all(part.isdigit() and int(part) > 0 for part in parts):
        raise ValueError("write sub-nodes x switches, for example 4x8")
    return int(parts[0]), int(parts[1])


@dataclass(frozen=True)
class HostPlan:
    """A host algorithm and the shape it needs: hdrm needs `bigraph` (sub-nodes, switches), hierarchical needs `group`
    (the number of ranks of one machine, which are neighbours in rank order). `order` is one of ORDERS."""

    algorithm: str
    bigraph: tuple[int, int] = (0, 0)
    group: int = 0
    order: str = ANY

    def for_tensor(self, size_bytes: int, world: int, choose: Choose = choose, wire: str = "fp32") -> dict[str, Any]:
        """The named arguments of `PeerGroup.all_reduce` of a tensor that travels in format `wire`; `auto` calls
        `choose`."""
        if self.order == RANK and self.algorithm not in WITH_SWITCH:
            named = choose if self.algorithm == AUTO else lambda *_: self.algorithm
            return {"algorithm": in_rank_order(named, wire)(size_bytes, world)}
        if self.algorithm == HDRM:
            return self._hdrm()
        if self.algorithm == "hierarchical":
            between = choose(size_bytes, self.parties(world))
            return {"algorithm": "hierarchical", "group": self.group, "between": between}
        chosen = choose(size_bytes, world) if self.algorithm == AUTO else self.algorithm
        return self._on_bigraph(chosen)

    def for_reduce_scatter(self, world: int, wire: str) -> dict[str, Any]:
        """The named arguments of `PeerGroup.reduce_scatter` of a tensor that travels in format `wire`."""
        if self.algorithm == SPLIT:
            return {"algorithm": SPLIT}
        if self.order == RANK:
            return {"algorithm": in_rank_order(lambda *_: RING, wire)(0, world)}
        return self._on_bigraph(RING)

    def for_all_gather(self, chosen: str) -> dict[str, Any]:
        """The named arguments of `PeerGroup.all_gather` of a tensor for which this algorithm was chosen by its size."""
        return {"algorithm": SPLIT} if self.algorithm == SPLIT else self._on_bigraph(chosen)

    def _on_bigraph(self, chosen: str) -> dict[str, Any]:
        """`chosen`, or hdrm in its place where the BiGraph is known."""
        is_known = any(self.bigraph) and self.algorithm in (AUTO, HDRM)
        return self._hdrm() if is_known and chosen in BY_BANDWIDTH else {"algorithm": chosen}

    def _hdrm(self) -> dict[str, Any]:
        return {"algorithm": HDRM, "sub_nodes": self.bigraph[0], "switches": self.bigraph[1]}

    def parties(self, world: int) -> int:
        """The number of ranks to pass to `choose`: all ranks, or with hierarchical the number of machines."""
        return -(-world // max(1, self.group)) if self.algorithm == "hierarchical" else world

    def check(self, world: int, wire: str = "fp32", order: Sequence[int] = ()) -> None:
        """Raises ValueError if the algorithm does not support this number of ranks, or does not sum in this order. No
        data moves before. `order`: of the places on a BiGraph (netfold/topology)."""
        from netfold import _core

        if self.algorithm in WITH_SWITCH:  # they serve any number
            return
        if self.order == RANK and self.algorithm != AUTO and not sums_in_rank_order(self.algorithm, world, wire):
            raise ValueError("it does not sum in rank order: choose auto or direct, or NETFOLD_ORDER=any")
        for arguments in (self.for_tensor(world, world), self.for_all_gather(RING)):
            _core.schedule(arguments.pop("algorithm"), world, 0, world, order=list(order), **arguments)
