"""`split` through PyTorch: a switch folds a share of each large tensor, and the ranks fold the rest."""

from __future__ import annotations

import os
import re
import signal
import time
import zlib
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

from netfold import _core
from netfold.log import logger
from netfold.torch import Options
from netfold.torch.backend import backend_of
from netfold.torch.options import load
from netfold.torch.share_log import ShareLog
from switch_programs import listening
from torch_ranks import run_ranks, values

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("no_rank_left")]
SPLIT = {"NETFOLD_ALGORITHM": "split"}
LARGE, SMALL = 700_001, 1001


def _gradients(rank: int, count: int) -> torch.Tensor:
    return torch.randn(count, generator=torch.Generator().manual_seed(rank))


def _stats() -> dict[str, Any]:
    assert dist.group.WORLD is not None
    backend = backend_of(dist.group.WORLD)
    assert backend is not None
    return backend.stats()


def _bits_body(rank: int, steps: int) -> list[int]:
    """Checksums of sums by split, with shares that change from tensor to tensor."""
    checksums = []
    for step in range(steps):
        tensor = _gradients(rank, SMALL if step % 3 == 2 else LARGE)
        dist.all_reduce(tensor)
        checksums.append(zlib.crc32(tensor.numpy().tobytes()))
    stats = _stats()
    assert stats["divided_tensors"] == steps - steps // 3
    assert 0 <= stats["share_of_switch"] <= 1
    return checksums


@pytest.mark.parametrize("world", [2, 3])
def test_the_share_changes_no_bit(world: int) -> None:
    def folded(count: int) -> int:
        return zlib.crc32(_core.fold([_gradients(rank, count).numpy() for rank in range(world)]).tobytes())

    expected = [folded(SMALL if step % 3 == 2 else LARGE) for step in range(9)]
    assert values(run_ranks(_bits_body, 9, world=world, environment=SPLIT)) == [expected] * world


def test_several_switches_change_no_bit() -> None:
    expected = [
        zlib.crc32(
            _core.fold([_gradients(rank, SMALL if step % 3 == 2 else LARGE).numpy() for rank in range(3)]).tobytes()
        )
        for step in range(9)
    ]
    switches = [_core.Switch("127.0.0.1:0") for _ in range(3)]
    named = {**SPLIT, "NETFOLD_SWITCH": ",".join(each.address for each in switches)}
    assert values(run_ranks(_bits_body, 9, world=3, environment=named)) == [expected] * 3
    assert all(each.stats()["link"]["received_packets"] for each in switches)
    for each in switches:
        each.close()


def _list_body(rank: int, meeting: str, lists: list[str]) -> None:
    os.environ["NETFOLD_SWITCH"] = lists[rank]
    dist.init_process_group("netfold", store=dist.FileStore(meeting, 2), rank=rank, world_size=2)


def _ring_body(rank: int) -> float:
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    return tensor[0].item()


def test_a_group_that_uses_no_switch_may_have_one_named() -> None:
    environment = {"NETFOLD_ALGORITHM": "ring", "NETFOLD_SWITCH": "127.0.0.1:7171"}
    assert values(run_ranks(_ring_body, environment=environment)) == [2.0, 2.0]


@pytest.mark.parametrize("other", ["127.0.0.1:7171", "127.0.0.1:7172,127.0.0.1:7171"])
def test_ranks_with_different_lists_of_switches_are_told(other: str) -> None:
    lists = ["127.0.0.1:7171,127.0.0.1:7172", other]
    outcomes = run_ranks(_list_body, lists, environment={**SPLIT, "NETFOLD_CONNECT_TIMEOUT_S": "3"}, joins=False)
    assert f"rank 1 names the switches {other}, rank 0 names {lists[0]}" in outcomes[1].error
    assert outcomes[0].error


@pytest.mark.parametrize("more", [{"NETFOLD_ALGORITHM": "in-network"}, {"NETFOLD_ENGINE": "agent"}])
def test_one_algorithm_uses_several_switches(more: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="names 2 switches, which only the algorithm split uses, not in-network"):
        load(None, {"NETFOLD_SWITCH": "10.0.0.5:7171,10.0.0.6:7171", **more})


