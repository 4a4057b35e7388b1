"""How a rank joins its group: at the switch, among the ranks, or both, as the ranks agree."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from torch._C._distributed_c10d import PrefixStore, Store

from netfold.algorithms import AUTO, IN_NETWORK, SPLIT, HostPlan
from netfold.chooser.choices import Choices
from netfold.chooser.lookup import choices_for
from netfold.engines import PeerEngine, Reducer, RoceEngine
from netfold.interfaces import in_address
from netfold.log import logger
from netfold.placement import AGENT, CALLER, ROCE, THREAD, Placement
from netfold.topology import file as topology_file
from netfold.torch import host_group, roce
from netfold.torch.earlier import Earlier
from netfold.torch.embedded_switch import EmbeddedSwitch, advertised
from netfold.torch.host_group import HostClient
from netfold.torch.settings import Settings
from netfold.torch.switch_discovery import Agreement, agree

ROCE_WINDOW = 128  # packets


@dataclass(frozen=True)
class Seat:
    """A rank's place in a process group: torch's store and name of the group, the group's timeout in seconds, and the
    group that its ranks were in before. `bound_s`: how long the ranks wait for each other to join; default: the
    timeout. `elastic`: the script goes on without a rank that fails, so a machine that is cut off is known soon."""

    store: Store
    rank: int
    size: int
    group: str
    timeout_s: float
    earlier: Earlier | None = None
    bound_s: float | None = None
    elastic: bool = False


@dataclass
class Joined:
    """A rank that has joined: its engine, and what must be released after the engine is closed."""

    client: Reducer
    placement: Placement
    embedded: EmbeddedSwitch | None
    peers: HostClient | None  # runs what `client` cannot, among the ranks; `client` itself where that can
    roce_jobs: list[int] = field(default_factory=list)
    join_scatters: Callable[[], Reducer] | None = None  # joins the switch's job for reduce-scatters; blocks as `join`

    def release(self, linger: bool) -> None:
        """Release the placement and the embedded switch. With `linger` the switch waits until the other ranks have
        left, for a bounded time."""
        self.placement.release()
        while self.roce_jobs:
            roce.give_back(self.roce_jobs.pop())
        if self.embedded is not None:
            self.embedded.release(linger)
            self.embedded = None


def join(seat: Seat, settings: Settings, address: str, needs_peers: bool) -> Joined:
    """Join the group; other ranks reach this one at `address`. Blocks until all ranks joined, for a bounded time.
    `needs_peers`: the group runs more than all-reduces.

    Raises NetfoldError (a RuntimeError) that names the switch if the switch is unreachable or refuses the worker, and
    ValueError if the ranks' settings contradict each other.
    """
    timeout_s = settings.timeout_s or seat.timeout_s
    embedded, placement = None, None
    try:
        try:
            agreement, embedded = agree(seat.store, seat.rank, settings, seat.group, address, seat.bound_s or timeout_s)
            placement = Placement(
                settings.engine, settings.agent, settings.cores, seat.rank, settings.nic, settings.bfp
            )
        except Exception as error:
            host_group.publish_error(seat.store, seat.rank, error)
            raise
        client: Reducer
        if settings.roce:
            client = _roce_client(placement, seat, agreement, settings, timeout_s)
        else:
            make = _client if agreement.algorithm == IN_NETWORK else _host_client
            client = make(placement, seat, agreement, settings, address, timeout_s)
        peers = client if isinstance(client, HostClient) and client.runs_everything else None
        if needs_peers and peers is None:
            try:
                peers = _peers(seat, agreement, settings, address, timeout_s)
            except BaseException as error:
                client.close(f"rank {seat.rank} could not join: {error}"[:500])
                raise
    except BaseException:
        if embedded is not None:
            embedded.release(linger=False)
        if placement is not None:
            placement.release()
        raise
    _say(agreement, seat)
    joined = Joined(client, placement, embedded, peers)
    if settings.roce:
        joined.roce_jobs.append(int(agreement.job))
        joined.join_scatters = lambda: _roce_scatters(joined, seat, agreement, settings, timeout_s)
    elif agreement.algorithm == IN_NETWORK and settings.engine != AGENT:
        joined.join_scatters = lambda: _scatters(placement, seat, agreement, settings, timeout_s)
    return joined


def _peers(seat: Seat, agreement: Agreement, settings: Settings, host: str, timeout_s: float) -> HostClient:
    """Connect to the other ranks beside an engine that runs only sums: a switch's, an agent's or a NIC's."""
    engine = CALLER if settings.engine in (CALLER, AGENT) else THREAD  # an agent's worker has no thread of Netfold's
    placement = Placement(engine, "", settings.cores, seat.rank)
    beside = replace(seat, store=PrefixStore("netfold/peers", seat.store))
    alone = replace(agreement, algorithm=AUTO, bigraph=(0, 0), group=0)
    return _host_client(placement, beside, alone, replace(settings, topology="", bind=""), host, timeout_s)


def _say(agreement: Agreement, seat: Seat) -> None:
    """Log what the group agreed on; only rank 0 logs it at level info."""
    at = f" at {agreement.switch}" if agreement.switch else ""
    if agreement.engine == ROCE:
        at = f" over RoCE, as job {agreement.job}"
    level = logging.INFO if seat.rank == 0 else logging.DEBUG
    logger.log(level, "netfold: %d ranks fold %s%s", seat.size, agreement.algorithm, at)


