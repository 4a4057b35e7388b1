"""The process group's backend: it decides which all-reduces Netfold folds, and it joins and leaves the job.

Terms used here: a *fold* is an all-reduce done by Netfold, in the switch or, with a host algorithm, among the ranks. A
collective is *foldable* if it is a SUM or AVG of strided fp32, fp16, bf16 or int32 tensors. With a host algorithm the
ranks also run other collectives among themselves (host_collectives.py). Everything else goes to the inner Gloo
(gloo_served.py).
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import (
    DebugLevel,
    ErrorType,
    ProcessGroup,
    ReduceOp,
    Work,
    _DistributedBackendOptions,
    get_debug_level,
)

from netfold.algorithms import IN_NETWORK, SPLIT, HostPlan
from netfold.chooser.choices import Choices
from netfold.chooser.lookup import choices_for
from netfold.engines import PeerEngine, Reducer
from netfold.log import logger, write_to_stderr
from netfold.placement import CALLER, Placement
from netfold.topology import file as topology_file
from netfold.torch import host_collectives, host_group
from netfold.torch.completion import CallerDriven, CompletionThread, Fold, Folds
from netfold.torch.embedded_switch import EmbeddedSwitch, advertised
from netfold.torch.gloo_served import GlooServed, Tensors
from netfold.torch.host_collectives import CORE_DTYPES, Call, is_summable
from netfold.torch.own_address import need_ipv4, own_address
from netfold.torch.settings import Options, Settings, load
from netfold.torch.staging import InOrder, Staging
from netfold.torch.switch_discovery import Agreement, agree
from netfold.torch.work import JoinedWork

FORKED = (
    "netfold: this process was forked from the one that made this process group, and only that one can use it; start "
    "processes that train with torchrun, or call init_process_group in each"
)

# Backends that torch may still call. In DETAIL mode torch keeps only a C++ reference to a backend. Without this
# reference Python would free the Python half, and its methods would be lost.
_alive: set[NetfoldBackend] = set()


def backend_of(group: ProcessGroup) -> NetfoldBackend | None:
    """The netfold backend of a process group, also if torch's DETAIL mode wraps it; None for other backends."""
    alive = (one for one in _alive if not one.is_shut_down and one.options.group_name == group.group_name)
    return next(alive, None)


def create(opts: _DistributedBackendOptions, options: Options | None) -> NetfoldBackend:
    """Torch calls this for `init_process_group("netfold")` and `new_group`; `options` is the caller's pg_options.

    Raises NetfoldError (a RuntimeError) that names the switch if the switch is unreachable or refuses the worker, and
    ValueError for a wrong setting.
    """
    backend = NetfoldBackend(opts, options)
    _alive.add(backend)
    return backend


