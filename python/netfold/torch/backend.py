"""The process group's backend: it decides which all-reduces Netfold folds, and it joins and leaves the job.

Terms used here: a *fold* is an all-reduce done by Netfold, in the switch or, with a host algorithm, among the ranks. A
collective is *foldable* if it is a SUM or AVG of strided fp32, fp16, bf16 or int32 tensors. With a host algorithm the
ranks also run other collectives among themselves (host_collectives.py). Everything else goes to the inner Gloo
(gloo_served.py).
"""

from __future__ import annotations

from typing import Any

import torch
from torch._C._distributed_c10d import (
    DebugLevel,
    ErrorType,
    ProcessGroup,
    Store,
    Work,
    _DistributedBackendOptions,
    get_debug_level,
)
from torch.distributed.distributed_c10d import SHRINK_ABORT

from netfold.torch import host_collectives, lifetime, parts
from netfold.torch.gloo_served import GlooServed, Tensors
from netfold.torch.host_collectives import Call
from netfold.torch.joining import Seat
from netfold.torch.lifetime import FORKED
from netfold.torch.member import Member, settings_of_group
from netfold.torch.options import Options, load
from netfold.torch.own_address import own_address
from netfold.torch.work import JoinedWork


def backend_of(group: ProcessGroup) -> NetfoldBackend | None:
    """The netfold backend of a process group, also if torch's DETAIL mode wraps it; None for other backends."""
    backends = (one for one in lifetime.alive if isinstance(one, NetfoldBackend) and not one.is_shut_down)
    return next((one for one in backends if one.options.group_name == group.group_name), None)


def create(opts: _DistributedBackendOptions, options: Options | None) -> NetfoldBackend:
    """Torch calls this for `init_process_group("netfold")` and `new_group`; `options` is the caller's pg_options.

    Raises NetfoldError (a RuntimeError) that names the switch if the switch is unreachable or refuses the worker, and
    ValueError for a wrong setting.
    """
    backend = NetfoldBackend(opts, options)
    # In DETAIL mode torch keeps only a C++ reference to a backend. Without this reference Python would free the Python
    # half, and its methods would be lost.
    lifetime.alive.add(backend)
    return backend


class NetfoldBackend(GlooServed):
    """One worker's end of one process group."""

    def __init__(self, opts: _DistributedBackendOptions, options: Options | None) -> None:
        self.settings = settings_of_group(load(options), opts.group_size)
        self._options = options if options is not None else Options(timeout=opts.timeout)
        self._options.group_name = opts.group_id
        self._options.global_ranks_in_group = list(opts.global_ranks_in_group)
        self._given = opts
        rank, size = opts.group_rank, opts.group_size
        timeout_s = opts.timeout.total_seconds()
        address = own_address(opts.store, rank, size, self.settings.bind, timeout_s)
        super().__init__(opts.store, rank, size, address, opts.timeout)
        self._shut_down = False
        self._member: Member | None = None  # a group of one rank folds nothing
        if size > 1:
            self._member = Member(Seat(opts.store, rank, size, opts.group_id, timeout_s), self.settings, address)

    @property
    def _has_host_group(self) -> bool:
        """Whether the ranks run other collectives than all-reduce too."""
        return self._member is not None and self._member.has_host_group

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
        return self._member.folds.error if self._member is not None else None

    @property
    def is_shut_down(self) -> bool:
        """Whether this rank has left the group."""
        return self._shut_down

    def stats(self) -> dict[str, Any]:
        """Counters of this rank's engine (packets, retransmissions, ...); empty in a group of one rank."""
        return self._member.folds.stats() if self._member is not None else {}

    # Collectives that Netfold folds.

    def allreduce(self, tensors: Tensors, opts: Any) -> Work:
        """Netfold folds SUM and AVG of the core's types; other calls go to Gloo."""
        member = self._member
        if member is not None and len(tensors) == 1 and member.can_fold(tensors, opts.reduceOp):
            return self._issued(member.fold(tensors, opts.reduceOp, opts.asyncOp))
        return super().allreduce(tensors, opts)

    def allreduce_coalesced(self, tensors: Tensors, opts: Any) -> Work:
        """Like allreduce, over the concatenation of all tensors: small tensors share packets."""
        member = self._member
        if member is not None and member.can_fold(tensors, opts.reduceOp):
            return self._issued(member.fold(tensors, opts.reduceOp, opts.asyncOp))
        return super().allreduce_coalesced(tensors, opts)

    def barrier(self, opts: Any) -> Work:
        """Ends when every rank has called it and this rank's earlier folds have ended."""
        before = self._member.works_in_flight() if self._member is not None else []
        if self._member is not None and self._member.has_host_group:
            work: Work = self._member.start(host_collectives.barrier(), opts.asyncOp)
            return self._issued(JoinedWork([*before, work]) if before else work)
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

    def _start(self, call: Call, opts: Any) -> Work:
        """Start a call among the ranks. `opts` says whether the caller waits at once."""
        assert self._member is not None, "a call is made only in a group of ranks that fold among themselves"
        return self._issued(self._member.start(call, opts.asyncOp))

    # The group's life.

    supports_shrinking = property(lambda self: True)

    def shrink(self, ranks_to_exclude: list[int], shrink_flags: int = 0, opts_override: Any = None) -> NetfoldBackend:
        """A group of the other ranks, which all call this; `torch.distributed.shrink_group` takes it. This group ends
        here: at once with SHRINK_ABORT, else after its collectives.

        Raises RuntimeError that names a rank which leaves out others or does not call, within the group's timeout.
        """
        timeout_s = self._given.timeout.total_seconds()
        survivors = parts.agree(self._given.store, self.rank(), self.size(), ranks_to_exclude, timeout_s)
        if shrink_flags & SHRINK_ABORT:
            self.abort()
        else:
            self.shutdown()
        return create(parts.smaller(self._given, survivors), opts_override or self._options.clone())

    supports_splitting = property(lambda self: True)

    def split(self, store: Store, ranks: list[int], opts: Any) -> NetfoldBackend:
        """A group of these ranks, which all call this; `torch.distributed.split_group` takes it. Its settings are this
        group's."""
        return create(parts.part_of(self._given, ranks, store, opts.group_name), self._options.clone())

    def get_error(self) -> ErrorType:
        """COMM_ERROR if the group's job has failed, else SUCCESS."""
        return ErrorType.COMM_ERROR if self.error is not None else ErrorType.SUCCESS

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
        if self._member is not None:
            self._member.leave(reason)
        self._drop_gloo()
        if get_debug_level() != DebugLevel.DETAIL:
            lifetime.alive.discard(self)

    def leave_to_parent(self) -> None:
        """In a child of fork(): the job, its sockets and its threads are the parent's. Collectives raise RuntimeError
        here; leaving does nothing."""
        if self._shut_down:
            return
        self._shut_down = True
        if self._member is not None:
            self._member.leave_to_parent(RuntimeError(FORKED))
        self._leave_gloo_to_parent()
