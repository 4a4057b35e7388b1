"""Ranks that fold among themselves without a switch. Each rank has a `netfold._core.PeerGroup`.

Every rank publishes its address, or the error that it met, through torch's store. Then each rank connects to all
others.
"""

from __future__ import annotations

import contextlib
import json
import logging
import socket
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torch._C._distributed_c10d import Store

from netfold import _core, algorithms
from netfold.algorithms import AUTO, DIRECT, HDRM, Choose, HostPlan
from netfold.chooser.choices import Choices
from netfold.engines import PeerEngine
from netfold.log import logger
from netfold.topology.file import Topology
from netfold.torch import store_values
from netfold.torch.agreed_choices import agreed_chooser
from netfold.torch.calls import RAW_DTYPES
from netfold.torch.earlier import Earlier
from netfold.torch.share_log import ShareLog, log_news

KEY = "netfold/host/"
HINTS = {HDRM: "; NETFOLD_BIGRAPH gives its shape, such as 4x8", "hierarchical": "; see NETFOLD_GROUP"}
RAW_BYTES = {name: size_bytes for size_bytes, name in RAW_DTYPES.items()}
ELEMENT_BYTES = {"fp32": 4, "int32": 4, "fp16": 2, "bf16": 2}


class HostClient:
    """A PeerGroup, of this process or of an agent, with the methods of a `netfold._core.SwitchGroup`. The plan names
    the algorithm, `choose` picks one for `auto`, and `bfp` is (block, mantissa) of that format."""

    def __init__(
        self, group: PeerEngine, rank: int, world: int, plan: HostPlan, choose: Choose, bfp: tuple[int, int]
    ) -> None:
        self._group = group
        self._world = world
        self._plan = plan
        self._choose = choose
        self._bfp = bfp
        self._log_share: ShareLog | None = None
        self._switches: _core.SplitGroup | None = None  # rank 0 says what happens to them
        if isinstance(group, _core.SplitGroup):
            self._log_share = ShareLog(lambda: group.share, world, group.switches)
            self._switches = group if rank == 0 else None
        self.next_completion = group.next_completion
        self.wait = group.wait
        self.stats = group.stats
        self.close = group.close
        self.for_device = group.for_device
        self.set_timeout = group.set_timeout
        if isinstance(group, _core.PeerGroup):
            self.collect: Callable[..., int] = self._on_bigraph(group.collect) if any(plan.bigraph) else group.collect
            self.exchange = group.exchange
            self.send = group.send
            self.receive = group.receive
        else:
            self.collect = self._copy_words

    def all_reduce(
        self,
        in_ptr: int,
        out_ptr: int,
        count: int,
        dtype: str,
        wire: str,
        average: bool = False,
        awaited: bool = False,
        block: int = 0,
        mantissa: int = 0,
        encoded: bool = False,
    ) -> int:
        """Returns a ticket at once; `awaited`: the caller waits for it next. `encoded` elements are bfp of this block
        and mantissa; the others take the group's."""
        if self._log_share is not None:
            self._log_share()
        if self._switches is not None:
            log_news(self._switches.take_switch_news())
        how = self._plan.for_tensor(count * ELEMENT_BYTES[dtype], self._world, self._choose, wire)
        if not encoded:
            block, mantissa = self._bfp
        return self._group.all_reduce(
            in_ptr,
            out_ptr,
            count,
            dtype,
            wire,
            average,
            block=block,
            mantissa=mantissa,
            awaited=awaited,
            encoded=encoded,
            **how,
        )

    def reduce_scatter(
        self, in_ptr: int, out_ptr: int, count: int, dtype: str, wire: str, average: bool = False, awaited: bool = False
    ) -> int:
        """`count` elements are this rank's part. Returns a ticket at once."""
        block, mantissa = self._bfp
        how = self._plan.for_reduce_scatter(self._world, wire)
        return self._group.reduce_scatter(
            in_ptr, out_ptr, count, dtype, wire, average, block=block, mantissa=mantissa, awaited=awaited, **how
        )

    def _on_bigraph(self, collect: Callable[..., int]) -> Callable[..., int]:
        def collect_there(collective: str, *arguments: Any, algorithm: str = DIRECT, **more: Any) -> int:
            gathers = collective == "all-gather"
            how = self._plan.for_all_gather(algorithm) if gathers else {"algorithm": algorithm}
            return collect(collective, *arguments, **how, **more)

        return collect_there

    def _copy_words(
        self,
        collective: str,
        in_ptr: int,
        out_ptr: int,
        count: int,
        dtype: str,
        operation: str = "sum",
        average: bool = False,
        root: int = 0,
        algorithm: str = "ring",
        wire: str = "",
        awaited: bool = False,
    ) -> int:
        """An all-gather or broadcast of whole words of four bytes, which travel as they are."""
        words = count * RAW_BYTES[dtype] // 4
        if collective == "all-gather":
            how = self._plan.for_all_gather(algorithm)
            return self._group.all_gather(in_ptr, out_ptr, words, "int32", "int32", awaited=awaited, **how)
        return self._group.broadcast(out_ptr, words, root, "int32", "int32", algorithm, awaited=awaited)

    def barrier(self, awaited: bool = False) -> int:
        """The ticket is finished when every rank has called it."""
        return self._group.barrier(awaited)

    def keep(self, ranks: list[int]) -> _core.PeerGroup | None:
        """Before close(): the connections to these ranks are to outlive this group. Returns the engine that keeps them;
        None if this engine cannot."""
        if not isinstance(self._group, _core.PeerGroup):
            return None
        self._group.keep(ranks)
        return self._group

    def failure(self) -> Exception | None:
        """Why the group has failed, such as a rank that died; also while nothing is submitted."""
        return self._group.failure if isinstance(self._group, _core.PeerGroup) else None

    @property
    def runs_everything(self) -> bool:
        """Whether it has, besides sums, the collectives of every type and operation, and messages."""
        return isinstance(self._group, _core.PeerGroup)