class NetfoldBackend(GlooServed):
    """One worker's end of one process group."""

    def __init__(self, opts: _DistributedBackendOptions, options: Options | None) -> None:
        self.settings = _for_group(load(options), opts)
        write_to_stderr(self.settings.log)
        self._options = options if options is not None else Options(timeout=opts.timeout)
        self._options.group_name = opts.group_id
        self._options.global_ranks_in_group = list(opts.global_ranks_in_group)
        rank, size = opts.group_rank, opts.group_size
        self._address = own_address(opts.store, rank, size, self.settings.bind, opts.timeout.total_seconds())
        super().__init__(opts.store, rank, size, self._address, opts.timeout)
        self._shut_down = False
        self._staging = Staging()
        self._in_order = InOrder()
        self._folds: Folds | None = None
        self._placement: Placement | None = None
        self._embedded: EmbeddedSwitch | None = None
        self._has_host_group = False  # whether the ranks run other collectives than all-reduce too
        if size > 1:  # a group of one rank folds nothing
            self._join(opts)

    def _join(self, opts: _DistributedBackendOptions) -> None:
        timeout_s = self.settings.timeout_s or opts.timeout.total_seconds()
        try:
            agreement, self._embedded = agree(
                opts.store, opts.group_rank, self.settings, opts.group_id, self._address, timeout_s
            )
        except Exception as error:
            host_group.publish(opts.store, opts.group_rank, error=str(error))
            raise
        try:
            client = self._make_client(opts, agreement, timeout_s)
        except BaseException:
            if self._embedded is not None:
                self._embedded.release(linger=False)
            if self._placement is not None:
                self._placement.release()
            raise
        is_driven = self.settings.engine == CALLER
        self._folds = CallerDriven(client) if is_driven else CompletionThread(client, opts.group_id or "group")
        self._has_host_group = agreement.algorithm != IN_NETWORK
        _say(agreement, opts.group_rank, opts.group_size)

    def _make_client(self, opts: _DistributedBackendOptions, agreement: Agreement, timeout_s: float) -> Reducer:
        try:
            wanted = self.settings
            self._placement = Placement(wanted.engine, wanted.agent, wanted.cores, opts.group_rank, wanted.bfp)
        except Exception as error:
            host_group.publish(opts.store, opts.group_rank, error=str(error))
            raise
        if agreement.algorithm == IN_NETWORK:
            return _client(self._placement, agreement, self.settings, opts.group_rank, opts.group_size, timeout_s)
        return _host_client(self._placement, opts, agreement, self.settings, self._address, timeout_s)

    def getBackendName(self) -> str:
        """This backend's name in torch."""
        return "netfold"

    @property
    def options(self) -> Options:
        """The options this group was made with."""
        return self._options

    @property
    def is_shut_down(self) -> bool:
        """Whether this rank has left the group."""
        return self._shut_down

    def stats(self) -> dict[str, Any]:
        """Counters of this rank's engine (packets, retransmissions, ...); empty in a group of one rank."""
        return self._folds.stats() if self._folds is not None else {}

    # Collectives that Netfold folds.

    def allreduce(self, tensors: Tensors, opts: Any) -> Work:
        """Netfold folds SUM and AVG of the core's types; other calls go to Gloo."""
        if len(tensors) == 1 and self._foldable(tensors, opts.reduceOp):
            return self._fold(tensors, opts)
        return super().allreduce(tensors, opts)

    def allreduce_coalesced(self, tensors: Tensors, opts: Any) -> Work:
        """Like allreduce, over the concatenation of all tensors: small tensors share packets."""
        if self._foldable(tensors, opts.reduceOp):
            return self._fold(tensors, opts)
        return super().allreduce_coalesced(tensors, opts)

    def barrier(self, opts: Any) -> Work:
        """Ends when every rank has called it and this rank's earlier folds have ended."""
        before = self._folds.works_in_flight() if self._folds is not None else []
        if self._has_host_group:
            return self._start(host_collectives.barrier(), opts, after=before)
        barrier = self._gloo.barrier(opts)
        return self._issued(JoinedWork([*before, barrier]) if before else barrier)

    # Collectives that ranks with a host algorithm run among themselves.

    def broadcast(self, tensors: Tensors, opts: Any) -> Work:
        """Copies CPU tensors of any type, bit for bit."""
        call = host_collectives.broadcast(tensors, opts.rootRank) if self._has_host_group else None
        return self._start(call, opts) if call else super().broadcast(tensors, opts)

    def allgather(self, outputs: list[Tensors], inputs: Tensors, opts: Any) -> Work:
        """Like broadcast: any type, bit for bit."""
        fits = self._has_host_group and len(inputs) == 1 and [len(each) for each in outputs] == [self.size()]
        call = host_collectives.all_gather(outputs[0], inputs[0]) if fits else None
        return self._start(call, opts) if call else super().allgather(outputs, inputs, opts)

    def all_gather_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any) -> Work:
        """Like allgather, into one tensor."""
        call = host_collectives.all_gather_single(output, input, self.size()) if self._has_host_group else None
        return self._start(call, opts) if call else super().all_gather_single(output, input, opts)

    def reduce_scatter(self, outputs: Tensors, inputs: list[Tensors], opts: Any) -> Work:
        """The same operations and types as allreduce, in the group's format."""
        fits = self._has_host_group and len(outputs) == 1 and [len(each) for each in inputs] == [self.size()]
        wire = self.settings.format
        call = host_collectives.reduce_scatter(outputs[0], inputs[0], opts.reduceOp, wire) if fits else None
        return self._start(call, opts) if call else super().reduce_scatter(outputs, inputs, opts)

    def reduce_scatter_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any) -> Work:
        """Like reduce_scatter, of one tensor."""
        call = None
        if self._has_host_group:
            wire = self.settings.format
            call = host_collectives.reduce_scatter_single(output, input, self.size(), opts.reduceOp, wire)
        return self._start(call, opts) if call else super().reduce_scatter_single(output, input, opts)

    def all_gather_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any) -> Work:
        """One all-gather for each tensor."""
        if not self._has_host_group:
            return super().all_gather_single_coalesced(outputs, inputs, opts)
        return JoinedWork([self.all_gather_single(*pair, opts) for pair in zip(outputs, inputs, strict=True)])

    def reduce_scatter_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any) -> Work:
        """One reduce-scatter for each tensor."""
        if not self._has_host_group:
            return super().reduce_scatter_single_coalesced(outputs, inputs, opts)
        return JoinedWork([self.reduce_scatter_single(*pair, opts) for pair in zip(outputs, inputs, strict=True)])

    # Submission.

    def _foldable(self, tensors: Tensors, op: ReduceOp) -> bool:
        first = tensors[0] if tensors else None
        return (
            self._folds is not None
            and first is not None
            and is_summable(first.dtype, op)
            and first.device.type in ("cpu", "cuda")
            and all(t.layout == torch.strided and t.dtype == first.dtype and t.device == first.device for t in tensors)
        )

    def _fold(self, tensors: Tensors, opts: Any) -> Work:
        assert self._folds is not None
        tensors = list(tensors)
        devices = [tensors[0].device] if tensors[0].is_cuda else []
        if sum(tensor.numel() for tensor in tensors) == 0:
            work = self._folds.new_work(devices)
            work.complete(tensors)
            return self._issued(work)
        staged = self._staging.stage(tensors)
        buffer, average = staged.buffer, opts.reduceOp == ReduceOp.AVG
        dtype = CORE_DTYPES[buffer.dtype]
        wire = self.settings.format if dtype == "fp32" else dtype

        def start(client: Reducer, awaited: bool) -> int:
            pointer, count = buffer.data_ptr(), buffer.numel()
            return client.all_reduce(pointer, pointer, count, dtype, wire, average, awaited=awaited)

        return self._start(Call((buffer,), start, staged.finish, staged.completing), opts, staged.ready, devices)

    def _start(
        self,
        call: Call,
        opts: Any,
        ready: torch.cuda.Event | None = None,
        devices: list[torch.device] | None = None,
        after: Sequence[Work] = (),
    ) -> Work:
        """Submit a call after the event `ready`. The Work ends when the call and all works in `after` have ended.
        `opts` says whether the caller waits at once."""
        assert self._folds is not None
        folds = self._folds
        awaited = (
            not opts.asyncOp and ready is None and not self.settings.cores
        )  # then the caller's thread does the work
        work = folds.new_work(devices or [], awaited)
        fold = Fold(call, work)

        def fail(error: Exception) -> None:
            said = f"rank {self.rank()} could not read its tensors: {error}".partition("\n")[0]
            folds.abandon(fold, error, said[:500])

        self._in_order.run(ready, lambda: folds.submit(fold), fail)
        return self._issued(JoinedWork([*after, work]) if after else work)

    # The group's life.

    def get_error(self) -> ErrorType:
        """COMM_ERROR if the group's job has failed, else SUCCESS."""
        failed = self._folds is not None and self._folds.error is not None
        return ErrorType.COMM_ERROR if failed else ErrorType.SUCCESS

    def abort(self) -> None:
        """Leave at once and tell the other ranks. Folds in flight fail, and an embedded switch does not wait for its
        workers."""
        self.leave(f"rank {self.rank()} aborted its process group")

    def shutdown(self) -> None:
        """Leave the job and join the threads. An embedded switch stays until the other ranks have left too, for a
        bounded time."""
        self.leave()
        _alive.discard(self)  # the group is being destroyed: torch makes no more calls

    def leave(self, reason: str = "") -> None:
        """End this rank's part in the group. With a reason, the other ranks' folds fail with it. A second call does
        nothing."""
        if self._shut_down:
            return
        self._shut_down = True
        linger = not reason and self._folds is not None and self._folds.error is None
        if self._folds is not None:
            self._folds.close(reason)
        self._in_order.close()
        if self._placement is not None:
            self._placement.release()
        if self._embedded is not None:
            self._embedded.release(linger)
            self._embedded = None
        self._drop_gloo()
        if get_debug_level() != DebugLevel.DETAIL:
            _alive.discard(self)

    def leave_to_parent(self) -> None:
        """In a child of fork(): the job, its sockets and its threads are the parent's. Collectives raise RuntimeError
        here; leaving does nothing."""
        if self._shut_down:
            return
        self._shut_down = True
        if self._folds is not None:
            self._folds.leave_to_parent(RuntimeError(FORKED))
        self._in_order = InOrder()
        self._placement = self._embedded = None
        self._leave_gloo_to_parent()


