"""Torch's `reconfigure` (2.15): a group whose ranks change, while their processes and their process group stay.

Each rank has a handle, a line of text. The script passes the handles around by means of its own, such as torch's store,
and every rank that is to be in the group gives all of them to `torch.distributed._reconfigure`, in the same order.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

from torch._C._distributed_c10d import PrefixStore, ProcessGroup, Store, Work, _DistributedBackendOptions

from netfold.log import logger
from netfold.torch import backend, lifetime, parts
from netfold.torch.backend import NetfoldBackend
from netfold.torch.earlier import Earlier
from netfold.torch.member import NotFormed, settings_of_part
from netfold.torch.monitored_barrier import MonitoredBarrier
from netfold.torch.options import Options
from netfold.torch.settings import Settings
from netfold.torch.work import ended_work

_HANDLE = re.compile(r"netfold:([0-9a-f]+):([0-9a-f-]*):(\d+)")


@dataclass(frozen=True)
class Handle:
    """A rank's handle. `member` is the name of its end of the process group, which stays the same. `group` is the name
    of the group that it is in, "" before the first, and `rank` its rank there."""

    member: str
    group: str
    rank: int

    def __str__(self) -> str:
        return f"netfold:{self.member}:{self.group}:{self.rank}"


def ordered(given: Collection[str], own: Handle) -> list[Handle]:
    """The handles of a new group by rank: a list keeps its order. Of a set, ranks that have been in a group come
    first, as they were ordered there, so that rank 0 has the state of the training if any rank has.

    Raises ValueError for a text that is not a handle, for two handles of one rank, and if `own` is not among them."""
    handles = [_read(each) for each in given]
    if isinstance(given, set | frozenset):
        handles.sort(key=lambda each: (not each.group, each.group, each.rank, each.member))
    members = [each.member for each in handles]
    twice = next((each for each in handles if members.count(each.member) > 1), None)
    if twice is not None:
        raise ValueError(f"netfold: reconfigure: two of the handles are of one rank, such as {twice}")
    if own not in handles:
        why = (
            "the one given was taken before this rank's last reconfigure; take handles anew each time"
            if own.member in members
            else "every rank of the new group gives all handles, its own included"
        )
        raise ValueError(f"netfold: reconfigure: this rank's handle {own} is not among the {len(handles)} given: {why}")
    return handles


def _read(text: str) -> Handle:
    found = _HANDLE.fullmatch(text)
    if found is None:
        raise ValueError(
            f"netfold: reconfigure: {text!r} is not the handle of a netfold group; each rank asks "
            "torch.distributed._get_reconfigure_handle() for its own"
        )
    return Handle(found[1], found[2], int(found[3]))


def name_of(uuid: int, handles: list[Handle]) -> str:
    """The name of a new group. Ranks that give other handles, or the same ones in another order, do not meet in it."""
    digest = hashlib.sha256("\n".join(map(str, handles)).encode()).hexdigest()
    return f"{uuid & (1 << 64) - 1:x}-{digest[:16]}"


def ranks_in(group: str, handles: list[Handle]) -> list[int]:
    """The ranks in the group of that name by the ranks of the new one; -1 for a rank that was not in it."""
    return [each.rank if group and each.group == group else -1 for each in handles]


def create(opts: _DistributedBackendOptions, options: Options | None) -> NetfoldBackend | ReconfigurableGroup:
    """Torch calls this for `init_process_group("netfold")` and `new_group`; `options` is the caller's pg_options. With
    `enable_reconfigure` the ranks meet at the first `reconfigure`.

    Raises what `backend.create` raises.
    """
    if not getattr(opts, "enable_reconfigure", False):
        return backend.create(opts, options)
    made = ReconfigurableBackend(opts, options, elastic=True)
    return ReconfigurableGroup(made, opts.store, opts.group_rank, opts.group_size)


class ReconfigurableBackend(NetfoldBackend):
    """A worker's end of a process group that is formed again and again. Between an end and the next `reconfigure`
    collectives raise RuntimeError."""

    supports_reconfigure = property(lambda self: True)

    def _first_member(self, settings: Settings, earlier: Earlier | None) -> NotFormed:
        if settings.roce and self._given.group_rank == 0:
            logger.warning("netfold: NETFOLD_ROCE is not used: it needs a group whose ranks do not change")
        self.settings = self._wanted = settings_of_part(settings)
        self._rank, self._size = self._given.group_rank, self._given.group_size
        self._handle = Handle(secrets.token_hex(8), "", self._rank)
        self._store = self._given.store
        self._uuids: set[int] = set()
        return NotFormed("this group has no ranks before the first torch.distributed._reconfigure")

    def rank(self) -> int:
        """This rank's number; before the first reconfigure, the one given to init_process_group."""
        return self._rank

    def size(self) -> int:
        """The number of ranks; before the first reconfigure, the one given to init_process_group."""
        return self._size

    @property
    def error(self) -> BaseException | None:
        """The error that ended the group's job; None while collectives run, and after abort()."""
        return None if self._shut_down else super().error

    def get_reconfigure_handle(self) -> str:
        """This rank's handle. It is another one after each reconfigure."""
        return str(self._handle)

    def reconfigure(self, opts: Any) -> Work:
        """Leave the group, and form the one of the ranks whose handles are given. Blocks until all of them have called
        it, at most `opts.timeout`, else the group's. Ranks that reach each other without a switch keep their
        connections. `opts.hints` has no meaning here.

        Raises ValueError for wrong handles, which leaves the group as it was. Raises RuntimeError for a uuid that was
        used before, and one that names the ranks which did not come. After the latter this rank has no group until
        the next reconfigure."""
        handles = ordered(opts.handles, self._handle)
        if opts.uuid in self._uuids:
            raise RuntimeError(f"netfold: reconfigure: the uuid {opts.uuid} was already used; take a new one each time")
        self._uuids.add(opts.uuid)
        name = name_of(opts.uuid, handles)
        old_ranks = ranks_in(self._handle.group, handles)
        given = self._options_of(name, handles.index(self._handle), len(handles))
        keeper = None if self._shut_down else self._member.keep([each for each in old_ranks if each >= 0])
        self._end()
        earlier = Earlier(keeper, old_ranks, given.group_id, self._address) if keeper is not None else None
        if -1 in old_ranks or self.settings.bind:
            self._address = ""  # a rank that has come may need the addresses of all others, to choose its own
        settings, bound_s = self._wanted, None
        if opts.timeout is not None:
            bound_s = opts.timeout.total_seconds()
            settings = replace(settings, connect_timeout_s=bound_s)
        try:
            member = self._join(given, settings, earlier, bound_s)
        except BaseException as error:
            self._member = NotFormed(f"this rank has no group, because the last reconfigure failed: {error}")
            raise
        finally:
            if keeper is not None:
                keeper.drop_kept()
        self._member, self._given = member, given
        self._rank, self._size = given.group_rank, given.group_size
        self._handle = Handle(self._handle.member, name, self._rank)
        self._monitored = MonitoredBarrier(given.store, self._rank, self._size)
        self._sequence = 0
        self._shut_down = False
        lifetime.alive.add(self)
        return ended_work([])

    def _options_of(self, name: str, rank: int, size: int) -> _DistributedBackendOptions:
        """The options of the group of that name."""
        store = PrefixStore(f"reconfigured/{name}", self._store)
        return parts.options_of(store, rank, list(range(size)), self._timeout, name)

    def _end(self) -> None:
        """End the group before the next one. A group that has failed ends at once, with what is in flight."""
        if self.error is not None:
            self.abort()
        else:
            self.leave()


class ReconfigurableGroup(ProcessGroup):
    """A process group whose rank and size are those that its backend has now.

    Torch reads both from C++ members of the backend, which a backend in Python cannot set. So this class says them
    itself, and leaves everything else to torch."""

    def __init__(self, own: ReconfigurableBackend, store: Store, rank: int, size: int) -> None:
        super().__init__(store, rank, size)
        self._netfold = own
        backend.serve(self, own)

    def getRank(self) -> int:
        """This rank's number; torch calls it for `rank()`."""
        return self._netfold.rank()

    def getSize(self) -> int:
        """The number of ranks; torch calls it for `size()`."""
        return self._netfold.size()
