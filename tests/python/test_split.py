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
from netfold.torch.settings import load
from netfold.torch.share_log import ShareLog
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
    assert 0 < stats["share_of_switch"] <= 1
    return checksums


@pytest.mark.parametrize("world", [2, 3])
def test_the_share_changes_no_bit(world: int) -> None:
    def folded(count: int) -> int:
        return zlib.crc32(_core.fold([_gradients(rank, count).numpy() for rank in range(world)]).tobytes())

    expected = [folded(SMALL if step % 3 == 2 else LARGE) for step in range(9)]
    assert values(run_ranks(_bits_body, 9, world=world, environment=SPLIT)) == [expected] * world


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


def test_the_core_refuses_a_group_of_one() -> None:
    with pytest.raises(_core.NetfoldError, match="at least two"):
        _core.SplitGroup(0, 1, switch="127.0.0.1:1", job="alone")


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
        assert all(float(number) > 0 for number in found.groups())


def test_a_share_is_said_when_it_is_known_and_when_it_changes(caplog: pytest.LogCaptureFixture) -> None:
    shares = iter([(0.0, 0.0, 0.0), (0.2, 5e6, 25e6), (0.22, 5e6, 25e6), (0.64, 20e6, 25e6), (0.6, 20e6, 25e6)])
    log = ShareLog(lambda: next(shares))
    with caplog.at_level("INFO", "netfold"):
        for _ in range(5):
            log()
    assert [record.getMessage().split(" of each")[0] for record in caplog.records] == [
        "netfold: the switch folds 20%",
        "netfold: the switch folds 64%",
    ]
