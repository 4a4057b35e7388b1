"""Every operation of torch.distributed on every type, against torch's own definition; messages; and no Gloo beneath."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from torch_ranks import run_ranks, values

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("no_rank_left")]

Op = dist.ReduceOp
INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8)
REALS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
COMPLEX = (torch.complex64, torch.complex128)
EVERY_WAY = [{"NETFOLD_ALGORITHM": "auto"}, {"NETFOLD_ALGORITHM": "in-network"}]


def _tensor(rank: int, count: int, dtype: torch.dtype) -> torch.Tensor:
    """Small whole numbers: all sums and products are exact in every type."""
    generator = torch.Generator().manual_seed(rank)
    if dtype == torch.bool:
        return torch.randint(0, 2, (count,), generator=generator).bool()
    if dtype.is_complex:
        return torch.complex(*torch.randint(-3, 4, (2, count), generator=generator).double()).to(dtype)
    return torch.randint(0 if dtype == torch.uint8 else -3, 4, (count,), generator=generator).to(dtype)


def _plain(op: Any, tensors: list[torch.Tensor]) -> torch.Tensor:
    """The operation's definition in torch."""
    dtype = tensors[0].dtype
    if dtype == torch.bool:
        either = op in (Op.SUM, Op.MAX, Op.BOR)
        bits = torch.logical_xor if op == Op.BXOR else torch.logical_or if either else torch.logical_and
        return reduce(bits, tensors)
    if op == Op.AVG:
        total = reduce(torch.add, tensors)
        return (
            torch.div(total, len(tensors), rounding_mode="trunc")
            if dtype in INTEGERS
            else (total.to(torch.complex128 if dtype.is_complex else torch.float64) / len(tensors)).to(dtype)
        )
    return reduce(
        {
            Op.SUM: torch.add,
            Op.PRODUCT: torch.mul,
            Op.MIN: torch.minimum,
            Op.MAX: torch.maximum,
            Op.BAND: torch.bitwise_and,
            Op.BOR: torch.bitwise_or,
            Op.BXOR: torch.bitwise_xor,
        }[op],
        tensors,
    )


def _defined(dtype: torch.dtype) -> list[Any]:
    if dtype == torch.bool:
        return [Op.SUM, Op.PRODUCT, Op.MIN, Op.MAX, Op.BAND, Op.BOR, Op.BXOR]
    ordered = [] if dtype.is_complex else [Op.MIN, Op.MAX]
    bits = [Op.BAND, Op.BOR, Op.BXOR] if dtype in INTEGERS else []
    product = [] if dtype.is_complex else [Op.PRODUCT]  # torch.distributed refuses it
    return [Op.SUM, Op.AVG, *product, *ordered, *bits]


def _reductions_body(rank: int, world: int) -> list[str]:
    wrong = []
    for dtype in (*INTEGERS, *REALS, *COMPLEX, torch.bool):
        for op in _defined(dtype):
            for part in (0, 5, 3001):
                inputs = [_tensor(each, world * part, dtype) for each in range(world)]
                expected = _plain(op, inputs)
                reduced, rooted, scattered = inputs[rank].clone(), inputs[rank].clone(), torch.empty(part, dtype=dtype)
                dist.all_reduce(reduced, op=op)
                dist.reduce(rooted, world - 1, op=op)
                dist.reduce_scatter_tensor(scattered, inputs[rank], op=op)
                found = {
                    "all_reduce": (reduced, expected),
                    "reduce": (rooted, expected if rank == world - 1 else inputs[rank]),
                    "reduce_scatter": (scattered, expected[rank * part : (rank + 1) * part]),
                }
                wrong += [
                    f"{name} {op} of {part} {dtype}"
                    for name, (got, right) in found.items()
                    if not torch.allclose(got, right, rtol=0 if op != Op.AVG else 1e-2)
                ]
    scaled = torch.full((7,), rank + 1.0)
    dist.all_reduce(scaled, op=dist._make_nccl_premul_sum(0.5))
    if not torch.equal(scaled, torch.full((7,), sum(range(world + 1)) / 2.0)):
        wrong.append("a PREMUL_SUM")
    nan = torch.tensor([float("nan") if rank == 1 else float(rank)])
    dist.all_reduce(nan, op=Op.MAX)
    if not nan.isnan().item():
        wrong.append("a maximum with a NaN")
    for dtype, op in ((torch.float32, Op.BXOR), (torch.bool, Op.AVG)):
        with pytest.raises(ValueError, match=r"netfold: .*bool|not defined"):
            dist.all_reduce(torch.ones(2, dtype=dtype), op=op)
    return wrong


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("environment", EVERY_WAY, ids=["auto", "in-network"])
def test_every_operation_on_every_type(world: int, environment: dict[str, str]) -> None:
    assert values(run_ranks(_reductions_body, world, world=world, environment=environment)) == [[]] * world


