"""Ranks that fold among themselves: no switch, a `netfold._core.HostGroup` a rank.

Every rank publishes where it listens, or why it cannot, through torch's store; then each connects to all others.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from torch._C._distributed_c10d import Store

from netfold import algorithms
from netfold.algorithms import AUTO, Choose, HostPlan, choose_broadcast
from netfold.chooser.choices import Choices
from netfold.topology.file import Topology
from netfold.torch.agreed_choices import agreed_chooser

KEY = "netfold/host/"
HINTS = {"hdrm": "; NETFOLD_BIGRAPH says what it is, as 4x8", "hierarchical": "; see NETFOLD_GROUP"}
ELEMENT_BYTES = {"fp32": 4, "int32": 4, "fp16": 2, "bf16": 2}


class HostClient:
    """A HostGroup, here or an agent's, that is called like a `netfold._core.Client`: the plan says by which algorithm,
    `choose` which one `auto` is, `bfp` (block, mantissa) how that format is shaped."""

    def __init__(self, group: Any, world: int, plan: HostPlan, choose: Choose, bfp: tuple[int, int]) -> None:
        self._group = group
        self._world = world
        self._plan = plan
        self._choose = choose
        self._bfp = {"block": bfp[0], "mantissa": bfp[1]}
        self.next_completion = group.next_completion
        self.wait = group.wait
        self.stats = group.stats
        self.close = group.close

    def all_reduce(
        self, in_ptr: int, out_ptr: int, count: int, dtype: str, wire: str, average: bool = False, awaited: bool = False
    ) -> int:
        """Returns at once with a ticket; `awaited`: the caller waits for it next."""
        how = self._plan.for_tensor(count * ELEMENT_BYTES[dtype], self._world, self._choose)
        return self._group.all_reduce(in_ptr, out_ptr, count, dtype, wire, average, awaited=awaited, **how, **self._bfp)

    def reduce_scatter(
        self, in_ptr: int, out_ptr: int, count: int, dtype: str, wire: str, average: bool = False, awaited: bool = False
    ) -> int:
        """`count` elements are this rank's part. Returns at once with a ticket, as do the next three."""
        return self._group.reduce_scatter(in_ptr, out_ptr, count, dtype, wire, average, awaited=awaited, **self._bfp)

    def all_gather(self, in_ptr: int, out_ptr: int, words: int, awaited: bool = False) -> int:
        """Copies `words` words of four bytes of each rank, bit for bit."""
        return self._group.all_gather(in_ptr, out_ptr, words, "int32", "int32", awaited=awaited)

    def broadcast(self, pointer: int, words: int, root: int, awaited: bool = False) -> int:
        """Copies `words` words of four bytes from rank `root`, bit for bit."""
        algorithm = choose_broadcast(words * ELEMENT_BYTES["int32"])
        return self._group.broadcast(pointer, words, root, "int32", "int32", algorithm, awaited=awaited)

    def barrier(self, awaited: bool = False) -> int:
        """Its ticket is finished once every rank has come."""
        return self._group.barrier(awaited)


def machine_size(addresses: list[str]) -> int:
    """Ranks of one machine, by the hosts in their addresses. Raises ValueError where machines differ in size, or their
    ranks are not neighbours."""
    hosts = [address.rpartition(":")[0] for address in addresses]
    size = next((rank for rank, host in enumerate(hosts) if host != hosts[0]), len(hosts))
    machines = [set(hosts[first : first + size]) for first in range(0, len(hosts), size)]
    if len(hosts) % size or any(len(found) != 1 for found in machines) or len(set.union(*machines)) != len(machines):
        raise ValueError("machines have different numbers of ranks, or ranks that are no neighbours")
    return size


def publish(store: Store, rank: int, **said: str) -> None:
    """Tell the other ranks this one's `address`, or the `error` that keeps it from having one."""
    store.set(f"{KEY}{rank}", json.dumps(said))


