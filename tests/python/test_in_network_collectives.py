"""Every collective through the switch, from PyTorch: what crosses each link, FSDP2, and errors that name ranks."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
import torch
import torch.distributed as dist

from torch_ranks import run_ranks, values

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("no_rank_left")]

IN_NETWORK = {"NETFOLD_ALGORITHM": "in-network", "NETFOLD_TIMEOUT_S": "20"}
WORLD = 4
PART = 50_000  # elements of fp32


def _bytes(before: dict[str, Any] | None = None) -> dict[str, Any]:
    """The bytes between this rank and the switch, since `before`."""
    backend: Any = dist.group.WORLD._get_backend(torch.device("cpu"))  # type: ignore[union-attr]
    stats = backend.stats()
    now = {key: stats[key] for key in ("sent_bytes", "received_bytes")}
    return {key: now[key] - before[key] for key in now} if before else now


def _links_body(rank: int) -> dict[str, dict[str, Any]]:
    part, whole = torch.full((PART,), float(rank)), torch.arange(WORLD * PART, dtype=torch.float32)
    gathered, found = torch.empty(WORLD * PART), {}
    dist.barrier()
    before = _bytes()
    dist.reduce_scatter_tensor(part, whole)
    found["reduce-scatter"] = _bytes(before)
    assert torch.equal(part, WORLD * whole[rank * PART : (rank + 1) * PART])
    before = _bytes()
    dist.all_gather_into_tensor(gathered, part)
    found["all-gather"] = _bytes(before)
    assert torch.equal(gathered, WORLD * whole)
    before = _bytes()
    dist.broadcast(whole if rank == 1 else gathered, 1)
    found["broadcast"] = _bytes(before)
    assert rank == 1 or torch.equal(gathered, whole)
    return found


def test_each_link_carries_a_part_one_way_and_the_whole_the_other() -> None:
    size = 4 * PART
    for rank, found in enumerate(values(run_ranks(_links_body, world=WORLD, environment=IN_NETWORK))):
        scatter, gather, broadcast = found["reduce-scatter"], found["all-gather"], found["broadcast"]
        assert WORLD * size < scatter["sent_bytes"] < 1.3 * WORLD * size
        assert size < scatter["received_bytes"] < 1.3 * size
        assert size < gather["sent_bytes"] < 1.3 * size
        assert (WORLD - 1) * size < gather["received_bytes"] < 1.3 * WORLD * size
        up, down = ("sent_bytes", "received_bytes") if rank == 1 else ("received_bytes", "sent_bytes")
        assert WORLD * size < broadcast[up] < 1.3 * WORLD * size
        assert broadcast[down] < 0.1 * WORLD * size


def _at_once_body(rank: int) -> list[str]:
    """Rank 0 starts the all-gather only when its reduce-scatter is done; the others' were started before it."""
    part, whole = torch.empty(PART), torch.full((3 * PART,), float(rank))
    gathered = torch.empty(3 * PART)
    works = []
    if rank != 0:
        works.append(dist.all_gather_into_tensor(gathered, whole[:PART], async_op=True))
    dist.reduce_scatter_tensor(part, whole)
    assert torch.equal(part, torch.full((PART,), 3.0))
    if rank == 0:
        works.append(dist.all_gather_into_tensor(gathered, whole[:PART], async_op=True))
    for work in works:
        assert work is not None
        work.wait()
    assert torch.equal(gathered, torch.arange(3.0).repeat_interleave(PART))
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    told = []
    works.append(dist.all_gather_into_tensor(gathered, whole[:PART], async_op=True))
    works.append(dist.reduce_scatter_tensor(part, whole, async_op=True))
    for work in works[1:]:
        assert work is not None
        with pytest.raises(RuntimeError) as error:
            work.wait()
        told.append(str(error.value))
    return told


def test_a_reduce_scatter_and_an_all_gather_do_not_wait_for_each_other_and_fail_together() -> None:
    outcomes = run_ranks(_at_once_body, world=3, environment=IN_NETWORK)
    for told in values([outcomes[0], outcomes[2]]):
        assert len(told) == 2
        assert all("rank 1" in each for each in told), told


def _other_body(rank: int) -> str:
    tensor = torch.ones(64)
    with pytest.raises(RuntimeError) as error:
        if rank == 0:
            dist.all_reduce(tensor)
        else:
            dist.all_gather_into_tensor(torch.empty(128), tensor)
    return str(error.value)


def test_ranks_that_call_different_collectives_are_named() -> None:
    for told in values(run_ranks(_other_body, environment=IN_NETWORK)):
        assert "rank 0 offers 64 fp32 elements to all-reduce" in told
        assert "rank 1 offers 256 bytes of rank 0 to gather or broadcast" in told


def _fsdp_body(rank: int) -> list[float]:
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 8))
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for step in range(3):
        torch.manual_seed(step)  # the same batch on all ranks: the mean over ranks is one rank's gradient
        loss = model(torch.randn(4, 16)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def test_fsdp2_trains_through_the_switch() -> None:
    by_switch = values(run_ranks(_fsdp_body, environment=IN_NETWORK))
    by_gloo = values(run_ranks(_fsdp_body, backend="gloo"))
    for switch, gloo in zip(by_switch, by_gloo, strict=True):
        assert switch == pytest.approx(gloo, rel=1e-5)
        assert switch[0] != switch[2]
