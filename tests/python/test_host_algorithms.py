"""Host algorithms through PyTorch: without a switch, the ranks fold among themselves by the chosen schedule."""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, NoReturn, cast

import pytest
import torch
import torch.distributed as dist

from netfold import _core
from netfold.algorithms import AUTO, HostPlan, choose, host_algorithms, host_choices
from netfold.torch import Options
from netfold.torch.host_group import join, machine_size, publish, said_by_all
from torch_ranks import run_ranks, values

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("no_rank_left")]
KIB, MIB = 1 << 10, 1 << 20
TIMEOUT_S = 4.0


def test_every_all_reduce_of_the_core_can_be_asked_for() -> None:
    assert {name for name, _ in _core.algorithms()} == {*host_algorithms(), "in-network", "dissemination"}
    assert host_choices() == (*host_algorithms(), AUTO)


def test_auto_goes_by_size_and_world() -> None:
    assert [choose(size, 8) for size in (4, 32 * KIB - 4)] == ["recursive-doubling"] * 2
    assert [choose(size, 8) for size in (32 * KIB, MIB)] == ["halving-doubling"] * 2
    assert choose(MIB + 4, 8) == "ring"
    assert [choose(size, 6) for size in (4, 32 * KIB, MIB)] == ["recursive-doubling", "ring", "ring"]
    assert HostPlan(AUTO).for_tensor(2 * MIB, 8) == {"algorithm": "ring"}
    assert HostPlan("hierarchical", group=4).for_tensor(4, 8)["between"] == "recursive-doubling"
    assert HostPlan("hierarchical", group=4).for_tensor(4, 8, lambda size, ranks: f"{size}/{ranks}")["between"] == "4/2"
    assert HostPlan(AUTO).for_tensor(4, 8, lambda size, ranks: f"{size}/{ranks}") == {"algorithm": "4/8"}


@pytest.mark.parametrize(
    ("plan", "world"), [(HostPlan("hdrm", (2, 2)), 3), (HostPlan("hdrm"), 4), (HostPlan("hierarchical"), 4)]
)
def test_what_cannot_serve_a_world_is_refused(plan: HostPlan, world: int) -> None:
    with pytest.raises(ValueError, match=plan.algorithm if world == 3 else "group|BiGraph"):
        plan.check(world)


def test_machines_are_found_by_their_addresses() -> None:
    assert machine_size(["a:1", "a:2", "a:3"]) == 3
    assert machine_size(["a:1", "a:2", "b:1", "b:2"]) == 2
    for wrong in (["a:1", "a:2", "b:1"], ["a:1", "b:1", "a:2", "b:2"], ["a:1", "a:2", "b:1", "c:1"]):
        with pytest.raises(ValueError, match="machines"):
            machine_size(wrong)


def test_who_did_not_come_and_who_failed_is_named() -> None:
    store = dist.HashStore()
    publish(store, 0, address="127.0.0.1:1")
    begun = time.monotonic()
    with pytest.raises(RuntimeError, match="ranks 1, 2 did not join"):
        said_by_all(store, 3, 0.2)
    assert time.monotonic() - begun < 20
    publish(store, 1, error="no such address")
    publish(store, 2, address="127.0.0.1:2")
    with pytest.raises(RuntimeError, match=r"rank 1 could not join.*no such address"):
        said_by_all(store, 3, 5)


def _groups(world: int, **more: Any) -> Iterator[tuple[str, Any]]:
    """A group for each algorithm that supports this number of ranks."""
    for algorithm in host_choices():
        own: dict[str, Any] = {}
        if algorithm == "hdrm":
            if world not in (2, 4):
                continue
            own["bigraph"] = (world // 2, 2)
        if algorithm == "hierarchical":
            own["group"] = 2
        yield algorithm, dist.new_group(pg_options=Options(algorithm=algorithm, **own, **more))


def _integers(rank: int, count: int, dtype: torch.dtype) -> torch.Tensor:
    return (torch.arange(count) * (rank + 3) % 17 - 8).to(dtype)


def _exact_sums_body(rank: int, world: int) -> list[str]:
    wrong = []
    for algorithm, group in _groups(world):
        for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.int32):
            for count in (1, world - 1, 1000, 40_001, 300_007):
                tensor = _integers(rank, count, dtype)
                dist.all_reduce(tensor, group=group)
                if not torch.equal(tensor, sum(_integers(each, count, dtype) for each in range(world))):
                    wrong.append(f"{algorithm} {dtype} x {count}")
        tensor = torch.full((1000,), float(rank))
        dist.all_reduce(tensor, op=dist.ReduceOp.AVG, group=group)
        if not torch.allclose(tensor, torch.full((1000,), (world - 1) / 2)):
            wrong.append(f"{algorithm} average")
    return wrong


@pytest.mark.parametrize("world", [2, 3, 4])
def test_every_algorithm_sums_exactly(world: int) -> None:
    run = run_ranks(_exact_sums_body, world, world=world, environment={"NETFOLD_ALGORITHM": "ring"})
    assert values(run) == [[]] * world


def _formats_body(rank: int, world: int, wire: str, bfp: tuple[int, int]) -> dict[str, tuple[int, float]]:
    """Checksum of the result and its largest error relative to the largest number, by algorithm."""

    def numbers(of: int) -> torch.Tensor:
        return torch.randn(30_011, generator=torch.Generator().manual_seed(of))

    exact = sum(numbers(each).double() for each in range(world))
    found = {}
    for algorithm, group in _groups(world, format=wire, bfp=bfp):
        tensor = numbers(rank)
        dist.all_reduce(tensor, group=group)
        error = (tensor.double() - exact).abs().max() / exact.abs().max()
        found[algorithm] = (zlib.crc32(tensor.numpy().tobytes()), error.item())
    return found


