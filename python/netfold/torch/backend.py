"""The process group's backend: which all-reduces the network folds, and its life from join to leave.

Plain words used here: a *fold* is an all-reduce done by Netfold, in the switch or, with a host algorithm, among the
ranks; a collective is *foldable* if it is a SUM or AVG of strided fp32, fp16, bf16 or int32 tensors. With a host
algorithm the ranks also do other collectives among themselves (host_collectives.py). Everything else goes to the inner
Gloo (gloo_served.py).
"""

from __future__ import annotations

import atexit
import logging
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import ErrorType, ProcessGroup, ReduceOp, Work, _DistributedBackendOptions

from netfold.algorithms import IN_NETWORK, HostPlan
from netfold.chooser.choices import Choices
from netfold.chooser.lookup import choices_for
from netfold.log import logger, write_to_stderr
from netfold.placement import CALLER, Placement
from netfold.topology import file as topology_file
from netfold.torch import host_collectives, host_group
from netfold.torch.completion import CallerDriven, CompletionThread, Fold, Folds
from netfold.torch.embedded_switch import EmbeddedSwitch, advertised
from netfold.torch.gloo_served import GlooServed, Tensors
from netfold.torch.host_collectives import CORE_DTYPES, Call, is_summable
from netfold.torch.settings import Options, Settings, load
from netfold.torch.staging import InOrder, Staging
from netfold.torch.switch_discovery import Agreement, agree, reachable_host
from netfold.torch.work import JoinedWork

# torch keeps only a C++ reference to a backend: in DETAIL mode the Python half would be collected and its methods lost.
_alive: set[NetfoldBackend] = set()


def backend_of(group: ProcessGroup) -> NetfoldBackend | None:
    """The netfold backend behind a process group, also where torch's DETAIL mode wraps it; None: there is none."""
    alive = (one for one in _alive if not one.is_shut_down and one.options.group_name == group.group_name)
    return next(alive, None)