def _sparse(rank: int, world: int) -> torch.Tensor:
    """A value of its own and one at a place that all ranks have; rank 0 has a third."""
    places = torch.tensor([[rank, 0, 1], [rank, 1, 1]])[:, : 3 if rank == 0 else 2]
    return torch.sparse_coo_tensor(places, torch.arange(1.0, places.size(1) + 1), (world, world + 1))


def _exchanges_body(rank: int, world: int) -> list[str]:
    wrong = []

    def check(name: str, found: torch.Tensor, expected: torch.Tensor) -> None:
        if found.dtype != expected.dtype or not torch.equal(found, expected):
            wrong.append(f"{name} {expected.dtype} {tuple(expected.shape)}")

    for dtype in (*INTEGERS, *REALS, *COMPLEX, torch.bool):
        for count in (0, 3, 40_001 if dtype in (torch.uint8, torch.float64) else 100):
            parts = [_tensor(each, count, dtype) for each in range(world)]
            gathered = [torch.empty_like(part) for part in parts] if rank == 1 else None
            dist.gather(parts[rank], gathered, dst=1)
            for part, got in zip(parts, gathered or parts, strict=True):
                check("gather", got, part)
            output = torch.empty((count, 2), dtype=dtype)[:, 1]
            dist.scatter(output, parts if rank == 1 else None, src=1)
            check("scatter", output, parts[rank])
            swapped = torch.empty(world * count, dtype=dtype)
            dist.all_to_all_single(swapped, parts[rank].repeat(world))
            check("all_to_all_single", swapped, torch.cat(parts))
    sent = [torch.full((rank + 2 * to, 3), 10.0 * rank + to) for to in range(world)]
    received = [torch.empty(source + 2 * rank, 3) for source in range(world)]
    dist.all_to_all(received, sent)
    for source, got in enumerate(received):
        check("all_to_all of any size", got, torch.full((source + 2 * rank, 3), 10.0 * source + rank))
    rows = torch.cat(sent)
    got = torch.empty(sum(source + 2 * rank for source in range(world)), 3)
    dist.all_to_all_single(
        got, rows, [source + 2 * rank for source in range(world)], [rank + 2 * to for to in range(world)]
    )
    check("all_to_all_single with splits", got, torch.cat(received))
    objects: list[Any] = [None] * world
    dist.gather_object({"from": rank}, objects if rank == 0 else None)
    scattered: list[Any] = [None]
    dist.scatter_object_list(scattered, [{"for": each} for each in range(world)] if rank == 0 else None)
    told = [{"by": 1} if rank == 1 else None]
    dist.broadcast_object_list(told, src=1)
    if (rank == 0 and objects != [{"from": each} for each in range(world)]) or scattered != [{"for": rank}]:
        wrong.append("objects")
    if told != [{"by": 1}]:
        wrong.append("broadcast_object_list")
    sparse, *_ = all_sparse = [_sparse(each, world) for each in (rank, *range(world))]
    dense = reduce(torch.add, [each.to_dense() for each in all_sparse[1:]])
    dist.all_reduce(sparse)
    check("sparse", sparse.to_dense(), dense)
    return wrong


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("environment", EVERY_WAY, ids=["auto", "in-network"])
def test_every_exchange_of_every_type(world: int, environment: dict[str, str]) -> None:
    assert values(run_ranks(_exchanges_body, world, world=world, environment=environment)) == [[]] * world