def said_by_all(store: Store, world: int, timeout_s: float) -> list[dict[str, str]]:
    """What every rank published. Raises RuntimeError naming the rank that failed or did not come in time."""
    keys = [f"{KEY}{rank}" for rank in range(world)]
    try:
        store.wait(keys, timedelta(seconds=timeout_s))
    except RuntimeError:
        missing = [str(rank) for rank, key in enumerate(keys) if not store.check([key])]
        ranks = f"rank{'s' if len(missing) > 1 else ''} {', '.join(missing)}"
        raise RuntimeError(f"netfold: {ranks} did not come to the process group within {timeout_s:g} s") from None
    said = [json.loads(store.get(key)) for key in keys]
    for rank, each in enumerate(said):
        if "error" in each:
            raise RuntimeError(f"netfold: rank {rank} could not join the process group: {each['error']}")
    return said


def addresses_of(store: Store, world: int, timeout_s: float) -> list[str]:
    """Every rank's address, by rank; raises as said_by_all."""
    return [said["address"] for said in said_by_all(store, world, timeout_s)]


def names_of(said: dict[str, str]) -> list[str]:
    """What a topology file may call the host of a rank: its address, its name, its name without the domain."""
    name = said["host"]
    return [said["address"].rpartition(":")[0], name, name.partition(".")[0]]


def _order(topology: Topology, said: list[dict[str, str]]) -> list[int]:
    try:
        return topology.order([names_of(each) for each in said])
    except ValueError as error:
        raise ValueError(f"netfold: {error}") from None


def _settled(plan: HostPlan, addresses: list[str]) -> HostPlan:
    world = len(addresses)
    try:
        if plan.algorithm == "hierarchical" and not plan.group:
            plan = HostPlan(plan.algorithm, group=machine_size(addresses))
        plan.check(world)
    except ValueError as error:
        hint = HINTS.get(plan.algorithm, "")
        raise ValueError(f"netfold: {plan.algorithm} cannot serve this group of {world} ranks: {error}{hint}") from None
    return plan


def _chooser(
    store: Store,
    rank: int,
    plan: HostPlan,
    addresses: list[str],
    look_up: Callable[[int, str], Choices | None],
    timeout_s: float,
) -> Choose:
    """What `auto` goes by, alike on all ranks; asked for only where the plan needs it."""
    if plan.algorithm not in (AUTO, "hierarchical"):
        return algorithms.choose
    hosts = {address.rpartition(":")[0] for address in addresses}
    link = "shm" if len(hosts) == 1 else "tcp"
    rule = algorithms.choose_on_one_machine if link == "shm" else algorithms.choose
    return agreed_chooser(store, rank, lambda: look_up(plan.parties(len(addresses)), link), rule, timeout_s)


def join(
    store: Store,
    rank: int,
    world: int,
    plan: HostPlan,
    bfp: tuple[int, int],
    listen: Callable[[], tuple[Any, str]],
    look_up: Callable[[int, str], Choices | None],
    timeout_s: float,
    topology: Topology | None = None,
) -> HostClient:
    """Meet the other ranks and connect to them, bounded by `timeout_s` (seconds) each.

    `topology` says where their hosts sit on a BiGraph. Raises ValueError on all ranks where it does not fit them.

    `listen` makes this rank's HostGroup and says at which address the others reach it. What it raises, the other ranks
    are told. `look_up` finds at rank 0 what its tuning table says for so many ranks over shm or tcp.
    """
    try:
        group, address = listen()
    except Exception as error:
        publish(store, rank, error=str(error))
        raise
    try:
        publish(store, rank, address=address, host=socket.gethostname())
        said = said_by_all(store, world, timeout_s)
        addresses = [each["address"] for each in said]
        if topology is not None:
            group.set_physical_order(_order(topology, said))
        plan = _settled(plan, addresses)
        choose = _chooser(store, rank, plan, addresses, look_up, timeout_s)
        group.connect(addresses)
    except BaseException as error:
        group.close(f"rank {rank} could not join: {error}")
        raise
    return HostClient(group, world, plan, choose, bfp)
