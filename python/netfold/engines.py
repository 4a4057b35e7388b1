"""The engines that run collectives, as the backend calls them. The classes of `netfold._core`, of an agent and of a
simulated NIC have the same methods.

Pointers are addresses, counts are numbers of elements, `dtype` and `wire` are fp32, fp16, bf16 or int32 (`wire` also
bfp). A collective returns a ticket at once; its memory must live until the ticket is finished. `awaited` promises that
the same thread calls `wait` next.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from netfold.errors import NetfoldError


class Engine(Protocol):
    """The methods that every engine has."""

    def wait(self, ticket: int, timeout_s: float = ...) -> bool:
        """Block until the ticket's collective is done or the time is over; returns whether it is done. Raises
        NetfoldError."""

    def next_completion(self, timeout_s: float) -> tuple[int, NetfoldError | None] | None:
        """The next finished ticket and its error, or None after `timeout_s`."""

    def for_device(self, copied_ptr: int, over_ptr: int, number: int) -> None:
        """A device copies the tensor of the next collective here and back. The addresses of two uint32, or 0: the
        tensor may be read when the first is `number`; at the end the second becomes `number`, or number + 1 if the
        collective has failed."""

    def stats(self) -> dict[str, Any]:
        """Counters."""

    def set_timeout(self, timeout_s: float) -> None:
        """How long a collective may make no progress, from now on."""

    def close(self, reason: str = ...) -> None:
        """Leave the group; unfinished collectives fail. A reason tells the other ranks that this rank failed."""


class Reducer(Engine, Protocol):
    """An engine that runs all-reduces: through a switch, or among ranks by one algorithm."""

    def all_reduce(
        self,
        in_ptr: int,
        out_ptr: int,
        count: int,
        dtype: str,
        wire: str,
        average: bool = ...,
        awaited: bool = ...,
        block: int = ...,
        mantissa: int = ...,
        encoded: bool = ...,
    ) -> int:
        """The sum, or the average, of every rank's elements. `encoded`: they are bfp of this block and mantissa in
        memory, before and after; only of sums."""


class RoceEngine(Reducer, Protocol):
    """A worker over RoCE. Ranks exchange their `address`, text that describes an endpoint."""

    @property
    def address(self) -> str:
        """The text of this rank."""

    def connect(self, addresses: Sequence[str]) -> None:
        """Connect to the neighbours; `addresses` is in rank order. Raises NetfoldError."""

    @property
    def is_one_way(self) -> bool:
        """After `connect`: whether it runs the collectives that every engine among ranks has."""


class PeerEngine(Engine, Protocol):
    """A rank of a group that reduces without a switch. It listens at `address`."""

    @property
    def address(self) -> str:
        """HOST:PORT."""

    def set_physical_order(self, order: Sequence[int]) -> None:
        """Set where the ranks sit, for hdrm: the `order` of Places. Call it before `connect`."""

    def connect(self, addresses: Sequence[str]) -> None:
        """Connect to all ranks; `addresses` is in rank order. Raises NetfoldError."""

    def all_reduce(
        self,
        in_ptr: int,
        out_ptr: int,
        count: int,
        dtype: str,
        wire: str,
        average: bool = ...,
        algorithm: str = ...,
        sub_nodes: int = ...,
        switches: int = ...,
        group: int = ...,
        between: str = ...,
        block: int = ...,
        mantissa: int = ...,
        awaited: bool = ...,
        encoded: bool = ...,
    ) -> int:
        """The sum, or the average, of every rank's elements; `encoded`: see Reducer."""

    def reduce_scatter(
        self,
        in_ptr: int,
        out_ptr: int,
        count: int,
        dtype: str,
        wire: str,
        average: bool = ...,
        algorithm: str = ...,
        sub_nodes: int = ...,
        switches: int = ...,
        block: int = ...,
        mantissa: int = ...,
        awaited: bool = ...,
    ) -> int:
        """This rank's part of the sum, `count` elements."""

    def all_gather(
        self,
        in_ptr: int,
        out_ptr: int,
        count: int,
        dtype: str,
        wire: str,
        algorithm: str = ...,
        sub_nodes: int = ...,
        switches: int = ...,
        block: int = ...,
        mantissa: int = ...,
        awaited: bool = ...,
    ) -> int:
        """Every rank's `count` elements, in rank order."""

    def broadcast(
        self,
        ptr: int,
        count: int,
        root: int,
        dtype: str,
        wire: str,
        algorithm: str = ...,
        block: int = ...,
        mantissa: int = ...,
        awaited: bool = ...,
    ) -> int:
        """Rank `root`'s elements, to every rank."""

    def barrier(self, awaited: bool = ...) -> int:
        """The ticket is finished when every rank has called it."""


class PeerClient(Reducer, Protocol):
    """An engine that runs every operation among the ranks. `dtype` may be any of the core's element types."""

    def reduce_scatter(
        self, in_ptr: int, out_ptr: int, count: int, dtype: str, wire: str, average: bool = ..., awaited: bool = ...
    ) -> int:
        """This rank's part of the sum, `count` elements, in a format."""

    def collect(
        self,
        collective: str,
        in_ptr: int,
        out_ptr: int,
        count: int,
        dtype: str,
        operation: str = ...,
        average: bool = ...,
        root: int = ...,
        algorithm: str = ...,
        wire: str = ...,
        awaited: bool = ...,
    ) -> int:
        """An all-reduce, reduce, reduce-scatter, all-gather or broadcast of elements as they lie in memory."""

    def exchange(
        self,
        collective: str,
        in_ptr: int,
        out_ptr: int,
        dtype: str,
        sends: Sequence[int],
        receives: Sequence[int],
        root: int = ...,
        awaited: bool = ...,
    ) -> int:
        """An all-to-all, gather or scatter; elements are counted by rank."""

    def send(self, ptr: int, size_bytes: int, to: int, tag: int = ..., awaited: bool = ...) -> int:
        """A message to another rank."""

    def receive(
        self,
        ptr: int,
        size_bytes: int,
        from_rank: int = ...,
        tag: int = ...,
        sender_ptr: int = ...,
        awaited: bool = ...,
    ) -> int:
        """A message from another rank, or (-1) from any; its number is written to the int32 at `sender_ptr`."""

    def barrier(self, awaited: bool = ...) -> int:
        """The ticket is finished when every rank has called it."""