def _say(agreement: Agreement, rank: int, size: int) -> None:
    """Log what the group agreed on; only rank 0 logs it at level info."""
    at = f" at {agreement.switch}" if agreement.switch else ""
    level = logging.INFO if rank == 0 else logging.DEBUG
    logger.log(level, "netfold: %d ranks fold %s%s", size, agreement.algorithm, at)


def _client(
    placement: Placement, agreement: Agreement, settings: Settings, rank: int, size: int, timeout_s: float
) -> Reducer:
    """Join the job at the switch; blocks until all workers joined, at most `timeout_s` (seconds)."""
    return placement.client(
        agreement.switch,
        agreement.job,
        size,
        rank,
        secret=agreement.secret,
        timeout_s=timeout_s,
        **_at_switch(agreement, settings, rank),
    )


def _at_switch(agreement: Agreement, settings: Settings, rank: int) -> dict[str, Any]:
    """The settings of a worker's conversation with its switch."""
    block, mantissa = agreement.bfp
    return {
        "require_auth": settings.require_auth,
        "connect_timeout_s": settings.connect_timeout_s,
        "window": settings.window,
        "block": block,
        "mantissa": mantissa,
        "faults": settings.faults.replace("{rank}", str(rank)),
        "pcap": _of_rank(settings.pcap, rank),
        "place": agreement.place,
    }