def _all_kinds_body(rank: int, world: int, wire: str) -> None:
    total = world * (world - 1) / 2
    works, tensors = [], []
    for i in range(8):
        tensors.append(torch.full((1000 + 90_000 * i,), float(rank)))
        works.append(dist.all_reduce(tensors[-1], async_op=True))
    for work, tensor in zip(works, tensors, strict=True):
        assert work.wait()
        assert torch.equal(tensor, torch.full_like(tensor, total))
    for dtype in (torch.float16, torch.bfloat16, torch.int32):
        tensor = torch.full((200_000,), rank + 1).to(dtype)
        dist.all_reduce(tensor)
        assert torch.equal(tensor, torch.full((200_000,), int(total) + world).to(dtype))
    average = torch.full((300_000,), float(rank))
    dist.all_reduce(average, op=dist.ReduceOp.AVG)
    assert torch.equal(average, torch.full((300_000,), total / world))
    root = torch.full((300_000,), float(rank))
    dist.broadcast(root, 1)
    assert torch.equal(root, torch.ones(300_000))
    gathered = torch.empty(world * 1000)
    dist.all_gather_into_tensor(gathered, torch.full((1000,), float(rank)))
    assert torch.equal(gathered, torch.arange(world).repeat_interleave(1000).float())
    part = torch.empty(1000)
    dist.reduce_scatter_tensor(part, torch.full((world * 1000,), float(rank)))
    assert torch.equal(part, torch.full((1000,), total))
    dist.barrier()


@pytest.mark.parametrize("wire", ["fp32", "bfp"])
def test_collectives_of_all_kinds(wire: str) -> None:
    values(run_ranks(_all_kinds_body, 3, wire, world=3, environment={**SPLIT, "NETFOLD_FORMAT": wire}))


def _groups_body(rank: int) -> float:
    """A part of the ranks has a switch and connections of its own."""
    pair = dist.new_group([0, 1], pg_options=Options(algorithm="split"))
    tensor = torch.full((LARGE,), float(rank + 1))
    if rank < 2:
        dist.all_reduce(tensor, group=pair)
    dist.all_reduce(tensor)
    return float(tensor[-1])


def test_groups_of_some_ranks() -> None:
    assert values(run_ranks(_groups_body, world=3, environment=SPLIT)) == [9.0] * 3


def _killed_body(rank: int) -> tuple[str, bool, float]:
    tensor = _gradients(rank, 3 * LARGE)
    for _ in range(3):
        dist.all_reduce(tensor.clone())
    kept = tensor.clone()
    if rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    begun = time.monotonic()
    with pytest.raises(RuntimeError) as failure:
        dist.all_reduce(kept)
    return str(failure.value), torch.equal(kept, tensor), time.monotonic() - begun


def test_a_rank_that_is_killed_is_named_and_the_tensor_is_as_it_was() -> None:
    outcomes = run_ranks(_killed_body, world=3, environment={**SPLIT, "NETFOLD_TIMEOUT_S": "20"})
    for said, is_kept, waited_s in values(outcomes[:2]):
        assert "rank 2" in said
        assert is_kept
        assert waited_s < 20
    assert outcomes[2].exit_status == -signal.SIGKILL


def _restarted_body(rank: int, meeting: str, port: int, times: int, hangs: bool) -> tuple[list[bool], list[str]]:
    """Rank 0 kills or stops the switch under an all-reduce, and lets it run again. The others see nothing of it."""
    said: list[str] = []
    switch = listening("127.0.0.1", port) if rank == 0 else None
    dist.init_process_group("netfold", store=dist.FileStore(meeting, 3), rank=rank, world_size=3)
    logger.handlers[0].emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    expected = torch.from_numpy(_core.fold([_gradients(each, LARGE).numpy() for each in range(3)]))
    same = []

    def sum_once() -> None:
        tensor = _gradients(rank, LARGE)
        work = dist.all_reduce(tensor, async_op=True)
        if switch is not None and len(same) == fails_at:
            if hangs:
                switch.send_signal(signal.SIGSTOP)
            else:
                switch.kill()
                switch.wait()
        work.wait()
        same.append(torch.equal(tensor, expected))

    try:
        for _ in range(times):
            fails_at = len(same) + 2
            for _ in range(5):
                sum_once()
            if switch is not None and hangs:
                switch.send_signal(signal.SIGCONT)
            elif switch is not None:
                switch = listening("127.0.0.1", port)
            for _ in range(300):
                sum_once()
                lost = torch.tensor([float(_stats()["lost_switches"])])
                dist.all_reduce(lost)
                if lost.item() == 0:
                    break
            assert lost.item() == 0, "the switch is back"
        dist.barrier()
    finally:
        if switch is not None:
            switch.kill()
            switch.wait()
    return same, said


@pytest.mark.parametrize("hangs", [False, True], ids=["killed", "hangs"])
def test_a_switch_that_is_killed_or_hangs_ends_nothing_and_changes_no_bit(hangs: bool) -> None:
    reserved = _core.Switch("127.0.0.1:0")
    port = int(reserved.address.rpartition(":")[2])
    reserved.close()
    environment = {**SPLIT, "NETFOLD_SWITCH": f"127.0.0.1:{port}", "NETFOLD_LOG": "warning"}
    times = 1 if hangs else 3
    outcomes = values(run_ranks(_restarted_body, port, times, hangs, world=3, environment=environment, joins=False))
    for rank, (same, said) in enumerate(outcomes):
        assert len(same) >= times * 6 and all(same)
        assert [("is lost" in line, "is back" in line) for line in said] == (
            [(True, False), (False, True)] * times if rank == 0 else []
        )