@pytest.mark.parametrize(
    ("wire", "bfp", "bound"),
    [
        ("fp32", (16, 7), 1e-6),
        ("fp16", (16, 7), 4e-3),
        ("bf16", (16, 7), 4e-2),
        ("bfp", (16, 7), 4e-2),
        ("bfp", (32, 4), 0.4),
    ],
)
@pytest.mark.parametrize("world", [3, 4])
def test_every_rank_has_the_same_bits_in_every_format(
    world: int, wire: str, bfp: tuple[int, int], bound: float
) -> None:
    by_rank = values(run_ranks(_formats_body, world, wire, bfp, world=world, environment={"NETFOLD_ALGORITHM": "ring"}))
    for algorithm, (checksum, error) in by_rank[0].items():
        assert {found[algorithm][0] for found in by_rank} == {checksum}, f"{algorithm}: the ranks differ"
        assert error <= bound, algorithm
        assert (error > 1e-6) == (wire != "fp32"), f"{algorithm}: gradients did not travel as {wire}"


def _halving_doubling_body(rank: int) -> int:
    tensor = torch.randn(30_011, generator=torch.Generator().manual_seed(rank))
    dist.all_reduce(tensor)
    return zlib.crc32(tensor.numpy().tobytes())


@pytest.mark.parametrize("world", [2, 4])
def test_halving_doubling_of_a_power_of_two_has_the_bits_of_the_switch(world: int) -> None:
    numbers = [torch.randn(30_011, generator=torch.Generator().manual_seed(rank)).numpy() for rank in range(world)]
    environment = {"NETFOLD_ALGORITHM": "halving-doubling"}
    expected = zlib.crc32(_core.fold(numbers).tobytes())
    assert values(run_ranks(_halving_doubling_body, world=world, environment=environment)) == [expected] * world


def _many_at_once_body(rank: int, world: int) -> None:
    tensors = [torch.full((1000 + 7777 * i,), float(rank + i)) for i in range(30)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    for work in reversed(works):
        assert work.wait()
    for i, tensor in enumerate(tensors):
        assert torch.equal(tensor, torch.full_like(tensor, world * (world - 1) / 2 + world * i))
    strided = torch.full((6, 4), float(rank)).t()[:, ::2]
    dist.all_reduce(strided)
    assert torch.equal(strided, torch.full((4, 3), world * (world - 1) / 2))
    largest = torch.tensor([float(rank)])
    dist.all_reduce(largest, op=dist.ReduceOp.MAX)
    assert largest.item() == world - 1
    dist.barrier()


@pytest.mark.parametrize("algorithm", ["ring", AUTO, "hierarchical"])
def test_many_at_once(algorithm: str) -> None:
    values(run_ranks(_many_at_once_body, 3, world=3, environment={"NETFOLD_ALGORITHM": algorithm}))


def _joins_in_vain_body(rank: int, meeting: str, settings: list[dict[str, str]]) -> tuple[str, float]:
    os.environ.update(settings[rank])
    begun = time.monotonic()
    with pytest.raises((RuntimeError, ValueError)) as refusal:
        dist.init_process_group(
            "netfold",
            init_method=f"file://{meeting}",
            rank=rank,
            world_size=len(settings),
            timeout=timedelta(seconds=30),
        )
    return str(refusal.value), time.monotonic() - begun


@pytest.mark.parametrize(
    ("common", "of_rank_1", "says"),
    [
        ({"NETFOLD_ALGORITHM": "ring"}, {"NETFOLD_ALGORITHM": "binomial"}, ["rank 1", "binomial", "ring"]),
        ({"NETFOLD_ALGORITHM": "ring"}, {"NETFOLD_FORMAT": "bfp"}, ["rank 1", "bfp", "fp32"]),
        ({"NETFOLD_ALGORITHM": "ring"}, {"NETFOLD_BIND": "192.0.2.77"}, ["192.0.2.77"]),
        ({"NETFOLD_ALGORITHM": "hdrm", "NETFOLD_BIGRAPH": "2x2"}, {}, ["hdrm", "3 ranks"]),
        ({"NETFOLD_ALGORITHM": "hdrm"}, {}, ["hdrm", "NETFOLD_BIGRAPH"]),
    ],
)
def test_what_does_not_fit_is_told_to_every_rank(
    common: dict[str, str], of_rank_1: dict[str, str], says: list[str]
) -> None:
    settings = [common, {**common, **of_rank_1}, common]
    for error, after_s in values(run_ranks(_joins_in_vain_body, settings, world=3, joins=False)):
        assert [word for word in says if word not in error] == [], error
        assert after_s < TIMEOUT_S


def test_a_rank_tells_its_own_error_where_the_store_has_gone_with_another_rank() -> None:
    class Gone:
        def set(self, _key: str, _value: str) -> None:
            raise dist.DistNetworkError("Broken pipe")

    def listen() -> NoReturn:
        raise ValueError("this machine has no interface 'eth7'")

    plan = HostPlan("ring")
    with pytest.raises(ValueError, match="no interface 'eth7'"):
        join(cast(dist.Store, Gone()), 1, 2, plan, "fp32", (16, 7), listen, lambda _parties, _link: None, 1.0)