def _client(
    placement: Placement, seat: Seat, agreement: Agreement, settings: Settings, host: str, timeout_s: float
) -> Reducer:
    """Join the job at the switch; blocks until all workers joined, at most `timeout_s` (seconds)."""
    return placement.client(
        agreement.switch,
        agreement.job,
        seat.size,
        seat.rank,
        secret=agreement.secret,
        timeout_s=timeout_s,
        require_auth=settings.require_auth,
        dscp=settings.dscp,
        interface="".join(settings.interface),
        **_at_switch(agreement, settings, seat.rank),
    )


def _scatters(placement: Placement, seat: Seat, agreement: Agreement, settings: Settings, timeout_s: float) -> Reducer:
    """Join the job for reduce-scatters: the same ranks at the same switch. It has a stream of its own, so that a
    reduce-scatter, whose bytes go up, and an all-gather, whose bytes come down, travel at the same time."""
    own = _of_scatters(settings)
    return _client(placement, seat, replace(agreement, job=f"{agreement.job}/scatters"), own, "", timeout_s)


def _of_scatters(settings: Settings) -> Settings:
    return replace(settings, pcap=_renamed(settings.pcap, "scatters"))


def _roce_scatters(joined: Joined, seat: Seat, agreement: Agreement, settings: Settings, timeout_s: float) -> Reducer:
    """The same over RoCE: rank 0 chooses the number of the job."""
    beside = replace(seat, store=PrefixStore("netfold/scatters", seat.store))
    job = roce.agree_on_job(beside.store, seat.rank, settings.roce, settings.connect_timeout_s)
    joined.roce_jobs.append(job)
    return _roce_client(joined.placement, beside, replace(agreement, job=str(job)), _of_scatters(settings), timeout_s)


def _roce_client(
    placement: Placement, seat: Seat, agreement: Agreement, settings: Settings, timeout_s: float
) -> Reducer:
    """Open the RoCE endpoint and connect it to the neighbours; a switch folds at the ports between them."""
    block, mantissa = agreement.bfp

    def open_engine() -> RoceEngine:
        return placement.roce_group(
            settings.roce,
            seat.rank,
            seat.size,
            int(agreement.job),
            timeout_s=timeout_s,
            window=settings.window or ROCE_WINDOW,
            block=block,
            mantissa=mantissa,
            faults=settings.faults.replace("{rank}", str(seat.rank)),
            pcap=_of_rank(settings.pcap, seat.rank),
        )

    return roce.join(seat.store, seat.rank, seat.size, settings.connect_timeout_s, open_engine)


def _at_switch(agreement: Agreement, settings: Settings, rank: int) -> dict[str, Any]:
    """The settings of a worker's conversation with its switch."""
    block, mantissa = agreement.bfp
    return {
        "connect_timeout_s": settings.connect_timeout_s,
        "window": settings.window,
        "block": block,
        "mantissa": mantissa,
        "faults": settings.faults.replace("{rank}", str(rank)),
        "pcap": _of_rank(settings.pcap, rank),
        "place": agreement.place,
    }


def _host_client(
    placement: Placement, seat: Seat, agreement: Agreement, settings: Settings, host: str, timeout_s: float
) -> host_group.HostClient:
    """Find the other ranks through the store and connect to them, within the timeout."""
    rank, size = seat.rank, seat.size
    meeting = {
        "listen": settings.bind or f"{in_address(host)}:0",
        "timeout_s": timeout_s,
        "tcp_streams": settings.tcp_streams,
        "dscp": settings.dscp,
        "interfaces": list(settings.interface),
        "secret": agreement.secret,
        "require_auth": settings.require_auth,
        "elastic": seat.elastic,
    }

    def listen() -> tuple[PeerEngine, str]:
        if agreement.algorithm == SPLIT:
            group = placement.split_group(
                rank,
                size,
                switches=agreement.switches(),
                job=agreement.job,
                **meeting,
                **_at_switch(agreement, settings, rank),
            )
        else:
            group = placement.host_group(rank, size, **meeting)
        return group, advertised(group.address, host)

    plan = HostPlan(agreement.algorithm, agreement.bigraph, agreement.group, agreement.order)
    topology = topology_file.read(settings.topology) if settings.topology else None
    bound_s = settings.connect_timeout_s

    def look_up(ranks: int, link: str) -> Choices | None:
        return choices_for(ranks, link, agreement.format, settings.tuning, agreement.order)

    return host_group.join(
        seat.store, rank, size, plan, agreement.format, agreement.bfp, listen, look_up, bound_s, topology, seat.earlier
    )


def _of_rank(path: str, rank: int) -> str:
    """This rank's file name: its number replaces `{rank}`, or comes before the suffix."""
    return path.replace("{rank}", str(rank)) if "{rank}" in path else _renamed(path, f"rank{rank}")


def _renamed(path: str, what: str) -> str:
    """The file name with `what` before its suffix; "" stays."""
    stem, dot, ending = path.rpartition(".")
    if not path:
        return path
    return f"{stem}.{what}.{ending}" if dot else f"{path}.{what}"
