"""Groups of some of a group's ranks: torch.distributed.shrink_group, after a death, and split_group."""

from __future__ import annotations

import os
import signal

import pytest
import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import SHRINK_ABORT

from netfold import _core
from netfold.torch import parts
from torch_ranks import open_sockets, run_ranks, values

LARGE = 1 << 20


def _dies_body(rank: int) -> list[float]:
    """Rank 1 dies under an all-reduce; later rank 3, the last of those left, leaves as planned."""
    tensor = torch.ones(LARGE)
    dist.all_reduce(tensor)
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(RuntimeError, match="rank 1"):
        for _ in range(100):
            dist.all_reduce(torch.ones(LARGE))
    before = open_sockets()
    dist.shrink_group([1], shrink_flags=SHRINK_ABORT)
    if os.environ["NETFOLD_ALGORITHM"] == "ring":
        assert len(open_sockets() - before) <= 1, "the survivors keep their connections; only the listener is new"
    assert (dist.get_world_size(), dist.get_rank()) == (3, {0: 0, 2: 1, 3: 2}[rank])
    sums = [float(tensor[-1])]
    tensor = torch.full((LARGE,), float(rank))
    dist.all_reduce(tensor)
    sums.append(float(tensor[-1]))
    if rank == 3:
        return sums
    dist.shrink_group([2])
    assert (dist.get_world_size(), dist.get_rank()) == (2, {0: 0, 2: 1}[rank])
    tensor = torch.full((LARGE,), float(rank))
    dist.all_reduce(tensor)
    gathered = [torch.zeros(2) for _ in range(2)]
    dist.all_gather(gathered, torch.full((2,), float(rank)))
    assert [float(each[0]) for each in gathered] == [0.0, 2.0]
    return [*sums, float(tensor[-1])]


@pytest.mark.parametrize("algorithm", ["auto", "in-network", "ring"])
def test_the_others_go_on(algorithm: str) -> None:
    environment = {"NETFOLD_ALGORITHM": algorithm, "NETFOLD_TIMEOUT_S": "20"}
    switch = _core.Switch("127.0.0.1:0") if algorithm != "ring" else None
    if switch is not None:
        environment["NETFOLD_SWITCH"] = switch.address
    outcomes = run_ranks(_dies_body, world=4, environment=environment)
    assert outcomes[1].exit_status == -signal.SIGKILL
    first, third, fourth = values([outcomes[0], outcomes[2], outcomes[3]])
    assert first == third == [4.0, 5.0, 2.0]
    assert fourth == [4.0, 5.0]
    if switch is not None:
        switch.close()


def test_ranks_that_leave_out_others_are_named() -> None:
    store = dist.HashStore()
    with pytest.raises(RuntimeError, match="rank 0 leaves out 3, but rank 1 has not called it"):
        parts.agree(store, 0, 4, [3], timeout_s=0.1)
    with pytest.raises(RuntimeError, match="rank 1 leaves out 2,3, but rank 0 leaves out 3 "):
        parts.agree(store, 1, 4, [3, 2], timeout_s=0.1)
    with pytest.raises(RuntimeError, match="rank 2 has not called it"):
        parts.agree(store, 1, 4, [3], timeout_s=0.1)
    store.set(f"{parts.KEY}2", "3")
    assert parts.agree(store, 0, 4, [3], timeout_s=10) == [0, 1, 2], "all have said so by now"


def _split_body(rank: int) -> list[float]:
    part = dist.split_group(split_ranks=[[2, 0], [3, 1]])
    assert part is not None
    assert (part.rank(), part.size()) == ([1, 1, 0, 0][rank], 2)
    sums = []
    for group in (part, None):
        tensor = torch.full((LARGE,), float(rank + 1))
        dist.all_reduce(tensor, group=group)
        sums.append(float(tensor[-1]))
    dist.destroy_process_group(part)
    dist.barrier()
    return sums


@pytest.mark.parametrize("algorithm", ["in-network", "ring"])
def test_a_split_group(algorithm: str) -> None:
    environment = {"NETFOLD_ALGORITHM": algorithm}
    assert values(run_ranks(_split_body, world=4, environment=environment)) == [[4.0, 10.0], [6.0, 10.0]] * 2
