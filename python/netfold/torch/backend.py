"""The process group's backend: it joins and leaves the job. Its collectives are in collective_calls.py."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
from torch._C._distributed_c10d import (
    DebugLevel,
    ErrorType,
    ProcessGroup,
    Store,
    _DistributedBackendOptions,
    get_debug_level,
)
from torch.distributed.distributed_c10d import SHRINK_ABORT

from netfold.torch import lifetime, parts
from netfold.torch.collective_calls import CollectiveCalls
from netfold.torch.devices import accelerator
from netfold.torch.earlier import Earlier
from netfold.torch.joining import Seat
from netfold.torch.lifetime import FORKED
from netfold.torch.member import Member, NotFormed, settings_of_group
from netfold.torch.monitored_barrier import MonitoredBarrier
from netfold.torch.options import Options, load
from netfold.torch.own_address import own_address
from netfold.torch.settings import Settings


def backend_of(group: ProcessGroup) -> NetfoldBackend | None:
    """The netfold backend of a process group, also if torch's DETAIL mode wraps it; None for other backends."""
    backends = (one for one in lifetime.alive if isinstance(one, NetfoldBackend) and not one.is_shut_down)
    return next((one for one in backends if one.options.group_name == group.group_name), None)


def create(
    opts: _DistributedBackendOptions, options: Options | None, earlier: Earlier | None = None, elastic: bool = False
) -> NetfoldBackend:
    """Make the backend of a process group; `options` is the caller's pg_options. `earlier` is the group that this one
    is shrunk from. `elastic`: the script goes on without a rank that fails.

    Raises NetfoldError (a RuntimeError) that names the switch if the switch is unreachable or refuses the worker, and
    ValueError for a wrong setting.
    """
    backend = NetfoldBackend(opts, options, earlier, elastic)
    # In DETAIL mode torch keeps only a C++ reference to a backend. Without this reference Python would free the Python
    # half, and its methods would be lost.
    lifetime.alive.add(backend)
    return backend


def serve(group: ProcessGroup, backend: NetfoldBackend) -> None:
    """Make `backend` the one of a process group for tensors of the host and of the accelerator."""
    group._set_default_backend(ProcessGroup.BackendType.CUSTOM)
    for device in {"cpu", accelerator()}:
        group._register_backend(torch.device(device), ProcessGroup.BackendType.CUSTOM, backend)


