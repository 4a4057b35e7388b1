"""Folding beside a process group of another backend: `netfold.torch.connect()`, its hooks, and the examples."""

from __future__ import annotations

import contextlib
import io
import os
import re
import runpy
import sys
import time
from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import netfold.torch
from netfold import _core
from netfold.torch.devices import accelerator, module_of
from repository import ROOT
from torch_ranks import run_ranks, values

WORLD = 3


def _sums_body(rank: int) -> list[np.ndarray]:
    found = []
    for _ in range(2):  # a second group beside the same process group is a new one
        with netfold.torch.connect(format="bfp", bfp=(32, 5)) as group:
            assert (group.rank(), group.size()) == (rank, WORLD)
            tensor = torch.from_numpy(np.random.default_rng(rank).standard_normal(1000, dtype=np.float32))
            group.all_reduce(tensor)
            found.append(tensor.numpy())
        with pytest.raises(RuntimeError, match="was closed"):
            group.all_reduce(torch.ones(1))
    return found


@pytest.mark.parametrize("algorithm", ["in-network", "direct"])
def test_it_sums_with_the_bits_of_the_fold(algorithm: str) -> None:
    contributions = [np.random.default_rng(rank).standard_normal(1000, dtype=np.float32) for rank in range(WORLD)]
    arrived = [_core.decode(_core.encode(each, 32, 5), 1000, 32, 5) for each in contributions]
    total = _core.fold(arrived, format="fp32")
    wanted = _core.decode(_core.encode(total, 32, 5), 1000, 32, 5)
    environment = {"NETFOLD_ALGORITHM": algorithm}
    for found in values(run_ranks(_sums_body, world=WORLD, backend="gloo", environment=environment)):
        assert all(np.array_equal(each, wanted) for each in found)


def _calls_body(rank: int) -> None:
    group = netfold.torch.connect()
    several = [torch.full((3,), float(rank)), torch.full((2, 2), 2.0 * rank)]
    work = group.all_reduce(several, dist.ReduceOp.AVG, async_op=True)
    assert work is not None
    assert torch.equal(work.get_future().wait()[1], torch.full((2, 2), 1.0))
    assert torch.equal(several[0], torch.full((3,), 0.5))
    empty = torch.ones(0)
    group.all_reduce(empty)
    for tensor, op in ((torch.ones(3, dtype=torch.float64), dist.ReduceOp.SUM), (torch.ones(3), dist.ReduceOp.MAX)):
        with pytest.raises(ValueError, match=r"an all-reduce is a SUM of fp32"):
            group.all_reduce(tensor, op)
    with pytest.raises(ValueError, match="no part of this model is sharded"):
        netfold.torch.average_shards(nn.Linear(2, 2), group)
    with pytest.raises(TypeError, match="no setting 'formt'"):
        netfold.torch.connect(formt="bfp")
    with pytest.raises(ValueError, match="fp32, fp16, bf16, bfp"):
        netfold.torch.connect(format="fp8")
    tensor = torch.ones(5, dtype=torch.int32)
    netfold.torch.all_reduce(tensor)
    netfold.torch.all_reduce(tensor)
    assert tensor.tolist() == [4] * 5
    alone = dist.new_group([0])  # all ranks call it
    if rank == 0:
        with netfold.torch.connect(alone) as single:
            single.all_reduce(tensor)
        assert tensor.tolist() == [4] * 5
    group.close()
    group.close()


def test_calls_and_their_errors() -> None:
    values(run_ranks(_calls_body, world=2, backend="gloo"))


def _dies_body(rank: int) -> str:
    group = netfold.torch.connect()
    group.all_reduce(torch.ones(1))
    if rank == 1:
        os._exit(9)
    with pytest.raises(RuntimeError) as failure:
        group.all_reduce(torch.ones(1))
    return str(failure.value)


def test_a_rank_that_dies_is_named() -> None:
    begun = time.monotonic()
    survivor, _ = run_ranks(_dies_body, world=2, backend="gloo", environment={"NETFOLD_TIMEOUT_S": "20"})
    assert "rank 1" in survivor.value
    assert time.monotonic() - begun < 50


