"""One rank's membership in a group that folds: it joins, starts collectives in the caller's order, and leaves."""

from __future__ import annotations

from dataclasses import replace

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import ReduceOp, Work

from netfold.engines import Reducer
from netfold.log import write_to_stderr
from netfold.placement import CALLER
from netfold.torch.completion import CallerDriven, CompletionThread, Fold, Folds
from netfold.torch.devices import is_accelerator
from netfold.torch.host_collectives import CORE_DTYPES, Call, Operation, is_summable
from netfold.torch.joining import Seat, join
from netfold.torch.settings import Settings
from netfold.torch.staging import Event, InOrder, Staging
from netfold.torch.work import FoldWork


def settings_of_group(settings: Settings, size: int) -> Settings:
    """The settings of a group of `size` ranks, with logs on. A topology file describes the whole job; a group with only
    some of the ranks ignores it."""
    write_to_stderr(settings.log)
    is_part = dist.is_initialized() and size < dist.get_world_size()
    return replace(settings, topology="") if is_part else settings


class Member:
    """A rank of a group of two or more.

    Joining blocks until all ranks joined, for a bounded time, and raises what `joining.join` raises.
    """

    def __init__(self, seat: Seat, settings: Settings, address: str) -> None:
        self.settings = settings
        self.staging = Staging()
        self._rank = seat.rank
        self._in_order = InOrder()
        self.joined = join(seat, settings, address)
        is_driven = settings.engine == CALLER
        client = self.joined.client
        self.folds: Folds = CallerDriven(client) if is_driven else CompletionThread(client, seat.group or "group")

    @property
    def has_host_group(self) -> bool:
        """Whether the ranks run other collectives than all-reduce too."""
        return self.joined.has_host_group

    def can_fold(self, tensors: list[torch.Tensor], op: Operation) -> bool:
        """Whether Netfold folds these: SUM or AVG of strided tensors of one of the core's types, on one device."""
        if not tensors:
            return False
        first = tensors[0]
        return (
            is_summable(first.dtype, op)
            and (first.device.type == "cpu" or is_accelerator(first.device))
            and all(t.layout == torch.strided and t.dtype == first.dtype and t.device == first.device for t in tensors)
        )

    def fold(self, tensors: list[torch.Tensor], op: Operation, is_async: bool) -> FoldWork:
        """Start an all-reduce, in place, of the concatenation of `tensors`; `can_fold` must hold. Not `is_async`: the
        caller waits next."""
        tensors = list(tensors)
        devices = [tensors[0].device] if is_accelerator(tensors[0].device) else []
        if sum(tensor.numel() for tensor in tensors) == 0:
            work = self.folds.new_work(devices)
            work.complete(tensors)
            return work
        staged = self.staging.stage(tensors)
        buffer, average = staged.buffer, op == ReduceOp.AVG
        dtype = CORE_DTYPES[buffer.dtype]
        wire = self.settings.format if dtype == "fp32" else dtype

        def start(client: Reducer, awaited: bool) -> int:
            pointer, count = buffer.data_ptr(), buffer.numel()
            return client.all_reduce(pointer, pointer, count, dtype, wire, average, awaited=awaited)

        call = Call((buffer,), start, staged.finish, staged.completing)
        return self.start(call, is_async, staged.ready, devices)

    def start(
        self, call: Call, is_async: bool, ready: Event | None = None, devices: list[torch.device] | None = None
    ) -> FoldWork:
        """Submit a call after the event `ready`. Not `is_async`: the caller waits next, so its thread does the work."""
        awaited = not is_async and ready is None and not self.settings.cores
        work = self.folds.new_work(devices or [], awaited)
        fold = Fold(call, work)

        def fail(error: Exception) -> None:
            said = f"rank {self._rank} could not read its tensors: {error}".partition("\n")[0]
            self.folds.abandon(fold, error, said[:500])

        self._in_order.run(ready, lambda: self.folds.submit(fold), fail)
        return work

    def works_in_flight(self) -> list[Work]:
        """Works of the collectives that have not ended, oldest first."""
        return list(self.folds.works_in_flight())

    def leave(self, reason: str = "") -> None:
        """Leave the job and join the threads; call it once. With a reason, the other ranks' folds fail with it, and an
        embedded switch does not wait for its workers."""
        linger = not reason and self.folds.error is None
        self.folds.close(reason)
        self._in_order.close()
        self.joined.release(linger)

    def leave_to_parent(self, error: BaseException) -> None:
        """In a child of fork(): the job, its sockets and its threads are the parent's. Collectives fail with
        `error`."""
        self.folds.leave_to_parent(error)
        self._in_order = InOrder()
