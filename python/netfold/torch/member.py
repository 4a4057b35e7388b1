"""One rank's membership in a group that folds: it joins, starts collectives in the caller's order, and leaves."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import ReduceOp, Work

from netfold import _core
from netfold.algorithms import AUTO, HDRM
from netfold.collective_record import Recorder
from netfold.engines import Reducer
from netfold.log import logger, write_to_stderr
from netfold.placement import AGENT, CALLER, THREAD
from netfold.torch.calls import CORE_DTYPES, Call, Operation, is_summable
from netfold.torch.completion import CallerDriven, CompletionThread, Fold, Folds
from netfold.torch.devices import is_accelerator
from netfold.torch.host_group import HostClient
from netfold.torch.joining import Joined, Seat, join
from netfold.torch.lone import LoneEngine
from netfold.torch.settings import Settings
from netfold.torch.staging import InOrder, Staging, refuse_capture
from netfold.torch.stream_order import OrderedStaging, can_encode
from netfold.torch.work import FoldWork, OrderedWork

FINISH_S = 5.0  # for collectives in flight when a rank leaves: all ranks have started them, or one never will


def settings_of_group(settings: Settings, size: int) -> Settings:
    """The settings of a group of `size` ranks, with logs on."""
    write_to_stderr(settings.log)
    return settings_of_part(settings) if dist.is_initialized() and size < dist.get_world_size() else settings


def settings_of_part(settings: Settings) -> Settings:
    """The settings of a group with only some of the job's ranks. RoCE folds at the ports of all ranks, and
    NETFOLD_BIGRAPH describes the places of all; such a group ignores both."""
    if settings.roce:
        settings = replace(settings, roce="", engine=THREAD, algorithm=AUTO, faults="", pcap="")
    return replace(settings, bigraph=(0, 0)) if settings.algorithm != HDRM else settings


class NotFormed:
    """In the place of a rank's Member while its group is not formed: every call raises RuntimeError with the reason."""

    error = None

    def __init__(self, why: str) -> None:
        self._why = f"netfold: {why}"

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(self._why)

    def keep(self, ranks: list[int]) -> None:
        """There are no connections to keep."""

    def set_timeout(self, timeout_s: float) -> None:
        """The next group takes the process group's timeout when it is formed."""

    def leave(self, reason: str = "") -> None:
        """There is nothing to leave."""

    def leave_to_parent(self, error: BaseException) -> None:
        """In a child of fork(): there is nothing to leave."""


def _runs_common(client: Any, settings: Settings) -> bool:
    """Whether a worker at a switch runs more than all-reduces: one of an agent does not, and all ranks use agents, or
    none. Over RoCE the ranks have found it out."""
    if settings.roce:
        return bool(client.is_one_way)
    return settings.engine != AGENT