def _messages_body(rank: int, world: int) -> None:
    right, left = (rank + 1) % world, (rank - 1) % world
    for count in (0, 1, 100, 300_000):  # none waits for its receive, or all do
        sent, received = torch.full((count,), float(rank)), torch.empty(count)
        works = [dist.isend(sent, right, tag=count), dist.irecv(received, left, tag=count)]
        total = torch.ones(1000)
        dist.all_reduce(total)  # meanwhile
        for work in works:
            assert work is not None
            work.wait()
            assert work.is_completed()
        assert torch.equal(received, torch.full((count,), float(left)))
        assert torch.equal(total, torch.full((1000,), float(world)))
    strided = torch.zeros(4, 4)
    if rank == 0:
        dist.send(torch.arange(4.0), 1, tag=1)
        dist.send(torch.arange(4.0) + 4, 1, tag=2)
        senders = {dist.recv(torch.empty(3), tag=3) for _ in range(world - 1)}
        assert senders == set(range(1, world))
    else:
        if rank == 1:
            dist.recv(strided[:, 1], 0, tag=2)
            dist.recv(strided[:, 0], 0, tag=1)
            assert torch.equal(strided[:, :2], torch.arange(8.0).view(2, 4).t())
        dist.send(torch.ones(3), 0, tag=3)
    swaps = [dist.P2POp(dist.isend, torch.full((9,), float(rank)), right)]
    got = torch.empty(9)
    swaps.append(dist.P2POp(dist.irecv, got, left))
    for work in dist.batch_isend_irecv(swaps):
        work.wait()
    assert torch.equal(got, torch.full((9,), float(left)))
    if world == 2:
        _from_several_threads(rank)


def _from_several_threads(rank: int) -> None:
    failed: list[BaseException] = []

    def swap(tag: int) -> None:
        try:
            for i in range(20):
                received = torch.empty(100 * i)
                work = dist.isend(torch.full((100 * i,), float(tag)), 1 - rank, tag=tag)
                dist.recv(received, 1 - rank, tag=tag)
                assert work is not None
                work.wait()
                assert torch.equal(received, torch.full((100 * i,), float(tag)))
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=swap, args=(tag,)) for tag in range(10, 13)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


@pytest.mark.parametrize(
    ("world", "environment"),
    [
        (2, EVERY_WAY[0]),
        (3, EVERY_WAY[0]),
        (2, EVERY_WAY[1]),
        (2, {"NETFOLD_ENGINE": "caller", "NETFOLD_ALGORITHM": "ring"}),
    ],
    ids=["auto-2", "auto-3", "in-network-2", "caller-2"],
)
def test_messages(world: int, environment: dict[str, str]) -> None:
    values(run_ranks(_messages_body, world, world=world, environment=environment))


def _dies_body(rank: int) -> str:
    dist.barrier()
    if rank == 2:
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(RuntimeError, match="rank 2") as error:
        dist.recv(torch.empty(4), 2 if rank == 0 else 0)
    return str(error.value)


def test_a_sender_that_dies_is_named() -> None:
    outcomes = run_ranks(_dies_body, world=3, environment={"NETFOLD_TIMEOUT_S": "20"})
    assert all("rank 2" in outcome.value for outcome in outcomes[:2]), outcomes


def _sizes_body(rank: int) -> str:
    with pytest.raises(RuntimeError) as error:
        if rank == 0:
            dist.send(torch.ones(5), 1)
            dist.recv(torch.empty(1), 1)
        else:
            dist.recv(torch.empty(3), 0)
    return str(error.value)


def test_sizes_that_differ_are_named() -> None:
    for told in values(run_ranks(_sizes_body)):
        assert "rank 0 sends rank 1 a message of 20 bytes with tag 0, and rank 1 receives 12 bytes" in told


