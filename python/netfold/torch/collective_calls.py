"""The collectives and messages of a process group, as c10d calls them: each becomes a call of an engine.

The methods are the virtual methods of `c10d::Backend` (torch 2.15), with torch's order of arguments and lists of
tensors. Wrong arguments raise ValueError at once; every other error arrives through the Work.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
from torch._C._distributed_c10d import Backend, BarrierOptions, Work

from netfold.torch import collectives, sparse
from netfold.torch.calls import Call, Operation
from netfold.torch.collectives import Tensors
from netfold.torch.member import Member, NotFormed
from netfold.torch.monitored_barrier import MonitoredBarrier
from netfold.torch.work import JoinedWork, ended_work


def _only(tensors: list[Any], what: str) -> Any:
    if len(tensors) != 1:
        raise ValueError(f"netfold: {what} takes one tensor of each rank, not {len(tensors)}")
    return tensors[0]


class CollectiveCalls(Backend):
    """A backend that runs everything on its `Member`."""

    _member: Member | NotFormed

    def __init__(self, rank: int, size: int, timeout: timedelta, monitored: MonitoredBarrier) -> None:
        super().__init__(rank, size)
        self._timeout = timeout
        self._monitored = monitored
        self._coalescing: list[Work] | None = None
        self._sequence = 0

    # Torch reads these as Python attributes. If a class does not define them, torch 2.15 recurses without end.
    supports_coalescing = property(lambda self: False)
    supports_reconfigure = property(lambda self: False)
    supports_window = property(lambda self: False)
    _supports_time_estimate = property(lambda self: False)

    def _issued(self, work: Work, collective: bool = True) -> Work:
        """Count a collective, and note any work that lies between start_coalescing and end_coalescing."""
        self._sequence += collective
        if self._coalescing is not None:
            self._coalescing.append(work)
        return work

    def _start(self, call: Call, opts: Any) -> Work:
        """Start a call among the ranks. `opts` says whether the caller waits at once."""
        return self._issued(self._member.start(call, opts.asyncOp))

    def start_coalescing(self) -> None:
        """Collect the works of the calls that follow, until end_coalescing joins them into one."""
        if self._coalescing is not None:
            raise RuntimeError("netfold: start_coalescing was called twice; end the first one before")
        self._coalescing = []

    def end_coalescing(self) -> Work:
        """One Work for everything issued since start_coalescing."""
        if self._coalescing is None:
            raise RuntimeError("netfold: end_coalescing without start_coalescing")
        works, self._coalescing = self._coalescing, None
        return JoinedWork(works)

    # Sums and other operations.

    def allreduce(self, tensors: Tensors, opts: Any) -> Work:
        """SUM and AVG of the core's types fold as the settings say; the ranks run every other operation and type among
        themselves."""
        if _only(tensors, "an all-reduce").layout == torch.sparse_coo:
            return self.allreduce_sparse(tensors, opts)
        return self.allreduce_coalesced(tensors, opts)

    def allreduce_coalesced(self, tensors: Tensors, opts: Any) -> Work:
        """Like allreduce, over the concatenation of all tensors: small tensors share packets."""
        if self._member.can_fold(tensors, opts.reduceOp):
            return self._issued(self._member.fold(tensors, opts.reduceOp, opts.asyncOp))
        return self._start(collectives.all_reduce(self._member.staging, list(tensors), opts.reduceOp), opts)

    def allreduce_sparse(self, tensors: Tensors, opts: Any) -> Work:
        """Sums sparse tensors. It blocks: how much there is to move is known only when all ranks have said it."""
        tensor = _only(tensors, "a sparse all-reduce")
        try:
            tensor.copy_(sparse.all_reduce(tensor, _operation(opts), self._gather_now))
        except Exception as error:  # an exception at submission would leave DDP unusable
            return self._issued(ended_work([], error))
        return self._issued(ended_work([tensor]))

    def _gather_now(self, tensor: torch.Tensor) -> Tensors:
        outputs = [torch.empty_like(tensor) for _ in range(self.size())]
        call = collectives.all_gather(self._member.staging, outputs, tensor, self.size())
        self._member.start(call, is_async=False).wait()
        return outputs

    def reduce(self, tensors: Tensors, opts: Any) -> Work:
        """Only the root's tensor is written."""
        tensor = _only(tensors, "a reduce")
        call = collectives.reduce(self._member.staging, tensor, opts.reduceOp, opts.rootRank, self.rank())
        return self._start(call, opts)

    def reduce_scatter(self, outputs: Tensors, inputs: list[Tensors], opts: Any) -> Work:
        """Sums of the core's types travel in the group's format."""
        output, tensors = _only(outputs, "a reduce-scatter"), _only(inputs, "a reduce-scatter")
        if len(tensors) != self.size():
            raise ValueError(f"netfold: a reduce-scatter takes {self.size()} inputs, not {len(tensors)}")
        return self._reduce_scatter(output, tensors, opts)

    def reduce_scatter_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any) -> Work:
        """Like reduce_scatter, of one tensor."""
        return self._reduce_scatter(output, [input], opts)

    def _reduce_scatter(self, output: torch.Tensor, tensors: Tensors, opts: Any) -> Work:
        member = self._member
        wire = member.settings.format
        call = collectives.reduce_scatter(member.staging, output, tensors, self.size(), opts.reduceOp, wire)
        return self._start(call, opts)

    def reduce_scatter_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any) -> Work:
        """One reduce-scatter for each tensor."""
        return JoinedWork([self.reduce_scatter_single(*pair, opts) for pair in zip(outputs, inputs, strict=True)])

    # Copies.

    def broadcast(self, tensors: Tensors, opts: Any) -> Work:
        """Copies tensors of any type, bit for bit, as all of these do."""
        return self._start(
            collectives.broadcast(self._member.staging, _only(tensors, "a broadcast"), opts.rootRank), opts
        )

    def allgather(self, outputs: list[Tensors], inputs: Tensors, opts: Any) -> Work:
        """Every rank's tensor, to every rank."""
        tensor, gathered = _only(inputs, "an all-gather"), _only(outputs, "an all-gather")
        if len(gathered) != self.size():
            raise ValueError(f"netfold: an all-gather takes {self.size()} outputs, not {len(gathered)}")
        return self._all_gather(gathered, tensor, opts)

    def all_gather_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any) -> Work:
        """Like allgather, into one tensor. It may hold this rank's part already."""
        return self._all_gather([output], input, opts)

    def _all_gather(self, outputs: Tensors, tensor: torch.Tensor, opts: Any) -> Work:
        return self._start(collectives.all_gather(self._member.staging, outputs, tensor, self.size()), opts)

    def allgather_coalesced(self, outputs: list[Tensors], inputs: Tensors, opts: Any) -> Work:
        """One all-gather for each tensor; `outputs` has a list for each rank."""
        if len(outputs) != self.size() or any(len(its) != len(inputs) for its in outputs):
            raise ValueError(f"netfold: {len(inputs)} all-gathers take {self.size()} lists of {len(inputs)} outputs")
        works = [self._all_gather([its[i] for its in outputs], tensor, opts) for i, tensor in enumerate(inputs)]
        return JoinedWork(works)

    def all_gather_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any) -> Work:
        """One all-gather for each tensor."""
        return JoinedWork([self.all_gather_single(*pair, opts) for pair in zip(outputs, inputs, strict=True)])

    def gather(self, outputs: list[Tensors], inputs: Tensors, opts: Any) -> Work:
        """Every rank's tensor, to the root."""
        tensor = _only(inputs, "a gather")
        gathered = _only(outputs, "a gather") if outputs else []
        call = collectives.gather(self._member.staging, gathered, tensor, opts.rootRank, self.rank(), self.size())
        return self._start(call, opts)

    def scatter(self, outputs: Tensors, inputs: list[Tensors], opts: Any) -> Work:
        """One of the root's tensors to each rank."""
        output = _only(outputs, "a scatter")
        tensors = _only(inputs, "a scatter") if inputs else []
        call = collectives.scatter(self._member.staging, output, tensors, opts.rootRank, self.rank(), self.size())
        return self._start(call, opts)

    def all_to_all_single(
        self, output: torch.Tensor, input: torch.Tensor, output_sizes: list[int], input_sizes: list[int], opts: Any
    ) -> Work:
        """A part of every rank's tensor to every rank. Sizes count along the first dimension; empty: equal parts."""
        call = collectives.all_to_all_single(
            self._member.staging, output, input, output_sizes, input_sizes, self.size()
        )
        return self._start(call, opts)

    def alltoall(self, outputs: Tensors, inputs: Tensors, opts: Any) -> Work:
        """One tensor of every rank to every rank, of any sizes."""
        if len(outputs) != self.size() or len(inputs) != self.size():
            raise ValueError(
                f"netfold: an all-to-all takes {self.size()} tensors each way, not {len(inputs)} and {len(outputs)}"
            )
        receives, sends = ([tensor.numel() for tensor in tensors] for tensors in (outputs, inputs))
        call = collectives.exchange(self._member.staging, "all-to-all", outputs, inputs, receives, sends)
        return self._start(call, opts)

    # Messages.

    def send(self, tensors: Tensors, dst_rank: int, tag: int) -> Work:
        """A message to a rank. It waits for no collective."""
        return self._message(collectives.send(self._member.message_staging, _only(tensors, "a send"), dst_rank, tag))

    def recv(self, tensors: Tensors, src_rank: int, tag: int) -> Work:
        """A message from a rank."""
        return self._message(
            collectives.receive(self._member.message_staging, _only(tensors, "a receive"), src_rank, tag)
        )

    def recv_anysource(self, tensors: Tensors, tag: int) -> Work:
        """A message from any rank; the Work knows from which."""
        return self._message(collectives.receive(self._member.message_staging, _only(tensors, "a receive"), None, tag))

    def _message(self, call: Call) -> Work:
        return self._issued(self._member.start_message(call), collective=False)

    # Barriers, and the group's state.

    def barrier(self, opts: Any) -> Work:
        """Ends when every rank has called it and this rank's earlier folds have ended."""
        before = self._member.works_in_flight()
        work: Work = self._member.start(collectives.barrier(), opts.asyncOp)
        return self._issued(JoinedWork([*before, work]) if before else work)

    def monitored_barrier(self, opts: BarrierOptions, wait_all_ranks: bool = False) -> None:
        """A barrier whose error names the missing ranks. The default timeout is the group's."""
        timeout = opts.timeout if opts.timeout >= timedelta(0) else self._timeout
        self._monitored.wait(timeout.total_seconds(), wait_all_ranks)

    def set_timeout(self, timeout: timedelta) -> None:
        """How long collectives, messages and monitored barriers may make no progress, from now on;
        `torch.distributed.set_timeout` calls it."""
        self._timeout = timeout
        self._member.set_timeout(timeout.total_seconds())

    def _get_sequence_number_for_group(self) -> int:
        """The number of collectives that this rank issued, without sends and receives. Ranks that are in step have the
        same number."""
        return self._sequence

    def _set_sequence_number_for_group(self) -> None:
        """Does nothing: the count starts at 0 on every rank."""


def _operation(opts: Any) -> Operation:
    operation: Operation = opts.reduceOp
    return operation