def create(opts: _DistributedBackendOptions, options: Options | None) -> NetfoldBackend:
    """What torch calls for `init_process_group("netfold")` and `new_group`; `options` is the caller's pg_options.

    Raises NetfoldError (a RuntimeError) naming the switch if it cannot be reached or refuses, ValueError for a setting
    that makes no sense.
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
        super().__init__(opts.store, opts.group_rank, opts.group_size, opts.timeout)
        self._shut_down = False
        self._staging = Staging()
        self._in_order = InOrder()
        self._folds: Folds | None = None
        self._placement: Placement | None = None
        self._embedded: EmbeddedSwitch | None = None
        self._has_host_group = False  # other collectives than all-reduce are the ranks' own too
        if opts.group_size > 1:  # a group of one has nothing to fold
            self._join(opts)

    def _join(self, opts: _DistributedBackendOptions) -> None:
        timeout_s = self.settings.timeout_s or opts.timeout.total_seconds()
        try:
            agreement, self._embedded = agree(opts.store, opts.group_rank, self.settings, opts.group_id, timeout_s)
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

    def _make_client(self, opts: _DistributedBackendOptions, agreement: Agreement, timeout_s: float) -> Any:
        try:
            wanted = self.settings
            self._placement = Placement(wanted.engine, wanted.agent, wanted.cores, opts.group_rank, wanted.bfp)
        except Exception as error:
            host_group.publish(opts.store, opts.group_rank, error=str(error))
            raise
        if agreement.algorithm == IN_NETWORK:
            return _client(self._placement, agreement, self.settings, opts.group_rank, opts.group_size, timeout_s)
        return _host_client(self._placement, opts, agreement, self.settings, timeout_s)

    def getBackendName(self) -> str:
        """The name torch knows this backend by."""
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
        """Counters of this worker's client (packets, retransmissions, ...) or host group; empty in a group of one."""
        return self._folds.stats() if self._folds is not None else {}

    # What the network folds.

    def allreduce(self, tensors: Tensors, opts: Any) -> Work:
        """SUM and AVG of the core's types are folded in the network; the rest goes to Gloo."""
        if len(tensors) == 1 and self._foldable(tensors, opts.reduceOp):
            return self._fold(tensors, opts)
        return super().allreduce(tensors, opts)

    def allreduce_coalesced(self, tensors: Tensors, opts: Any) -> Work:
        """As allreduce, over all tensors as if they lay one behind the other: small ones share packets."""
        if self._foldable(tensors, opts.reduceOp):
            return self._fold(tensors, opts)
        return super().allreduce_coalesced(tensors, opts)

    def barrier(self, opts: Any) -> Work:
        """Passed once every rank came and this rank's earlier folds ended."""
        before = self._folds.works_in_flight() if self._folds is not None else []
        if self._has_host_group:
            return self._start(Call((), lambda client, awaited: client.barrier(awaited), list), opts, after=before)
        barrier = self._gloo.barrier(opts)
        return self._issued(JoinedWork([*before, barrier]) if before else barrier)

    # What ranks with a host algorithm do among themselves.

    def broadcast(self, tensors: Tensors, opts: Any) -> Work:
        """CPU tensors of any type, bit for bit."""
        call = host_collectives.broadcast(tensors, opts.rootRank) if self._has_host_group else None
        return self._start(call, opts) if call else super().broadcast(tensors, opts)

    def allgather(self, outputs: list[Tensors], inputs: Tensors, opts: Any) -> Work:
        """As broadcast: any type, bit for bit."""
        fits = self._has_host_group and len(inputs) == 1 and [len(each) for each in outputs] == [self.size()]
        call = host_collectives.all_gather(outputs[0], inputs[0]) if fits else None
        return self._start(call, opts) if call else super().allgather(outputs, inputs, opts)

    def all_gather_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any) -> Work:
        """As allgather, into one tensor."""
        call = host_collectives.all_gather_single(output, input, self.size()) if self._has_host_group else None
        return self._start(call, opts) if call else super().all_gather_single(output, input, opts)

    def reduce_scatter(self, outputs: Tensors, inputs: list[Tensors], opts: Any) -> Work:
        """What allreduce folds, in the group's format."""
        fits = self._has_host_group and len(outputs) == 1 and [len(each) for each in inputs] == [self.size()]
        wire = self.settings.format
        call = host_collectives.reduce_scatter(outputs[0], inputs[0], opts.reduceOp, wire) if fits else None
        return self._start(call, opts) if call else super().reduce_scatter(outputs, inputs, opts)

    def reduce_scatter_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any) -> Work:
        """As reduce_scatter, of one tensor."""
        call = None
        if self._has_host_group:
            wire = self.settings.format
            call = host_collectives.reduce_scatter_single(output, input, self.size(), opts.reduceOp, wire)
        return self._start(call, opts) if call else super().reduce_scatter_single(output, input, opts)

    def all_gather_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any) -> Work:
        """One all-gather a tensor."""
        if not self._has_host_group:
            return super().all_gather_single_coalesced(outputs, inputs, opts)
        return JoinedWork([self.all_gather_single(*pair, opts) for pair in zip(outputs, inputs, strict=True)])

    def reduce_scatter_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any) -> Work:
        """One reduce-scatter a tensor."""
        if not self._has_host_group:
            return super().reduce_scatter_single_coalesced(outputs, inputs, opts)
        return JoinedWork([self.reduce_scatter_single(*pair, opts) for pair in zip(outputs, inputs, strict=True)])

    # How it is handed over.

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

        def start(client: Any, awaited: bool) -> int:
            pointer, count = buffer.data_ptr(), buffer.numel()
            return client.all_reduce(pointer, pointer, count, dtype, wire, average, awaited=awaited)

        return self._start(Call((buffer,), start, staged.finish), opts, staged.ready, devices)

    def _start(
        self,
        call: Call,
        opts: Any,
        ready: torch.cuda.Event | None = None,
        devices: list[torch.device] | None = None,
        after: Sequence[Work] = (),
    ) -> Work:
        """Hand a call over once `ready` has passed; the Work ends when it and those in `after` have. torch says in
        `opts` whether its caller waits at once."""
        assert self._folds is not None
        folds = self._folds
        awaited = not opts.asyncOp and ready is None and not self.settings.cores  # theirs is the work, then
        work = folds.new_work(devices or [], awaited)
        fold = Fold(call, work)

        def fail(error: Exception) -> None:
            said = f"rank {self.rank()} could not read its tensors: {error}".partition("\n")[0]
            folds.abandon(fold, error, said[:500])

        self._in_order.run(ready, lambda: folds.submit(fold), fail)
        return self._issued(JoinedWork([*after, work]) if after else work)

    # The group's life.

    def get_error(self) -> ErrorType:
        """COMM_ERROR once the group's job failed, else SUCCESS."""
        failed = self._folds is not None and self._folds.error is not None
        return ErrorType.COMM_ERROR if failed else ErrorType.SUCCESS

    def abort(self) -> None:
        """Leave at once and tell the other ranks: folds in flight fail, and an embedded switch waits for nobody."""
        self.leave(f"rank {self.rank()} aborted its process group")

    def shutdown(self) -> None:
        """Leave the job and join the threads; an embedded switch stays, bounded, until the other ranks left too."""
        self.leave()

    def leave(self, reason: str = "") -> None:
        """End this rank's part in the group; with a reason the others' folds fail by it. A second call does nothing."""
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


