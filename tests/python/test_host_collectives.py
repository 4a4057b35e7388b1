"""Reduce-scatter, all-gather, broadcast and barrier with a host algorithm: the ranks do them among themselves."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from netfold.torch.backend import backend_of
from torch_ranks import run_ranks, values

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("no_rank_left")]
RING = {"NETFOLD_ALGORITHM": "ring"}
TYPES = (torch.float32, torch.float16, torch.bfloat16, torch.int32)
ANY_TYPES = (*TYPES, torch.uint8, torch.bool, torch.int64, torch.float64, torch.complex64, torch.complex128)


def _numbers(rank: int, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator().manual_seed(rank)
    return torch.randint(-8 if dtype.is_signed else 0, 8, shape, generator=generator).to(dtype)


def _sent_bytes() -> int:
    backend = backend_of(dist.group.WORLD)
    assert backend is not None
    return backend.stats()["shm_sent_bytes"]


def _body(rank: int, world: int) -> list[str]:
    wrong = []

    def check(name: str, found: torch.Tensor, expected: torch.Tensor) -> None:
        if found.dtype != expected.dtype or not torch.equal(found, expected):
            wrong.append(f"{name} {expected.dtype} {tuple(expected.shape)}")

    for dtype in TYPES:
        for part in (0, 1, 7, 40_001):
            inputs = [_numbers(each, (world, part), dtype) for each in range(world)]
            sums = torch.stack(inputs).sum(0, dtype=dtype)
            output = torch.empty(part, dtype=dtype)
            dist.reduce_scatter_tensor(output, inputs[rank])
            check("reduce_scatter_tensor", output, sums[rank])
            check("its input", inputs[rank], _numbers(rank, (world, part), dtype))
            strided = torch.empty((part, 2), dtype=dtype)[:, 0]
            dist.reduce_scatter(strided, list(inputs[rank].unbind()))
            check("reduce_scatter", strided, sums[rank])
            if dtype.is_floating_point and part:
                dist.reduce_scatter_tensor(output, inputs[rank], op=dist.ReduceOp.AVG)
                exact = (sums[rank].double() / world).to(dtype)
                if not torch.allclose(output, exact, rtol=1e-2):
                    wrong.append(f"average {dtype} {part}")
    for dtype in ANY_TYPES:
        for shape in ((0,), (1,), (3, 5), (40_001,)):
            parts = [_numbers(each, shape, dtype) for each in range(world)]
            whole = torch.empty((world, *shape), dtype=dtype)
            dist.all_gather_into_tensor(whole, parts[rank])
            check("all_gather_into_tensor", whole, torch.stack(parts))
            lists = [torch.empty(shape, dtype=dtype) for _ in range(world)]
            dist.all_gather(lists, parts[rank])
            check("all_gather", torch.stack(lists), torch.stack(parts))
            for root in (0, world - 1):
                tensor = parts[rank].clone()
                dist.broadcast(tensor, root)
                check("broadcast", tensor, parts[root])
    matrix = torch.full((4, 6), float(rank)).t()
    dist.broadcast(matrix, 1)
    check("broadcast strided", matrix, torch.ones(6, 4))
    own = torch.arange(world * 5.0).add(100 * rank)
    dist.all_gather_into_tensor(own, own.view(world, 5)[rank])
    check("all_gather in place", own, torch.stack([torch.arange(5.0) + 105 * each for each in range(world)]).flatten())
    told: list[Any] = [None] * world
    dist.all_gather_object(told, {"rank": rank, "said": "x" * rank})
    if [each["rank"] for each in told] != list(range(world)):
        wrong.append("all_gather_object")
    largest = torch.tensor([float(rank)])
    dist.reduce_scatter_tensor(largest, torch.full((world,), float(rank)), op=dist.ReduceOp.MAX)
    check("maximum", largest, torch.tensor([world - 1.0]))
    return wrong


@pytest.mark.parametrize("world", [2, 3, 4])
def test_every_collective_is_exact(world: int) -> None:
    assert values(run_ranks(_body, world, world=world, environment=RING)) == [[]] * world


def _moves_body(rank: int) -> list[int]:
    moved, before = [], _sent_bytes()
    tensor, parts = torch.ones(30_000), torch.ones(10_000)
    for call in (
        lambda: dist.reduce_scatter_tensor(parts, tensor),
        lambda: dist.all_gather_into_tensor(tensor, parts),
        lambda: dist.broadcast(tensor, 1),
        dist.barrier,
    ):
        call()
        dist.all_reduce(torch.ones(1))  # the counters are noted when something is finished
        moved.append(_sent_bytes() - before)
        before = _sent_bytes()
    return moved


def test_they_move_through_netfold_and_the_format_is_for_sums() -> None:
    exact = values(run_ranks(_moves_body, world=3, environment=RING))
    coarse = values(run_ranks(_moves_body, world=3, environment=RING | {"NETFOLD_FORMAT": "bfp"}))
    for rank in range(3):
        scattered, gathered, broadcast, _ = exact[rank]
        assert scattered >= 80_000
        assert gathered >= 80_000
        assert broadcast >= (120_000 if rank != 0 else 0)  # from 1 over 2 to 0
        assert coarse[rank][0] < scattered / 3
        assert coarse[rank][1] >= 80_000


def _strided_body(rank: int) -> list[float]:
    """The output of rank 0 has gaps, those of the others are contiguous."""
    memory = torch.zeros(12)
    output = memory[::2] if rank == 0 else memory[:6]
    dist.all_gather_into_tensor(output, torch.full((2,), float(rank)))
    assert rank > 0 or torch.equal(memory[1::2], torch.zeros(6))
    return output.tolist()


def test_ranks_may_lay_out_their_memory_as_they_like() -> None:
    expected = [float(rank) for rank in range(3) for _ in range(2)]
    assert values(run_ranks(_strided_body, world=3, environment=RING | {"NETFOLD_TIMEOUT_S": "10"})) == [expected] * 3


def _coarse_body(rank: int) -> list[float]:
    inputs = [torch.randn(4, 1000, generator=torch.Generator().manual_seed(each)) for each in range(4)]
    part, whole, reduced = torch.empty(1000), torch.empty(4000), inputs[rank].flatten()
    dist.reduce_scatter_tensor(part, inputs[rank])
    dist.all_gather_into_tensor(whole, part)
    dist.all_reduce(reduced)
    assert torch.equal(whole[1000 * rank : 1000 * (rank + 1)], part)
    return whole.tolist()


def test_coarse_sums_are_alike_on_all_ranks() -> None:
    by_rank = values(run_ranks(_coarse_body, world=4, environment=RING | {"NETFOLD_FORMAT": "bfp"}))
    assert all(found == by_rank[0] for found in by_rank)


def _barrier_body(rank: int) -> tuple[float, float]:
    work = dist.all_reduce(torch.ones(100_000), async_op=True)
    time.sleep(0.2 * rank)
    came = time.monotonic()
    dist.barrier()
    assert work.is_completed()
    return came, time.monotonic()


def test_nobody_passes_a_barrier_before_all_have_come() -> None:
    times = values(run_ranks(_barrier_body, world=3, environment=RING))
    assert min(passed for _, passed in times) >= max(came for came, _ in times)


def _sharded_body(rank: int) -> list[float]:
    """Training by hand, like FSDP: each rank owns a part of the parameters, gathers all for a step, and reduce-scatters
    the gradients."""
    torch.manual_seed(1)
    layers = nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 2))
    flat = nn.utils.parameters_to_vector(layers.parameters()).detach()
    padded = torch.cat([flat, torch.zeros(-len(flat) % 4)])
    own = padded.chunk(4)[rank].clone()
    inputs = torch.randn(8, 10, generator=torch.Generator().manual_seed(rank))
    for _ in range(5):
        dist.all_gather_into_tensor(padded, own)
        nn.utils.vector_to_parameters(padded[: len(flat)], layers.parameters())
        layers.zero_grad()
        layers(inputs).square().mean().backward()
        gradient = torch.zeros_like(padded)
        gradient[: len(flat)] = torch.cat([p.grad.flatten() for p in layers.parameters()])
        summed = torch.empty_like(own)
        dist.reduce_scatter_tensor(summed, gradient, op=dist.ReduceOp.AVG)
        own -= 0.1 * summed
    dist.all_gather_into_tensor(padded, own)
    return padded.tolist()


def test_training_in_shards_is_what_one_process_would_do() -> None:
    netfold = values(run_ranks(_sharded_body, world=4, environment=RING))
    assert all(each == netfold[0] for each in netfold)
    assert netfold[0] == pytest.approx(_all_at_once(), rel=1e-4, abs=1e-6)


def _all_at_once() -> list[float]:
    torch.manual_seed(1)
    layers = nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 2))
    inputs = [torch.randn(8, 10, generator=torch.Generator().manual_seed(rank)) for rank in range(4)]
    for _ in range(5):
        layers.zero_grad()
        layers(torch.cat(inputs)).square().mean().backward()
        with torch.no_grad():
            for parameter in layers.parameters():
                parameter.sub_(0.1 * parameter.grad)
    flat = nn.utils.parameters_to_vector(layers.parameters()).detach()
    return torch.cat([flat, torch.zeros(-len(flat) % 4)]).tolist()


def _fsdp_body(rank: int) -> list[float]:
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 2))
    fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    inputs = torch.randn(8, 10, generator=torch.Generator().manual_seed(rank))
    for _ in range(3):
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()
    trained = [x for p in model.parameters() for x in p.full_tensor().flatten().tolist()]
    assert dist.get_backend() == "gloo" or _sent_bytes() > 3 * 2 * 3 * len(trained), "it did not go through Netfold"
    return trained


def test_fsdp_trains_as_with_gloo() -> None:
    netfold = values(run_ranks(_fsdp_body, world=4, environment=RING))
    gloo = values(run_ranks(_fsdp_body, world=4, backend="gloo"))
    assert all(each == netfold[0] for each in netfold)
    assert netfold[0] == pytest.approx(gloo[0], rel=1e-4, abs=1e-6)
