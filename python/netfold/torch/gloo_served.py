"""The collectives that Netfold does not run: each, as c10d calls it, goes to an inner Gloo.

The methods are the virtual methods of `c10d::Backend` (torch 2.15), with torch's order of arguments and lists of
tensors. All return the inner backend's Work. Point-to-point methods wrap it, because those works lack a future.
"""

from __future__ import annotations

import ctypes
import os
from datetime import timedelta
from typing import Any

import torch
from torch._C._distributed_c10d import Backend, BarrierOptions, PrefixStore, ProcessGroupGloo, Store, Work

from netfold.torch.work import JoinedWork, PointToPointWork

Tensors = list[torch.Tensor]
THREADS = 2  # torch's own choice for one device


def inner_gloo(store: Store, rank: int, size: int, address: str, timeout: timedelta) -> Backend:
    """A Gloo that listens at `address`, or at the interfaces that GLOO_SOCKET_IFNAME names."""
    if os.environ.get("GLOO_SOCKET_IFNAME"):
        return ProcessGroupGloo(store, rank, size, timeout=timeout)
    options = ProcessGroupGloo._Options()  # type: ignore[attr-defined]  # torch's stubs lack this name
    options._devices = [ProcessGroupGloo.create_device(hostname=address)]
    options._threads = THREADS
    options._timeout = timeout
    return ProcessGroupGloo(store, rank, size, options)


class GlooServed(Backend):
    """A backend that passes all collectives to Gloo; subclasses override some."""

    def __init__(self, store: Store, rank: int, size: int, address: str, timeout: timedelta) -> None:
        super().__init__(rank, size)
        self._timeout = timeout
        self._gloo_or_none: Backend | None = inner_gloo(PrefixStore("gloo", store), rank, size, address, timeout)
        self._coalescing: list[Work] | None = None
        self._sequence = 0

    @property
    def _gloo(self) -> Any:
        if self._gloo_or_none is None:
            raise RuntimeError("netfold: this process group was shut down; make a new one with init_process_group")
        return self._gloo_or_none

    def _drop_gloo(self) -> None:
        """Close the inner backend's connections. Collectives after this raise RuntimeError."""
        self._gloo_or_none = None

    def _leave_gloo_to_parent(self) -> None:
        """In a child of fork(): keep the inner backend until the process ends, because its destructor waits for threads
        that only the parent has."""
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._gloo_or_none))
        self._gloo_or_none = None

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

    def broadcast(self, tensors: Tensors, opts: Any) -> Work:
        return self._issued(self._gloo.broadcast(tensors, opts))

    def allreduce(self, tensors: Tensors, opts: Any) -> Work:
        return self._issued(self._gloo.allreduce(tensors, opts))

    def allreduce_sparse(self, tensors: Tensors, opts: Any) -> Work:
        return self._issued(self._gloo.allreduce_sparse(tensors, opts))

    def allreduce_coalesced(self, tensors: Tensors, opts: Any) -> Work:
        return self._issued(self._gloo.allreduce_coalesced(tensors, opts))

    def reduce(self, tensors: Tensors, opts: Any) -> Work:
        return self._issued(self._gloo.reduce(tensors, opts))

    def allgather(self, outputs: list[Tensors], inputs: Tensors, opts: Any) -> Work:
        return self._issued(self._gloo.allgather(outputs, inputs, opts))

    def all_gather_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any) -> Work:
        return self._issued(self._gloo.all_gather_single(output, input, opts))

    def allgather_coalesced(self, outputs: list[Tensors], inputs: Tensors, opts: Any) -> Work:
        return self._issued(self._gloo.allgather_coalesced(outputs, inputs, opts))

    def all_gather_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any) -> Work:
        return self._issued(self._gloo.all_gather_single_coalesced(outputs, inputs, opts))

    def gather(self, outputs: list[Tensors], inputs: Tensors, opts: Any) -> Work:
        return self._issued(self._gloo.gather(outputs, inputs, opts))

    def scatter(self, outputs: Tensors, inputs: list[Tensors], opts: Any) -> Work:
        return self._issued(self._gloo.scatter(outputs, inputs, opts))

    def reduce_scatter(self, outputs: Tensors, inputs: list[Tensors], opts: Any) -> Work:
        return self._issued(self._gloo.reduce_scatter(outputs, inputs, opts))

    def reduce_scatter_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any) -> Work:
        return self._issued(self._gloo.reduce_scatter_single(output, input, opts))

    def reduce_scatter_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any) -> Work:
        return self._issued(self._gloo.reduce_scatter_single_coalesced(outputs, inputs, opts))

    def all_to_all_single(
        self, output: torch.Tensor, input: torch.Tensor, output_sizes: list[int], input_sizes: list[int], opts: Any
    ) -> Work:
        return self._issued(self._gloo.all_to_all_single(output, input, output_sizes, input_sizes, opts))

    def alltoall(self, outputs: Tensors, inputs: Tensors, opts: Any) -> Work:
        return self._issued(self._gloo.alltoall(outputs, inputs, opts))

    def send(self, tensors: Tensors, dst_rank: int, tag: int) -> Work:
        return self._issued(PointToPointWork(self._gloo.send(tensors, dst_rank, tag), tensors), collective=False)

    def recv(self, tensors: Tensors, src_rank: int, tag: int) -> Work:
        return self._issued(PointToPointWork(self._gloo.recv(tensors, src_rank, tag), tensors), collective=False)

    def recv_anysource(self, tensors: Tensors, tag: int) -> Work:
        return self._issued(
            PointToPointWork(self._gloo.recv_anysource(tensors, tag), tensors, any_source=True), collective=False
        )

    def barrier(self, opts: Any) -> Work:
        return self._issued(self._gloo.barrier(opts))

    def monitored_barrier(self, opts: BarrierOptions, wait_all_ranks: bool = False) -> None:
        """A barrier whose error names the missing ranks. The default timeout is the group's."""
        timeout = opts.timeout if opts.timeout >= timedelta(0) else self._timeout
        self._gloo.monitored_barrier(timeout, wait_all_ranks)

    def set_timeout(self, timeout: timedelta) -> None:
        """Set the default timeout of Gloo's collectives. The switch keeps the timeout that the job agreed on at
        admission."""
        self._timeout = timeout
        self._gloo.set_timeout(timeout)

    def _get_sequence_number_for_group(self) -> int:
        """The number of collectives that this rank issued, without sends and receives. Ranks that are in step have the
        same number."""
        return self._sequence

    def _set_sequence_number_for_group(self) -> None:
        """Does nothing: the count starts at 0 on every rank."""
