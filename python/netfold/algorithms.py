"""All-reduce algorithms by name: what a user asks for, and what that means for one tensor.

`in-network` is folded by a switch. The others are *host algorithms*: the ranks fold among themselves, by a schedule of
core/schedule. `auto` takes the host algorithm by the tensor's size and the number of ranks:

    below 32 KiB             recursive-doubling: log n steps, and latency is all that counts
    up to 1 MiB              halving-doubling where n is a power of two: 2 log n steps of few bytes
    above, or n is not one   ring: 2(n-1) steps; a rank sends 2(n-1)/n of the tensor, whatever n is

Where it knows the BiGraph that the hosts are on, `auto` takes hdrm wherever it would take halving-doubling or a ring.
Halving-doubling serves other n too, but some ranks then hand over their whole tensor first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

IN_NETWORK = "in-network"
AUTO = "auto"
HOST_ALGORITHMS = (
    "ring",
    "halving-doubling",
    "recursive-doubling",
    "rabenseifner",
    "binomial",
    "double-binary-tree",
    "hierarchical",
    "hdrm",
)
HOST_CHOICES = (*HOST_ALGORITHMS, AUTO)
CHOICES = (IN_NETWORK, *HOST_CHOICES)

BY_BANDWIDTH = ("ring", "halving-doubling")  # what hdrm stands in for where `auto` knows where the hosts are
SMALL_BYTES = 32 << 10
LARGE_BYTES = 1 << 20


def choose(size_bytes: int, world: int) -> str:
    """The algorithm `auto` takes for a tensor of so many bytes on so many ranks; alike on all of them."""
    if size_bytes < SMALL_BYTES:
        return "recursive-doubling"
    is_power_of_two = world & (world - 1) == 0
    return "halving-doubling" if is_power_of_two and size_bytes <= LARGE_BYTES else "ring"


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

    def for_tensor(self, size_bytes: int, world: int) -> dict[str, Any]:
        """The named arguments of `HostGroup.all_reduce`."""
        if self.algorithm == "hdrm":
            return {"algorithm": "hdrm", "sub_nodes": self.bigraph[0], "switches": self.bigraph[1]}
        if self.algorithm == "hierarchical":
            machines = -(-world // max(1, self.group))
            return {"algorithm": "hierarchical", "group": self.group, "between": choose(size_bytes, machines)}
        chosen = choose(size_bytes, world) if self.algorithm == AUTO else self.algorithm
        if self.algorithm == AUTO and self.bigraph != (0, 0) and chosen in BY_BANDWIDTH:
            return HostPlan("hdrm", self.bigraph).for_tensor(size_bytes, world)
        return {"algorithm": chosen}

    def check(self, world: int) -> None:
        """Raises ValueError where the algorithm cannot serve so many ranks, before any data moves."""
        from netfold import _core

        arguments = self.for_tensor(world, world)
        _core.schedule(arguments.pop("algorithm"), world, 0, world, **arguments)