def _host_of(address: str) -> str:
    """The host in a rank's address: the first, if it has one for each of several NICs."""
    return address.partition(",")[0].rpartition(":")[0]


def machine_size(addresses: list[str]) -> int:
    """The number of ranks per machine, from the hosts in their addresses. Raises ValueError if machines have different
    numbers of ranks, or if the ranks of a machine are not neighbours."""
    hosts = list(map(_host_of, addresses))
    size = next((rank for rank, host in enumerate(hosts) if host != hosts[0]), len(hosts))
    machines = [set(hosts[first : first + size]) for first in range(0, len(hosts), size)]
    if len(hosts) % size or any(len(found) != 1 for found in machines) or len(set.union(*machines)) != len(machines):
        raise ValueError("machines have different numbers of ranks, or the ranks of a machine are not neighbours")
    return size


def publish(store: Store, rank: int, **said: str) -> None:
    """Publish this rank's `address`, or the `error` why it has no address."""
    store.set(f"{KEY}{rank}", json.dumps(said))


def publish_error(store: Store, rank: int, error: Exception) -> None:
    """Publish why this rank has no address. The rank that serves the store may have ended with an error of its own:
    then no rank can read it, and the caller still raises `error`."""
    with contextlib.suppress(RuntimeError):
        publish(store, rank, error=str(error))


def said_by_all(store: Store, world: int, timeout_s: float) -> list[dict[str, str]]:
    """The addresses that the ranks published. Raises RuntimeError that names the rank that failed or did not publish in
    time."""
    said = [json.loads(value) for value in store_values.of_all_ranks(store, KEY, world, timeout_s)]
    for rank, each in enumerate(said):
        if "error" in each:
            raise RuntimeError(f"netfold: rank {rank} could not join the process group: {each['error']}")
    return said


def names_of(said: dict[str, str]) -> list[str]:
    """The names that a topology file may use for the host of a rank: its address, its name, its name without the
    domain."""
    name = said["host"]
    return [_host_of(said["address"]).strip("[]"), name, name.partition(".")[0]]


