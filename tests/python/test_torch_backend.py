"""The collectives of the netfold backend: those that fold, the others, and torch's view of both."""

from __future__ import annotations

import gc
import re
import threading
import weakref
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

from netfold import _core
from netfold.torch.backend import backend_of
from torch_ranks import run_ranks, values

pytestmark = pytest.mark.timeout(120)
WORLD = 3


def _backend(group: Any = None) -> Any:
    return (group or dist.group.WORLD)._get_backend(torch.device("cpu"))


def _contribution(rank: int, count: int) -> torch.Tensor:
    return torch.randn(count, generator=torch.Generator().manual_seed(100 + rank))


def _sums_body(rank: int) -> dict[str, np.ndarray]:
    results = {}
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.int32):
        for op in (dist.ReduceOp.SUM, dist.ReduceOp.AVG):
            if dtype == torch.int32 and op == dist.ReduceOp.AVG:
                continue
            tensor = (_contribution(rank, 10_001) * 50).to(dtype)
            dist.all_reduce(tensor, op=op)
            results[f"{dtype} {op}"] = tensor.double().numpy()
    results["folded elements"] = np.array(_backend().stats()["reduced_elements"])
    return results


def test_sums_and_averages_are_folded() -> None:
    by_rank = values(run_ranks(_sums_body, world=WORLD))
    for name, got in by_rank[0].items():
        for other in by_rank[1:]:
            assert np.array_equal(got, other[name]), f"{name} differs between ranks"
    assert by_rank[0]["folded elements"] == 7 * 10_001
    for dtype, tolerance in ((torch.float32, 1e-6), (torch.float16, 1e-3), (torch.bfloat16, 1e-2), (torch.int32, 0.0)):
        exact = sum((_contribution(rank, 10_001) * 50).to(dtype).double() for rank in range(WORLD)).numpy()
        bound = tolerance * np.abs(exact).max()
        assert np.abs(by_rank[0][f"{dtype} {dist.ReduceOp.SUM}"] - exact).max() <= bound
        if dtype != torch.int32:
            assert np.abs(by_rank[0][f"{dtype} {dist.ReduceOp.AVG}"] - exact / WORLD).max() <= bound


def _subnormal_body(rank: int) -> list[np.ndarray]:
    """Sums of numbers that are subnormal: one that the caller waits for, and one that a thread may fold."""
    assert torch.set_flush_denormal(True)
    small = np.full(3000, (rank + 1) * 1000, dtype=np.int32)  # as bits of float32: that many times the smallest number
    at_once, later = (torch.from_numpy(small.view(np.float32).copy()) for _ in range(2))
    dist.all_reduce(at_once)
    work = dist.all_reduce(later, async_op=True)
    assert work is not None
    work.wait()
    return [each.numpy().view(np.int32) for each in (at_once, later)]


@pytest.mark.skipif(not torch.set_flush_denormal(False), reason="this processor has no such mode")
@pytest.mark.parametrize(
    ("engine", "algorithm"),
    [
        ("thread", "in-network"),  # which needs a thread
        *product(["thread", "caller"], ["direct", "ring", "recursive-doubling"]),
    ],
)
def test_a_program_that_flushes_subnormals_gets_the_same_sums(engine: str, algorithm: str) -> None:
    environment = {"NETFOLD_ENGINE": engine, "NETFOLD_ALGORITHM": algorithm}
    for sums in values(run_ranks(_subnormal_body, world=2, environment=environment)):
        for each in sums:
            assert np.array_equal(each, np.full(3000, 3000))


def _operations_body(rank: int) -> str:
    tensor = torch.ones(1000)
    with pytest.raises(RuntimeError, match="disagree") as error:
        dist.all_reduce(tensor, op=dist.ReduceOp.AVG if rank == 1 else dist.ReduceOp.SUM)
    assert torch.equal(tensor, torch.ones(1000))
    return str(error.value)


def test_ranks_that_ask_for_different_operations_are_told() -> None:
    for told in values(run_ranks(_operations_body, environment={"NETFOLD_ALGORITHM": "in-network"})):
        assert "rank 0" in told
        assert "rank 1" in told
        assert "and average" in told


def _fp32_body(rank: int) -> np.ndarray:
    tensor = _contribution(rank, 5_000)
    dist.all_reduce(tensor)
    return tensor.numpy()