def _say(agreement: Agreement, rank: int, size: int) -> None:
    """What the group goes by; rank 0 says it aloud."""
    at = f" at {agreement.switch}" if agreement.switch else ""
    level = logging.INFO if rank == 0 else logging.DEBUG
    logger.log(level, "netfold: %d ranks fold %s%s", size, agreement.algorithm, at)


def _client(
    placement: Placement, agreement: Agreement, settings: Settings, rank: int, size: int, timeout_s: float
) -> Any:
    """Join the job at the switch; blocks until all workers came, bounded by `timeout_s` (seconds)."""
    block, mantissa = agreement.bfp
    return placement.client(
        agreement.switch,
        agreement.job,
        size,
        rank,
        secret=agreement.secret,
        require_auth=settings.require_auth,
        timeout_s=timeout_s,
        connect_timeout_s=settings.connect_timeout_s,
        window=settings.window,
        block=block,
        mantissa=mantissa,
        faults=settings.faults.replace("{rank}", str(rank)),
        pcap=_of_rank(settings.pcap, rank),
    )


def _host_client(
    placement: Placement, opts: _DistributedBackendOptions, agreement: Agreement, settings: Settings, timeout_s: float
) -> host_group.HostClient:
    """Meet the other ranks through the store and connect to them; bounded."""
    rank, size = opts.group_rank, opts.group_size

    def listen() -> tuple[Any, str]:
        host = reachable_host(opts.store)
        group = placement.host_group(
            rank,
            size,
            listen=settings.bind or f"{host}:0",
            timeout_s=timeout_s,
            tcp_streams=settings.tcp_streams,
            secret=agreement.secret,
        )
        return group, advertised(group.address, host)

    plan = HostPlan(agreement.algorithm, agreement.bigraph, agreement.group)
    topology = topology_file.read(settings.topology) if settings.topology else None
    bound_s = settings.connect_timeout_s

    def look_up(ranks: int, link: str) -> Choices | None:
        return choices_for(ranks, link, agreement.format, settings.tuning)

    return host_group.join(opts.store, rank, size, plan, agreement.bfp, listen, look_up, bound_s, topology)


def _for_group(settings: Settings, opts: _DistributedBackendOptions) -> Settings:
    """A topology file is about the whole job; a group of a part of its ranks does without."""
    is_part = 0 < len(opts.global_ranks_in_group) < dist.get_world_size() if dist.is_initialized() else False
    return replace(settings, topology="") if is_part else settings


def _of_rank(path: str, rank: int) -> str:
    """A file name of this rank's own: `{rank}` filled in, or put before the ending."""
    if not path or "{rank}" in path:
        return path.replace("{rank}", str(rank))
    stem, dot, ending = path.rpartition(".")
    return f"{stem}.rank{rank}.{ending}" if dot else f"{path}.rank{rank}"


@atexit.register
def _leave_all() -> None:
    """Scripts that never call destroy_process_group still leave their jobs, and threads end before Python does."""
    uncaught = getattr(sys, "last_value", None)  # what ended the script, if it was an exception
    for backend in list(_alive):
        said = f"rank {backend.rank()} ended by {type(uncaught).__name__}: {uncaught}" if uncaught is not None else ""
        backend.leave(said[:500])