def _placed(plan: HostPlan, topology: Topology, said: list[dict[str, str]], rank: int) -> tuple[HostPlan, list[int]]:
    """The plan on the ranks' BiGraph, and the order for hdrm. `auto` uses it only where it is as fast as a ring."""
    try:
        places = topology.places([names_of(each) for each in said])
    except ValueError as error:
        raise ValueError(f"netfold: {error}") from None
    is_used = plan.algorithm == HDRM or places.cost <= places.ring_cost
    logger.log(
        logging.INFO if rank == 0 else logging.DEBUG,
        "netfold: on %d of %d hosts of the BiGraph; with hdrm a cable carries at most %d connections of a step%s",
        len(said),
        len(topology.hosts),
        places.shared,
        "" if is_used else ", but a ring is faster",
    )
    return (replace(plan, bigraph=places.shape) if is_used else plan), places.order


def _settled(plan: HostPlan, addresses: list[str], wire: str, order: list[int]) -> HostPlan:
    world = len(addresses)
    try:
        if plan.algorithm == "hierarchical" and not plan.group:
            plan = HostPlan(plan.algorithm, group=machine_size(addresses))
        plan.check(world, wire, order)
    except ValueError as error:
        hint = HINTS.get(plan.algorithm, "")
        raise ValueError(
            f"netfold: {plan.algorithm} does not support this group of {world} ranks: {error}{hint}"
        ) from None
    return plan


def _chooser(
    store: Store,
    rank: int,
    plan: HostPlan,
    wire: str,
    addresses: list[str],
    look_up: Callable[[int, str], Choices | None],
    timeout_s: float,
) -> Choose:
    """The choices of `auto`, equal on all ranks; read only if the plan needs them."""
    if plan.algorithm not in (AUTO, "hierarchical"):
        return algorithms.choose
    hosts = set(map(_host_of, addresses))
    link = "shm" if len(hosts) == 1 else "tcp"
    rule: Choose = algorithms.choose_on_one_machine if link == "shm" else algorithms.choose
    if plan.order == algorithms.RANK:
        rule = algorithms.in_rank_order(rule, wire)
    return agreed_chooser(store, rank, lambda: look_up(plan.parties(len(addresses)), link), rule, timeout_s)


def join(
    store: Store,
    rank: int,
    world: int,
    plan: HostPlan,
    wire: str,
    bfp: tuple[int, int],
    listen: Callable[[], tuple[PeerEngine, str]],
    look_up: Callable[[int, str], Choices | None],
    timeout_s: float,
    topology: Topology | None = None,
    earlier: Earlier | None = None,
) -> HostClient:
    """Find the other ranks and connect to them; each of the two takes at most `timeout_s` (seconds). A PeerGroup goes
    on over the connections that are left of `earlier`.

    float32 tensors travel in format `wire`. `topology` gives the places of the ranks' hosts on a BiGraph. Raises
    ValueError on all ranks if it does not fit them.

    `listen` creates this rank's PeerGroup and returns the address at which the other ranks reach it. If it raises an
    error, the other ranks get that error too. Rank 0 calls `look_up` for the choices of its tuning table for this
    number of ranks over shm or tcp.
    """
    try:
        group, address = listen()
    except Exception as error:
        publish_error(store, rank, error)
        raise
    try:
        if not isinstance(group, _core.PeerGroup):
            earlier = None
        kept = earlier.said() if earlier is not None else {}
        publish(store, rank, address=address, host=socket.gethostname(), **kept)
        said = said_by_all(store, world, timeout_s)
        addresses = [each["address"] for each in said]
        order: list[int] = []
        if topology is not None:
            plan, order = _placed(plan, topology, said, rank)
            group.set_physical_order(order)
        plan = _settled(plan, addresses, wire, order)
        choose = _chooser(store, rank, plan, wire, addresses, look_up, timeout_s)
        if earlier is not None:
            earlier.hand_over(group, rank, said)
        group.connect(addresses)
    except BaseException as error:
        group.close(f"rank {rank} could not join: {error}")
        raise
    return HostClient(group, rank, world, plan, choose, bfp)