def test_the_fold_is_the_specifications() -> None:
    """Bit for bit: pairwise in rank order."""
    expected = _core.fold([_contribution(rank, 5_000).numpy() for rank in range(WORLD)])
    for got in values(run_ranks(_fp32_body, world=WORLD)):
        assert np.array_equal(got.view(np.uint32), np.asarray(expected).view(np.uint32))


@pytest.mark.parametrize(("wire", "error"), [("fp16", 2e-3), ("bf16", 2e-2), ("bfp", 2e-2)])
def test_float32_travels_in_the_format_asked_for(wire: str, error: float) -> None:
    exact = sum(_contribution(rank, 5_000).double() for rank in range(WORLD)).numpy()
    results = values(run_ranks(_fp32_body, world=WORLD, environment={"NETFOLD_FORMAT": wire}))
    for got in results:
        assert np.array_equal(got, results[0])
        assert 0 < np.abs(got - exact).max() <= error * np.abs(exact).max()


def _shapes_body(rank: int) -> None:
    strided = torch.full((6, 4), float(rank)).t()[:, ::2]
    dist.all_reduce(strided)
    assert torch.equal(strided, torch.full((4, 3), 3.0))
    empty = torch.empty(0)
    dist.all_reduce(empty)
    scalar = torch.tensor(float(rank))
    dist.all_reduce(scalar)
    assert scalar.item() == 3.0
    parameter = torch.nn.Parameter(torch.full((3,), float(rank)))
    dist.all_reduce(parameter.data)
    assert torch.equal(parameter.data, torch.full((3,), 3.0))


def test_any_shape() -> None:
    values(run_ranks(_shapes_body, world=WORLD))


