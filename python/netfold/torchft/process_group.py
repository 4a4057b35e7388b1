"""A process group that torchft makes anew, smaller or larger, when a replica dies or joins.

`torchft.Manager(pg=ProcessGroupNetfold(...), ...)` trains on with the replicas that are left, and takes in those that
come. The processes of survivors are not restarted.
"""

from __future__ import annotations

import itertools
from datetime import timedelta
from typing import Any

import torch
from torch._C._distributed_c10d import ProcessGroup, Store, Work
from torch.futures import Future
from torchft.process_group import ProcessGroupWrapper

from netfold import torch_versions
from netfold.torch import parts
from netfold.torch.backend import NetfoldBackend, create, serve
from netfold.torch.options import Options

torch_versions.require()

_numbers = itertools.count()  # of the groups that this process has made


class _WorkOfFuture(Work):
    """An all-reduce whose error arrives only through its future, as NCCL's do.

    torchft 0.2's manager takes the future after `wait()`, and reports what it holds. If `wait()` raised, its
    DistributedDataParallel would find no future, and end.
    """

    def __init__(self, work: Work) -> None:
        super().__init__()
        self._work = work

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait until it has ended. False if it failed."""
        try:
            return self._work.wait(*(() if timeout is None else (timeout,)))
        except RuntimeError:
            return False

    def block_current_stream(self) -> None:
        """Let the current stream wait."""
        self._work.block_current_stream()

    def get_future(self) -> Future[Any]:
        """The tensors, or the error."""
        return self._work.get_future()


class ProcessGroupNetfold(ProcessGroupWrapper):  # type: ignore[misc]  # torchft brings no types
    """A process group of torchft whose collectives run in Netfold.

    `timeout`: the longest wait of a collective, and to make the group anew, without progress. `options`: Netfold's
    settings; they override the environment (NETFOLD_SWITCH, NETFOLD_FORMAT, ...).
    """

    def __init__(self, timeout: timedelta = timedelta(seconds=60), options: Options | None = None) -> None:
        super().__init__(timeout)
        self._options = options
        self._backend: NetfoldBackend | None = None

    def getBackendName(self) -> str:
        """The name in torchft's and torch's messages."""
        return "torchft-netfold"

    def errored(self) -> BaseException | None:
        """The error that ended the group's job, if one has. torchft then makes the group anew."""
        return self._backend.error if self._backend is not None else None

    def abort(self, errored: bool = True) -> None:
        """Leave the group at once: collectives in flight fail here and, with an error that names this rank, there."""
        backend, self._backend = self._backend, None
        if backend is not None:
            backend.abort()
        self._pg = None

    def shutdown(self) -> None:
        """Leave the group; the other ranks' collectives that need this rank fail."""
        backend, self._backend = self._backend, None
        if backend is not None:
            backend.shutdown()
        super().shutdown()

    def allreduce(self, tensors: list[torch.Tensor], opts: object) -> Work:
        """As torch's; an error is in the future, and `wait()` returns False."""
        return _WorkOfFuture(super().allreduce(tensors, opts))

    def _create_pg(self, store: Store, rank: int, world_size: int) -> ProcessGroup:
        name = f"torchft-{self._quorum_id}-{next(_numbers)}"
        members = self._global_ranks or list(range(world_size))
        given = parts.options_of(store, rank, members, self._timeout, name)
        self._backend = create(given, self._options, elastic=True)
        group = ProcessGroup(store, rank, world_size)
        serve(group, self._backend)
        return group