def _alone_body(rank: int) -> list[str]:
    wrong = _exchanges_alone()
    tensor = torch.arange(4.0)
    dist.all_reduce(tensor, op=Op.AVG)
    dist.broadcast(tensor, 0)
    dist.barrier()
    dist.monitored_barrier()
    if not torch.equal(tensor, torch.arange(4.0)):
        wrong.append("all_reduce")
    with pytest.raises((ValueError, RuntimeError)):
        dist.recv(torch.empty(1)) if rank else dist.group.WORLD.recv([torch.empty(1)], 0, 0).wait()
    return wrong


def _exchanges_alone() -> list[str]:
    source, wrong = torch.arange(6.0), []
    gathered, scattered, swapped, part = [torch.empty(6)], torch.empty(6), torch.empty(6), torch.empty(6)
    dist.all_gather(gathered, source)
    dist.scatter(scattered, [source])
    dist.all_to_all_single(swapped, source)
    dist.reduce_scatter_tensor(part, source, op=Op.MAX)
    for name, each in {"gather": gathered[0], "scatter": scattered, "all-to-all": swapped, "part": part}.items():
        if not torch.equal(each, source):
            wrong.append(name)
    return wrong


def test_a_group_of_one_rank_needs_no_engine() -> None:
    assert values(run_ranks(_alone_body, world=1)) == [[]]


def _says_that_no_switch_is_used(rank: int, meeting: str) -> list[str]:
    said: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("netfold").addHandler(handler)
    dist.init_process_group("netfold", init_method=f"file://{meeting}", rank=rank, world_size=1)
    return said


def test_a_job_of_one_rank_says_that_it_uses_no_switch() -> None:
    environment = {"NETFOLD_SWITCH": "127.0.0.1:1"}
    [said] = values(run_ranks(_says_that_no_switch_is_used, world=1, environment=environment, joins=False))
    assert said == ["netfold: the job has one rank, so the switch at 127.0.0.1:1 is not used"]


def _no_gloo_body(rank: int, meeting: str) -> list[str]:
    """Like a job: nothing of it may construct a Gloo."""
    from torch._C import _distributed_c10d as c10d

    made: list[str] = []

    class Refused(c10d.ProcessGroupGloo):  # type: ignore[name-defined,misc]
        def __init__(self, *_: Any) -> None:
            made.append("a ProcessGroupGloo")
            raise AssertionError("netfold made a ProcessGroupGloo")

    c10d.ProcessGroupGloo = Refused
    dist.distributed_c10d.ProcessGroupGloo = Refused
    dist.init_process_group("netfold", init_method=f"file://{meeting}", rank=rank, world_size=2)
    tensor = torch.full((3,), rank, dtype=torch.int64)
    dist.all_reduce(tensor, op=Op.MAX)
    dist.new_group([0, 1])
    dist.all_gather_object([None, None], rank)
    dist.monitored_barrier()
    assert torch.equal(tensor, torch.ones(3, dtype=torch.int64))
    threads = [(each / "comm").read_text() for each in Path("/proc/self/task").iterdir()]
    return made + [name for name in threads if "gloo" in name]


def test_no_gloo_is_beneath() -> None:
    assert values(run_ranks(_no_gloo_body, joins=False)) == [[], []]


def _monitored_body(rank: int) -> str:
    from datetime import timedelta

    dist.monitored_barrier()
    if rank == 2:
        return ""
    with pytest.raises(RuntimeError) as error:
        dist.monitored_barrier(timeout=timedelta(seconds=0.5), wait_all_ranks=True)
    dist.all_reduce(torch.ones(1), group=dist.new_group([0, 1], use_local_synchronization=True))  # it goes on
    return str(error.value)


def test_a_monitored_barrier_names_the_missing() -> None:
    told = values(run_ranks(_monitored_body, world=3))
    assert "Ranks 2 failed to pass monitoredBarrier in 500 ms" in told[0]
    assert "Ranks 2 failed" in told[1]