def _both_ways_body(rank: int, meeting: str, port: int) -> tuple[list[bool], list[int]]:
    """Reduce-scatters beside all-gathers. Rank 0 kills the switch under them, and starts it again later."""
    world, part = 4, 100_000
    switch = listening("127.0.0.1", port) if rank == 0 else None
    dist.init_process_group("netfold", store=dist.FileStore(meeting, world), rank=rank, world_size=world)
    inputs = [_gradients(each, world * part) for each in range(world)]
    mine = slice(rank * part, (rank + 1) * part)
    summed = torch.from_numpy(_core.fold([each.numpy() for each in inputs]))[mine]
    gathered = torch.cat([each[:part] for each in inputs])
    same, in_switch = [], []
    try:
        for step in range(40):
            everything, own = torch.empty(world * part), torch.empty(part)
            works = [
                dist.all_gather_into_tensor(everything, inputs[rank][:part].clone(), async_op=True),
                dist.reduce_scatter_tensor(own, inputs[rank].clone(), async_op=True),
            ]
            if switch is not None and step == 20:
                switch.kill()
                switch.wait()
            for work in works:
                assert work is not None
                work.wait()
            same.append(torch.equal(everything, gathered) and torch.equal(own, summed))
            in_switch.append(_stats()["one_way_in_switch"])
            if switch is not None and step == 30:
                switch = listening("127.0.0.1", port)
        dist.barrier()
    finally:
        if switch is not None:
            switch.kill()
            switch.wait()
    return same, in_switch


def test_reduce_scatters_and_all_gathers_outlive_the_switch_and_ranks_agree_on_their_way() -> None:
    reserved = _core.Switch("127.0.0.1:0")
    port = int(reserved.address.rpartition(":")[2])
    reserved.close()
    environment = {**SPLIT, "NETFOLD_SWITCH": f"127.0.0.1:{port}"}
    outcomes = values(run_ranks(_both_ways_body, port, world=4, environment=environment, joins=False))
    for same, in_switch in outcomes:
        assert len(same) == 40 and all(same)
        assert in_switch == outcomes[0][1]


def test_the_core_refuses_a_group_of_one() -> None:
    with pytest.raises(_core.NetfoldError, match="at least two"):
        _core.SplitGroup(0, 1, switches=["127.0.0.1:1"], job="alone")


@pytest.mark.parametrize("engine", ["caller", "agent"])
def test_it_needs_the_engine_in_a_thread(engine: str) -> None:
    with pytest.raises(ValueError, match=f"split needs NETFOLD_ENGINE=thread, not {engine}"):
        load(None, {**SPLIT, "NETFOLD_ENGINE": engine})


def test_no_switch_at_the_address(no_rank_left: None) -> None:
    """Both ranks are told, and none waits for longer than it takes to connect."""
    outcomes = run_ranks(
        _bits_body, 1, environment={**SPLIT, "NETFOLD_SWITCH": "127.0.0.1:9", "NETFOLD_CONNECT_TIMEOUT_S": "1"}
    )
    assert all("127.0.0.1:9" in outcome.error for outcome in outcomes), [one.error for one in outcomes]
    assert np.ptp([outcome.ended_at for outcome in outcomes]) < 20


def _log_body(rank: int) -> list[str]:
    said: list[str] = []
    logger.handlers[0].emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    tensor = _gradients(rank, LARGE)
    for _ in range(8):
        dist.all_reduce(tensor)
    return said


def test_rank_0_says_the_share() -> None:
    first, second = values(run_ranks(_log_body, environment={**SPLIT, "NETFOLD_LOG": "info"}))
    assert second == []
    assert first, "the first tensors have measured the links"
    for line in first:
        found = re.search(
            r"switch folds (\d+)% of each large tensor.* takes ([\d.]+) MB/s .* carries ([\d.]+) MB/s", line
        )
        assert found, line
        share, *rates = (float(number) for number in found.groups())
        assert share >= 0, "a switch that would fold very little folds nothing"
        assert all(rate > 0 for rate in rates)


def test_a_share_is_said_when_it_is_known_and_when_it_changes(caplog: pytest.LogCaptureFixture) -> None:
    rates = (20e6, 25e6)
    shares = iter([(0.0, 0.0, 0.0), (0.2, 5e6, 25e6), (0.22, 5e6, 25e6), (0.64, *rates), (0.6, *rates), (0.0, *rates)])
    log = ShareLog(lambda: next(shares), 8, 1)
    with caplog.at_level("INFO", "netfold"):
        for _ in range(6):
            log()
    assert [record.getMessage().split(" of each")[0].split(",")[0] for record in caplog.records] == [
        "netfold: the switch folds 20%",
        "netfold: the switch folds 64%",
        "netfold: the ranks sum large tensors without the switch",
    ]