class Member:
    """A rank of a group: `folds` runs its all-reduces and the other collectives that every engine has
    (`Call.is_common`); `peers` runs everything else. Both are one where one engine can. At a switch, reduce-scatters
    have a job of their own, which all ranks join at the first one: the ways up and down are then busy at the same time.

    Joining blocks until all ranks joined, for a bounded time, and raises what `joining.join` raises. A group of one
    rank joins nothing. `needs_peers`: the group runs more than all-reduces.
    """

    def __init__(self, seat: Seat, settings: Settings, address: str, needs_peers: bool = True) -> None:
        self.settings = settings
        # A device's stream that waits for a message would hold up other messages: Python waits for those.
        self.message_staging = Staging()
        is_ordered = settings.engine == THREAD and seat.size > 1
        self.staging = OrderedStaging() if is_ordered else self.message_staging
        self._rank, self._size = seat.rank, seat.size
        self._in_order = InOrder()
        self.joined: Joined | None = None
        self._recorder: Recorder | None = None
        self._scatters: Folds | None = None
        self._timeout_s: float | None = None  # where another one was set after joining
        self._name = seat.group or "group"
        if seat.size == 1:
            if settings.switch and not dist.is_initialized():
                logger.warning("netfold: the job has one rank, so the switch at %s is not used", settings.switch)
            self.folds: Folds = CallerDriven(LoneEngine())
            self.peers: Folds = self.folds
            self._folds_common = True
            return
        if settings.trace:
            self._recorder = Recorder(settings.trace, seat.group, seat.rank, seat.size)
        self.joined = joined = join(seat, settings, address, needs_peers)
        self._folds_common = isinstance(joined.client, HostClient) or _runs_common(joined.client, settings)
        name = self._name
        self.folds = self._folds_of(joined.client, name)
        if settings.roce and joined.peers is not None:  # RoCE itself does not notice that a rank has died
            self.folds.beside = joined.peers.failure
        if joined.peers is None or joined.peers is joined.client:
            self.peers = self.folds
        elif settings.engine == AGENT:  # the worker's process has no thread of Netfold's
            self.peers = CallerDriven(joined.peers, self._recorder)
        else:
            self.peers = self._folds_of(joined.peers, f"{name}-peers")

    def _folds_of(self, client: Any, name: str) -> Folds:
        if self.settings.engine == CALLER:
            return CallerDriven(client, self._recorder)
        return CompletionThread(client, name, self._recorder)

    @property
    def is_lone(self) -> bool:
        """Whether the group has no other rank."""
        return self.joined is None

    @property
    def error(self) -> BaseException | None:
        """Why the group has failed, if it has."""
        return next((folds.error for folds in self._all_folds() if folds.error is not None), None)

    def _all_folds(self) -> list[Folds]:
        """Each engine's, once."""
        every = (self.folds, self._scatters, self.peers)
        return list(dict.fromkeys(folds for folds in every if folds is not None))

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
        if sum(tensor.numel() for tensor in tensors) == 0:
            work = self.folds.new_work([tensors[0].device] if is_accelerator(tensors[0].device) else [])
            work.complete(tensors)
            return work
        average = op == ReduceOp.AVG
        call = self._fold_of_device(tensors, average) or self._fold_of_host(tensors, average)
        call.name = "all-reduce"
        return self._submit(self.folds, call, self._new_work(self.folds, call, is_async))

    def _fold_of_host(self, tensors: list[torch.Tensor], average: bool) -> Call:
        staged = self.staging.stage(tensors)
        buffer = staged.buffer
        dtype, wire = self._travels_as(tensors[0].dtype)

        def start(client: Reducer, awaited: bool) -> int:
            pointer, count = buffer.data_ptr(), buffer.numel()
            return client.all_reduce(pointer, pointer, count, dtype, wire, average, awaited=awaited)

        return self.staging.call_in_place(staged, start, tensors)

    def _fold_of_device(self, tensors: list[torch.Tensor], average: bool) -> Call | None:
        """None if the tensors are the host's, or their device cannot wait for the engine."""
        if not (isinstance(self.staging, OrderedStaging) and is_accelerator(tensors[0].device)):
            return None
        refuse_capture(tensors[0].device)
        dtype, wire = self._travels_as(tensors[0].dtype)
        encodes = wire == "bfp" and not self.settings.roce and can_encode(tensors[0].device)
        bfp = self.settings.bfp if encodes else None
        block, mantissa = self.settings.bfp

        def submit(client: Reducer, pointer: int, count: int, encoded: bool) -> int:
            averages = average and not encoded  # the device divides
            return client.all_reduce(
                pointer, pointer, count, dtype, wire, averages, block=block, mantissa=mantissa, encoded=encoded
            )

        return self.staging.fold_call(tensors, submit, bfp, self._size if average else 1)

    def _travels_as(self, dtype: torch.dtype) -> tuple[str, str]:
        """The core's names of a type, and of the format in which it travels."""
        name = CORE_DTYPES[dtype]
        return name, self.settings.format if name == "fp32" else name

    def start(self, call: Call, is_async: bool) -> FoldWork:
        """Submit a call to the engine that runs it, once its tensors may be read. Not `is_async`: the caller waits
        next, so its thread does the work."""
        folds = self.folds if call.is_common and self._folds_common else self.peers
        if call.is_scatter and folds is self.folds:
            folds = self._folds_of_scatters()
        return self._submit(folds, call, self._new_work(folds, call, is_async))

    def _folds_of_scatters(self) -> Folds:
        """Those of the job for reduce-scatters, where the group has one. The first call blocks until all ranks have
        joined it, for a bounded time; if one does not, the group fails."""
        if self._scatters is not None:
            return self._scatters
        if self.joined is None or self.joined.join_scatters is None or self.folds.error is not None:
            return self.folds
        self.folds.step_aside()
        try:
            client = self.joined.join_scatters()
        except Exception as error:
            self.folds.fail(error, f"rank {self._rank} could not join the job for reduce-scatters: {error}"[:500])
            return self.folds
        self._scatters = scatters = self._folds_of(client, f"{self._name}-scatters")
        if self._timeout_s is not None:
            scatters.set_timeout(self._timeout_s)
        scatters.beside = lambda: self.folds.error
        earlier = self.folds.beside
        self.folds.beside = lambda: scatters.error or (earlier() if earlier is not None else None)
        return scatters

    def start_message(self, call: Call) -> FoldWork:
        """The same for a send or receive."""
        return self._submit(self.peers, call, self.peers.new_message(call.devices))

    def _new_work(self, folds: Folds, call: Call, is_async: bool) -> FoldWork:
        if call.parts:
            [device] = call.devices
            return OrderedWork(device)
        return folds.new_work(call.devices, not is_async and call.ready is None and not self.settings.cores)

    def _submit(self, folds: Folds, call: Call, work: FoldWork) -> FoldWork:
        fold = Fold(call, work)

        def fail(error: Exception) -> None:
            said = f"rank {self._rank} could not read its tensors: {error}".partition("\n")[0]
            folds.abandon(fold, error, said[:500])

        if call.parts:  # the engine keeps the order
            folds.submit(fold)
            return work
        self._in_order.run(call.ready, lambda: folds.submit(fold), fail)
        if self.is_lone:
            work.get_future()  # it is over, and this completes it
        return work

    def keep(self, ranks: list[int]) -> _core.PeerGroup | None:
        """Before leave(): the connections to these ranks are to outlive the group. Returns the engine that keeps them;
        None if none can."""
        peers = self.joined.peers if self.joined is not None else None
        return peers.keep(ranks) if peers is not None else None

    def works_in_flight(self) -> list[Work]:
        """Works of the collectives that have not ended, the oldest of each job first."""
        works = self.folds.works_in_flight()
        return [*works, *(self._scatters.works_in_flight() if self._scatters is not None else [])]

    def stats(self) -> dict[str, Any]:
        """The counters of the engine that folds. Those of two jobs are added; the window and the round trip, which
        cannot be, are the first one's."""
        stats = self.folds.stats()
        if self._scatters is None:
            return stats
        scatters = self._scatters.stats()
        counts = [key for key, value in stats.items() if type(value) is int and key != "window_chunks"]
        return {**stats, **{key: stats[key] + scatters[key] for key in counts}}

    def set_timeout(self, timeout_s: float) -> None:
        """How long a collective may make no progress, from now on, unless NETFOLD_TIMEOUT_S says it."""
        if self.settings.timeout_s is None:
            self._timeout_s = timeout_s
            for folds in self._all_folds():
                folds.set_timeout(timeout_s)

    def leave(self, reason: str = "") -> None:
        """Leave the job and join the threads; call it once. With a reason, the other ranks' folds fail with it, and an
        embedded switch does not wait for its workers. Without one, collectives in flight may end before, for
        FINISH_S."""
        linger = not reason and self.error is None
        if linger:
            self._finish()
        for folds in self._all_folds():
            folds.beside = None  # the jobs end one after the other, which is not a failure
        for folds in self._all_folds():
            folds.close(reason)
        self._in_order.close()
        self._end_record()
        if self.joined is not None:
            self.joined.release(linger)

    def _finish(self) -> None:
        deadline = time.monotonic() + FINISH_S
        for folds in self._all_folds():
            for work in folds.works_in_flight():
                if not work.finish(deadline - time.monotonic()):
                    return

    def _end_record(self) -> None:
        if self._recorder is None:
            return
        self._recorder.close(self.stats(), str(self.error or ""))
        if self._recorder.error:
            logger.warning("netfold: %s", self._recorder.error)

    def leave_to_parent(self, error: BaseException) -> None:
        """In a child of fork(): the job, its sockets and its threads are the parent's. Collectives fail with
        `error`."""
        for folds in self._all_folds():
            folds.leave_to_parent(error)
        self._in_order = InOrder()