class NetfoldBackend(CollectiveCalls):
    """One worker's end of one process group."""

    def __init__(
        self,
        opts: _DistributedBackendOptions,
        options: Options | None,
        earlier: Earlier | None = None,
        elastic: bool = False,
    ) -> None:
        self._options = options if options is not None else Options(timeout=opts.timeout)
        self._options.group_name = opts.group_id
        self._options.global_ranks_in_group = list(opts.global_ranks_in_group)
        rank, size = opts.group_rank, opts.group_size
        # A copy: torch's own holds the process group, which holds this backend.
        self._given = parts.part_of(opts, list(range(size)), opts.store, opts.group_id)
        super().__init__(rank, size, opts.timeout, MonitoredBarrier(opts.store, rank, size))
        self._shut_down = False
        self._elastic = elastic
        self._address = ""
        self._member = self._first_member(settings_of_group(load(options), size), earlier)

    def _first_member(self, settings: Settings, earlier: Earlier | None) -> Member | NotFormed:
        if earlier is not None and not settings.bind:
            self._address = earlier.address
        return self._join(self._given, settings, earlier)

    def _join(
        self,
        given: _DistributedBackendOptions,
        settings: Settings,
        earlier: Earlier | None,
        bound_s: float | None = None,
    ) -> Member:
        """Join the group of these options; its ranks wait for each other at most `bound_s` (seconds; default: the
        group's timeout). They reach this one at its address, which is found now if it is unknown."""
        store, rank, size, timeout_s = given.store, given.group_rank, given.group_size, given.timeout.total_seconds()
        self.settings = settings
        self._address = self._address or own_address(store, rank, size, settings.bind, bound_s or timeout_s)
        seat = Seat(store, rank, size, given.group_id, timeout_s, earlier, bound_s, self._elastic)
        return Member(seat, settings, self._address)

    def getBackendName(self) -> str:
        """This backend's name in torch."""
        return "netfold"

    @property
    def options(self) -> Options:
        """The options this group was made with."""
        return self._options

    @property
    def error(self) -> BaseException | None:
        """The error that ended the group's job; None while collectives run."""
        return self._member.error

    @property
    def is_shut_down(self) -> bool:
        """Whether this rank has left the group."""
        return self._shut_down

    def stats(self) -> dict[str, Any]:
        """Counters of this rank's engine (packets, retransmissions, ...); empty in a group of one rank."""
        return self._member.stats()

    # The group's life.

    supports_shrinking = property(lambda self: True)

    def shrink(self, ranks_to_exclude: list[int], shrink_flags: int = 0, opts_override: Any = None) -> NetfoldBackend:
        """A group of the other ranks, which all call this; `torch.distributed.shrink_group` takes it. This group ends
        here: at once with SHRINK_ABORT, else after its collectives. Ranks that reach each other without a switch keep
        their connections.

        Raises RuntimeError that names a rank which leaves out others or does not call, within the group's timeout.
        """
        timeout_s = self._given.timeout.total_seconds()
        survivors = parts.agree(self._given.store, self.rank(), self.size(), ranks_to_exclude, timeout_s)
        keeper = self._member.keep(survivors)
        if shrink_flags & SHRINK_ABORT:
            self.abort()
        else:
            self.shutdown()
        smaller = parts.smaller(self._given, survivors)
        earlier = Earlier(keeper, survivors, smaller.group_id, self._address) if keeper is not None else None
        try:
            return create(smaller, opts_override or self._options.clone(), earlier, elastic=True)
        finally:
            if keeper is not None:
                keeper.drop_kept()

    supports_splitting = property(lambda self: True)

    def split(self, store: Store, ranks: list[int], opts: Any) -> NetfoldBackend:
        """A group of these ranks, which all call this; `torch.distributed.split_group` takes it. Its settings are this
        group's."""
        return create(parts.part_of(self._given, ranks, store, opts.group_name), self._options.clone())

    def set_timeout(self, timeout: timedelta) -> None:
        """As CollectiveCalls, also of the groups that follow from this one."""
        super().set_timeout(timeout)
        self._given.timeout = timeout

    def get_error(self) -> ErrorType:
        """TIMEOUT if the group's job has ended by its timeout, COMM_ERROR if it has failed otherwise, else SUCCESS."""
        if self.error is None:
            return ErrorType.SUCCESS
        return ErrorType.TIMEOUT if getattr(self.error, "code", "") == "timeout" else ErrorType.COMM_ERROR

    def abort(self) -> None:
        """Leave at once and tell the other ranks. Folds in flight fail, and an embedded switch does not wait for its
        workers."""
        self.leave(f"rank {self.rank()} aborted its process group")

    def shutdown(self) -> None:
        """Leave the job and join the threads. An embedded switch stays until the other ranks have left too, for a
        bounded time."""
        self.leave()
        lifetime.alive.discard(self)  # the group is being destroyed: torch makes no more calls

    def leave(self, reason: str = "") -> None:
        """End this rank's part in the group. With a reason, the other ranks' folds fail with it. A second call does
        nothing."""
        if self._shut_down:
            return
        self._shut_down = True
        self._member.leave(reason)
        if get_debug_level() != DebugLevel.DETAIL:
            lifetime.alive.discard(self)

    def leave_to_parent(self) -> None:
        """In a child of fork(): the job, its sockets and its threads are the parent's. Collectives raise RuntimeError
        here; leaving does nothing."""
        if self._shut_down:
            return
        self._shut_down = True
        self._member.leave_to_parent(RuntimeError(FORKED))