def _gradients(rank: int, device: str, hooked: bool) -> list[torch.Tensor]:
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(20, 50), nn.ReLU(), nn.Linear(50, 1)).to(device))
    group = netfold.torch.connect()
    if hooked:
        model.register_comm_hook(group, netfold.torch.fold_hook)
    torch.manual_seed(rank)
    for _ in range(2):  # DDP rearranges its buckets after the first step
        model.zero_grad()
        model(torch.randn(16, 20, device=device)).square().mean().backward()
    group.close()
    return [parameter.grad.cpu() for parameter in model.parameters() if parameter.grad is not None]


def _hook_body(rank: int, device: str) -> None:
    for plain, hooked in zip(_gradients(rank, device, False), _gradients(rank, device, True), strict=True):
        torch.testing.assert_close(hooked, plain)


def test_the_ddp_hook_averages_gradients() -> None:
    values(run_ranks(_hook_body, "cpu", world=2, backend="gloo"))


def _node_hook_body(rank: int) -> None:
    """Two machines with two ranks each. 1051 parameters: the last shard is padded."""
    plain = _gradients(rank, "cpu", False)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(20, 50), nn.ReLU(), nn.Linear(50, 1)))
    with pytest.raises(ValueError, match="4 ranks cannot be divided among machines of 3"):
        netfold.torch.node_groups(3)
    groups = netfold.torch.node_groups(2)
    model.register_comm_hook(groups, netfold.torch.node_fold_hook)
    torch.manual_seed(rank)
    for _ in range(2):
        model.zero_grad()
        model(torch.randn(16, 20)).square().mean().backward()
    groups.between.close()
    hooked = [parameter.grad for parameter in model.parameters()]
    for one, other in zip(hooked, plain, strict=True):
        torch.testing.assert_close(one, other)


def test_the_hook_for_machines_with_several_ranks_averages_gradients() -> None:
    values(run_ranks(_node_hook_body, world=4, backend="gloo", timeout_s=110.0))


def _device_body(rank: int, wire: str) -> None:
    device = torch.device(accelerator(), 0)
    streams = module_of(device)
    mine = streams.Stream(device)
    with netfold.torch.connect(format=wire) as group, streams.stream(mine):
        for count in (1, 1000, 3_000_001):
            tensor = torch.full((count,), 1.0 + rank, device=device)
            tensor.mul_(4.0)  # the copy must wait for this
            group.average(tensor)
            assert streams.current_stream(device) == mine
            tensor.add_(1.0)  # this must wait for the result
            assert torch.equal(tensor, torch.full_like(tensor, 7.0))


@pytest.mark.gpu
@pytest.mark.parametrize("wire", ["fp32", "bfp"])
def test_tensors_of_a_device_are_averaged_in_the_order_of_streams(wire: str) -> None:
    values(run_ranks(_device_body, wire, world=2, backend="gloo"))


@pytest.mark.gpu
def test_the_ddp_hook_averages_gradients_of_a_device() -> None:
    values(run_ranks(_hook_body, f"{accelerator()}:0", world=2, backend="gloo"))


def _example_body(rank: int, _: str, name: str, port: int) -> str:
    """As torchrun starts it. On a CPU, also where there is a GPU: four ranks need four of those."""
    torchrun = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 4, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ.update({key: str(value) for key, value in torchrun.items()}, REPLICAS="2", CUDA_VISIBLE_DEVICES="")
    folder = ROOT / "examples/gpus"
    sys.path.insert(0, str(folder))
    with contextlib.redirect_stdout(io.StringIO()) as said:
        runpy.run_path(str(folder / f"{name}.py"))
    return said.getvalue()


@pytest.mark.parametrize("name", ["ddp_hook", "fsdp_hook", "hsdp"])
def test_the_examples_learn(name: str, free_port: Callable[[], int]) -> None:
    said, *others = values(run_ranks(_example_body, name, free_port(), world=4, joins=False))
    losses = re.fullmatch(r"loss ([\d.]+) at first, ([\d.]+) after \d+ steps\n", said)
    assert losses is not None, said
    assert float(losses[2]) < float(losses[1]) / 20
    assert others == [""] * 3
