"""torch.distributed.set_timeout: a script that shortens the timeout of its group, as many do after the first step."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import ErrorType

from netfold import _core
from torch_ranks import run_ranks, values

LARGE = 1 << 18
SHORT_S, LONG_S = 1.0, 30.0  # the group's own is LONG_S


def _body(rank: int) -> tuple[float, bool]:
    """Rank 0 does not take part in the last all-reduce. Returns how long the others waited for it, and whether their
    error is that of a timeout."""
    backend = dist.get_backend_impl(dist.group.WORLD, torch.device("cpu"))
    dist.all_reduce(torch.ones(LARGE))
    dist.set_timeout(timedelta(seconds=SHORT_S))
    dist.all_reduce(torch.ones(LARGE))
    assert backend.get_error() == ErrorType.SUCCESS
    if rank == 0:
        time.sleep(4 * SHORT_S)
        return 0.0, False
    began = time.monotonic()
    with pytest.raises(RuntimeError, match="rank 0"):
        dist.all_reduce(torch.ones(LARGE))
    return time.monotonic() - began, backend.get_error() == ErrorType.TIMEOUT


@pytest.mark.parametrize("algorithm", ["ring", "direct", "in-network", "split"])
def test_the_error_comes_after_the_new_timeout(algorithm: str) -> None:
    switch = _core.Switch("127.0.0.1:0")
    environment = {"NETFOLD_ALGORITHM": algorithm, "NETFOLD_SWITCH": switch.address}
    waited = values(run_ranks(_body, world=3, environment=environment))[1:]
    switch.close()
    assert all(SHORT_S / 2 < waited_s < LONG_S / 2 for waited_s, _ in waited), waited
    assert any(is_timeout for _, is_timeout in waited), "the other one may have heard of it from the switch"


def _environment_wins(rank: int) -> None:
    dist.set_timeout(timedelta(seconds=0.2))
    if rank == 0:
        time.sleep(1.0)
    dist.all_reduce(torch.ones(LARGE))


def test_the_environment_counts_more() -> None:
    values(run_ranks(_environment_wins, environment={"NETFOLD_ALGORITHM": "ring", "NETFOLD_TIMEOUT_S": "20"}))