def _async_body(rank: int) -> None:
    tensors = [torch.full((1000 + 77 * i,), float(rank + i)) for i in range(40)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    futures = [work.get_future() for work in works]
    for work in reversed(works):
        assert work.wait()
        assert work.is_completed()
    for i, (tensor, future) in enumerate(zip(tensors, futures, strict=True)):
        assert torch.equal(tensor, torch.full_like(tensor, 3.0 + 3 * i))
        assert torch.equal(future.value()[0], tensor)


def test_many_at_once() -> None:
    values(run_ranks(_async_body, world=WORLD))


def _sleeps_of_threads() -> int:
    own = threading.get_native_id()
    tasks = [task for task in Path("/proc/self/task").iterdir() if int(task.name) != own]
    counts = (re.search(r"^voluntary_ctxt_switches:\s+(\d+)", (task / "status").read_text(), re.M) for task in tasks)
    return sum(int(count[1]) for count in counts if count)


def _waking_body(rank: int, times: int) -> tuple[float, int]:
    tensor = torch.ones(100)
    dist.all_reduce(tensor)
    before = _sleeps_of_threads()
    for _ in range(times):
        dist.all_reduce(tensor, op=dist.ReduceOp.AVG)
        dist.barrier()
    return tensor[0].item(), _sleeps_of_threads() - before


def test_who_waits_at_once_wakes_no_thread() -> None:
    times = 300
    ranks = values(run_ranks(_waking_body, times, world=2, environment={"NETFOLD_ALGORITHM": "direct"}))
    for value, sleeps in ranks:
        assert value == 2.0
        # A thread that is woken for each collective sleeps 600 times; a busy machine lets some sleep too.
        assert sleeps < times, f"other threads slept {sleeps} times in {2 * times} collectives"


def _beside_the_switch_body(rank: int) -> None:
    before = _backend().stats()["reduced_elements"]
    largest = torch.tensor([float(rank)])
    dist.all_reduce(largest, op=dist.ReduceOp.MAX)
    assert largest.item() == WORLD - 1
    for dtype in (torch.float64, torch.int64, torch.uint8):
        tensor = torch.full((5,), rank, dtype=dtype)
        dist.all_reduce(tensor)
        assert torch.equal(tensor, torch.full((5,), 3, dtype=dtype))
    swapped = torch.empty(WORLD)
    dist.all_to_all_single(swapped, torch.full((WORLD,), float(rank)))
    assert torch.equal(swapped, torch.arange(float(WORLD)))
    dist.monitored_barrier()
    assert _backend().stats()["reduced_elements"] == before

    # What follows passes the switch where it can (test_in_network_collectives.py), and mixes with what does not.
    tensor = torch.full((4,), float(rank))
    dist.broadcast(tensor, 1)
    assert torch.equal(tensor, torch.ones(4))
    gathered = [torch.empty(1) for _ in range(WORLD)]
    dist.all_gather(gathered, torch.tensor([float(rank)]))
    assert [t.item() for t in gathered] == [0.0, 1.0, 2.0]
    objects: list[Any] = [None] * WORLD
    dist.all_gather_object(objects, {"rank": rank})
    assert objects == [{"rank": r} for r in range(WORLD)]
    shard = torch.empty(2)
    dist.reduce_scatter_single(shard, torch.arange(6.0))
    assert torch.equal(shard, 3 * torch.arange(6.0)[2 * rank : 2 * rank + 2])
    dist.barrier()


def test_what_no_switch_serves_runs_among_the_ranks() -> None:
    values(run_ranks(_beside_the_switch_body, world=WORLD))


def _any_source_body(rank: int) -> None:
    tensor = torch.zeros(2)
    if rank == 0:
        assert {dist.recv(tensor) for _ in range(WORLD - 1)} == {1, 2}
    else:
        work = dist.isend(torch.ones(2), 0)
        work.wait()
        assert work.is_completed()
    dist.barrier()


def test_receive_from_anybody_names_the_sender() -> None:
    values(run_ranks(_any_source_body, world=WORLD))


def _subgroup_body(rank: int) -> float:
    pair, all_but_first = dist.new_group([0, 1]), dist.new_group([1, 2])
    tensor = torch.tensor([10.0**rank])
    for group in (pair, all_but_first):
        if dist.get_rank(group) >= 0:
            dist.all_reduce(tensor, group=group)
    dist.all_reduce(tensor)
    return tensor.item()


def test_subgroups_are_jobs_of_their_own() -> None:
    # pair: 11, 11, 100; all but first: 11, 111, 111; all: 233
    assert values(run_ranks(_subgroup_body, world=WORLD)) == [233.0] * WORLD


def _coalescing_body(rank: int) -> None:
    before = _backend().stats()["sent_chunks"]
    tensors = [torch.full((i + 1,), float(rank)) for i in range(20)]
    with dist._coalescing_manager():
        for tensor in tensors:
            dist.all_reduce(tensor)
    for tensor in tensors:
        assert torch.equal(tensor, torch.full_like(tensor, 3.0))
    assert _backend().stats()["sent_chunks"] == before + 1, "20 small tensors share one packet"
    sums, copies = torch.full((3,), float(rank)), torch.full((2,), float(rank))
    with dist._coalescing_manager(device=torch.device("cpu"), async_ops=True) as manager:
        dist.all_reduce(sums)
        dist.broadcast(copies, 2)
    manager.wait()
    assert torch.equal(sums, torch.full((3,), 3.0))
    assert torch.equal(copies, torch.full((2,), 2.0))


def test_coalescing() -> None:
    values(run_ranks(_coalescing_body, world=WORLD))


def _detail_body(rank: int, meeting: str) -> None:
    dist.set_debug_level(dist.DebugLevel.DETAIL)
    dist.init_process_group("netfold", init_method=f"file://{meeting}", rank=rank, world_size=WORLD)
    for _ in range(3):
        tensor = torch.full((100,), float(rank))
        dist.all_reduce(tensor)
        assert torch.equal(tensor, torch.full((100,), 3.0))
        dist.broadcast(tensor, 0)
    dist.barrier()
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
    model(torch.ones(2, 4)).sum().backward()
    if rank == 0:
        with pytest.raises(RuntimeError, match="collectives"):
            dist.all_reduce(tensor)
    else:
        with pytest.raises(RuntimeError, match="collectives"):
            dist.broadcast(tensor, 0)


def test_detail_debug_mode() -> None:
    """torch's wrapper finds collectives that do not match, and keeps finding the backend's Python half."""
    values(run_ranks(_detail_body, world=WORLD, joins=False))


def _options_body(rank: int, meeting: str) -> str:
    from netfold.torch import Options

    dist.init_process_group(
        "netfold",
        init_method=f"file://{meeting}",
        rank=rank,
        world_size=2,
        pg_options=Options(format="bfp", bfp=(32, 5)),
    )
    tensor = torch.full((64,), 1.0)
    dist.all_reduce(tensor)
    return f"{_backend().settings.format} {_backend().settings.bfp} {tensor[0].item()}"


def test_process_group_options_win() -> None:
    assert (
        values(run_ranks(_options_body, environment={"NETFOLD_FORMAT": "fp16"}, joins=False)) == ["bfp (32, 5) 2.0"] * 2
    )


def _named_switch_body(rank: int) -> bool:
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    return _backend()._member.joined.embedded is None and tensor[0].item() == 2.0


@pytest.mark.parametrize("secret", ["", "correct horse"])
def test_a_named_switch(secret: str) -> None:
    switch = _core.Switch("127.0.0.1:0", secret=secret, require_auth=bool(secret))
    environment = {"NETFOLD_SWITCH": switch.address, "NETFOLD_JOB": "morning-run", "NETFOLD_SECRET": secret}
    assert values(run_ranks(_named_switch_body, environment=environment)) == [True, True]
    switch.close()


def _tagged_body(rank: int) -> tuple[float, bool]:
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    return tensor[0].item(), _backend()._member.joined.client.lease()["is_tagged"]


def test_an_embedded_switch_tags_every_packet() -> None:
    environment = {"NETFOLD_REQUIRE_AUTH": "yes", "NETFOLD_ALGORITHM": "in-network"}
    outcomes = values(run_ranks(_tagged_body, environment=environment))
    assert outcomes == [(2.0, True), (2.0, True)]


def _format_differs_body(rank: int, meeting: str) -> str:
    from netfold.torch import Options

    options = Options(format="fp16" if rank else "fp32", timeout_s=3)
    with pytest.raises((ValueError, RuntimeError)) as refusal:
        dist.init_process_group("netfold", init_method=f"file://{meeting}", rank=rank, world_size=2, pg_options=options)
    return str(refusal.value)


def test_ranks_that_disagree_are_told() -> None:
    told = values(run_ranks(_format_differs_body, joins=False))
    assert "rank 1 has format='fp16', rank 0 has 'fp32'" in told[1]
    assert "rank" in told[0]
    assert "1" in told[0]


def _left_groups_body(rank: int, debug_level: str) -> list[int]:
    """Backends of destroyed groups that are still in memory."""
    dist.set_debug_level(getattr(dist.DebugLevel, debug_level))
    seen = []
    for _ in range(3):
        group = dist.new_group([0, 1], backend="netfold")
        tensor = torch.ones(10)
        dist.all_reduce(tensor, group=group)
        seen.append(weakref.ref(backend_of(group)))
        dist.destroy_process_group(group)
        del group
    gc.collect()
    return [number for number, backend in enumerate(seen) if backend() is not None]


@pytest.mark.parametrize("debug_level", ["OFF", "DETAIL"])
@pytest.mark.parametrize("algorithm", ["in-network", "ring"])
def test_a_destroyed_group_leaves_no_backend_behind(algorithm: str, debug_level: str) -> None:
    environment = {"NETFOLD_ALGORITHM": algorithm}
    assert values(run_ranks(_left_groups_body, debug_level, environment=environment)) == [[], []]


def _aborted_body(rank: int) -> None:
    dist.set_debug_level(dist.DebugLevel.DETAIL)
    group = dist.new_group([0, 1], backend="netfold")
    dist.all_reduce(torch.ones(3), group=group)
    dist.barrier()  # an abort ends what the other rank still waits for
    group.abort()
    gc.collect()
    with pytest.raises(RuntimeError, match="was shut down"):
        dist.all_reduce(torch.ones(3), group=group)


def test_an_aborted_group_says_so_in_detail_mode() -> None:
    values(run_ranks(_aborted_body))


@pytest.mark.gpu
def test_cuda_tensors_are_staged() -> None:
    values(run_ranks(_cuda_body, world=2))


def _cuda_body(rank: int) -> None:
    device = torch.device("cuda", 0)
    tensors = [torch.full((100_000,), float(rank + i), device=device) for i in range(8)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    mixed = torch.full((10,), float(rank))
    dist.all_reduce(mixed)
    for work in works:
        work.wait()
    for i, tensor in enumerate(tensors):
        assert torch.equal(tensor, torch.full_like(tensor, 1.0 + 2 * i))
    assert torch.equal(mixed, torch.ones(10))
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64).to(device))
    model(torch.full((2, 64), float(rank), device=device)).sum().backward()
