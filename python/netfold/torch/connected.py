"""Folding beside a process group of any backend, such as NCCL or Gloo: `netfold.torch.connect()`.

The backend `init_process_group("netfold")` needs a recent torch. This module needs only the process group's store, and
runs on torch 2.4 too. The ranks find each other through the store, as ranks of the backend do, with the same settings.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, ProcessGroup, ReduceOp
from torch.distributed import distributed_c10d

from netfold.torch import lifetime, settings
from netfold.torch.calls import CORE_DTYPES, Operation
from netfold.torch.devices import is_accelerator, module_of
from netfold.torch.joining import Seat
from netfold.torch.lifetime import FORKED
from netfold.torch.member import Member, settings_of_group
from netfold.torch.own_address import own_address
from netfold.torch.settings import Settings
from netfold.torch.work import FoldWork, ended_work

_connections: dict[ProcessGroup, int] = {}  # how often this rank has connected beside each process group


class FoldingGroup:
    """One rank's end of a group that folds beside a process group; `connect` makes it."""

    def __init__(self, process_group: ProcessGroup, wanted: Settings) -> None:
        rank, size = dist.get_rank(process_group), dist.get_world_size(process_group)
        self.process_group = process_group
        self.settings = settings_of_group(wanted, size)
        self._rank, self._size = rank, size
        self._has_left = False
        self._member: Member | None = None
        if size == 1:  # nothing to sum
            return
        number = _connections.get(process_group, 0)
        _connections[process_group] = number + 1
        # A prefix of its own: a group that connects once more must not read what it published before.
        group_store = distributed_c10d._get_process_group_store(process_group)
        store = PrefixStore(f"netfold/connected/{number}", group_store)
        timeout_s = self.settings.timeout_s or distributed_c10d.default_pg_timeout.total_seconds()
        address = own_address(store, rank, size, self.settings.bind, timeout_s)
        name = f"{process_group.group_name}-{number}"
        self._member = Member(Seat(store, rank, size, name, timeout_s), self.settings, address, needs_peers=False)
        lifetime.alive.add(self)

    def rank(self) -> int:
        """This rank's number in the group."""
        return self._rank

    def size(self) -> int:
        """The number of ranks."""
        return self._size

    def stats(self) -> dict[str, Any]:
        """Counters of this rank's engine (packets, retransmissions, ...); empty in a group of one rank."""
        return self._member.stats() if self._member is not None else {}

    def all_reduce(
        self,
        tensors: torch.Tensor | list[torch.Tensor],
        op: Operation = dist.ReduceOp.SUM,
        async_op: bool = False,
    ) -> FoldWork | None:
        """Sum or average a tensor, or a list of tensors of one type and device, over all ranks, in place.

        Returns None when the tensors are folded, or with `async_op` a work at once: `work.wait()` and
        `work.get_future()`, whose value is the list of tensors. For a tensor on an accelerator the copies run on
        streams of their own, after what the current stream has done so far; a wait, or this call without `async_op`,
        makes the current stream wait for the result and returns at once. An error may then come later: it is logged,
        and the next call raises it.

        Raises ValueError for tensors or operations that Netfold does not fold, and NetfoldError (a RuntimeError), here
        or in the work, that names the rank or the switch that failed.
        """
        given = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
        if self._has_left:
            raise RuntimeError("netfold: this group was closed; connect() makes a new one")
        if self._member is None:
            work = ended_work(given)
        elif self._member.can_fold(given, op):
            work = self._member.fold(given, op, async_op)
        else:
            raise ValueError(
                f"netfold: an all-reduce is a SUM of {', '.join(CORE_DTYPES.values())}, or an AVG of floating-point "
                f"numbers, of strided tensors of one type on one device, not {op} of "
                f"{[f'{t.dtype} on {t.device}' for t in given]}"
            )
        if async_op:
            return work
        work.wait()
        return None

    def average(self, tensor: torch.Tensor) -> None:
        """Average a tensor over all ranks, in place. It is a hook for FSDP2 (`average_shards` sets it). For a tensor on
        an accelerator the current stream waits for the result, and the caller's thread goes on."""
        self.all_reduce(tensor, ReduceOp.AVG)
        if is_accelerator(tensor.device):  # FSDP2 gives a tensor of another stream
            tensor.record_stream(module_of(tensor.device).current_stream(tensor.device))

    def __enter__(self) -> FoldingGroup:
        """`with connect() as group:` closes it at the end."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        """After an exception, the other ranks' folds fail with it."""
        self.leave(f"rank {self._rank} ended by {type(error).__name__}: {error}"[:500] if error is not None else "")

    def close(self) -> None:
        """Leave the group and end its threads; an embedded switch stays until the other ranks have left too, for a
        bounded time. A second call does nothing."""
        self.leave()

    def leave(self, reason: str = "") -> None:
        """Like close. With a reason, the other ranks' folds fail with it."""
        if self._has_left:
            return
        self._has_left = True
        lifetime.alive.discard(self)
        if self._member is not None:
            self._member.leave(reason)

    def leave_to_parent(self) -> None:
        """In a child of fork(): the job, its sockets and its threads are the parent's."""
        if self._member is not None and not self._has_left:
            self._has_left = True
            self._member.leave_to_parent(RuntimeError(FORKED))


def connect(process_group: ProcessGroup | None = None, **given: Any) -> FoldingGroup:
    """Open a Netfold group beside a process group of any backend; every rank of that group calls it.

    `given` are settings of `netfold.torch.Options`, such as switch="10.0.0.5:7171" or format="bfp"; they override the
    environment. Blocks until all ranks joined, for a bounded time. Raises ValueError for wrong settings, TypeError for
    a setting that does not exist, and RuntimeError (NetfoldError) that names the switch or the rank that is missing.
    """
    group = process_group if process_group is not None else dist.group.WORLD
    if group is None:
        raise ValueError("netfold: there is no process group; call torch.distributed.init_process_group before")
    return FoldingGroup(group, settings.load(settings.read(given)))


_default: dict[ProcessGroup, FoldingGroup] = {}


def all_reduce(
    tensor: torch.Tensor,
    op: Operation = dist.ReduceOp.SUM,
    group: ProcessGroup | None = None,
    async_op: bool = False,
) -> FoldWork | None:
    """Like `torch.distributed.all_reduce`, folded by Netfold beside the process group `group` (default: all ranks) of
    any backend. The first call connects, with the settings of the environment; see FoldingGroup.all_reduce."""
    beside = group if group is not None else dist.group.WORLD
    if beside is None or beside not in _default:
        connected = connect(beside)
        _default[connected.process_group] = connected
        return connected.all_reduce(tensor, op, async_op)
    return _default[beside].all_reduce(tensor, op, async_op)