def _host_client(
    placement: Placement,
    opts: _DistributedBackendOptions,
    agreement: Agreement,
    settings: Settings,
    host: str,
    timeout_s: float,
) -> host_group.HostClient:
    """Find the other ranks through the store and connect to them, within the timeout."""
    rank, size = opts.group_rank, opts.group_size

    meeting = {
        "listen": settings.bind or f"{need_ipv4(host)}:0",
        "timeout_s": timeout_s,
        "tcp_streams": settings.tcp_streams,
        "secret": agreement.secret,
    }

    def listen() -> tuple[PeerEngine, str]:
        if agreement.algorithm == SPLIT:
            group = placement.split_group(
                rank,
                size,
                switch=agreement.switch,
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
        opts.store, rank, size, plan, agreement.format, agreement.bfp, listen, look_up, bound_s, topology
    )


def _for_group(settings: Settings, opts: _DistributedBackendOptions) -> Settings:
    """A topology file describes the whole job; a group with only some of the ranks ignores it."""
    is_part = 0 < len(opts.global_ranks_in_group) < dist.get_world_size() if dist.is_initialized() else False
    return replace(settings, topology="") if is_part else settings


def _of_rank(path: str, rank: int) -> str:
    """This rank's file name: its number replaces `{rank}`, or comes before the suffix."""
    if not path or "{rank}" in path:
        return path.replace("{rank}", str(rank))
    stem, dot, ending = path.rpartition(".")
    return f"{stem}.rank{rank}.{ending}" if dot else f"{path}.rank{rank}"


@atexit.register
def _leave_all() -> None:
    """Scripts that never call destroy_process_group still leave their jobs, and the threads end before Python ends."""
    uncaught = getattr(sys, "last_value", None)  # the exception that ended the script, if there was one
    for backend in list(_alive):
        said = f"rank {backend.rank()} ended by {type(uncaught).__name__}: {uncaught}" if uncaught is not None else ""
        backend.leave(said[:500])


def _leave_all_to_parent() -> None:
    """A child of fork(), such as a DataLoader's worker, must not say goodbye to the ranks of its parent."""
    EmbeddedSwitch.forget_all()
    for backend in _alive:
        backend.leave_to_parent()


os.register_at_fork(after_in_child=_leave_all_to_parent)
