"""Properties that only a GPU can show: its streams wait for the network, tensors arrive whole, NCCL uses the plugin.

Two ranks share one GPU. All but the tests of the backend run with every torch that `netfold.torch.connect` supports."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore
from torch.distributed import distributed_c10d

import netfold.torch
from netfold import _core
from netfold.errors import NetfoldError
from netfold.torch import collectives
from netfold.torch.calls import Call
from netfold.torch.device_rates import measure
from netfold.torch.devices import accelerator, module_of
from netfold.torch.joining import Seat
from netfold.torch.member import Member, settings_of_group
from netfold.torch.own_address import own_address
from netfold.torch.settings import load
from netfold.torch.stream_memory import stream_memory
from netfold.torch_versions import has_backend
from repository import ROOT
from torch_ranks import run_ranks, values

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]
WORLD = 2
BUSY_CYCLES = 2_000_000_000  # of the GPU's clock: a second or more


def _device() -> torch.device:
    return torch.device(accelerator(), 0)


def test_streams_wait_by_themselves() -> None:
    assert stream_memory(_device()) is not None


def test_the_codec_is_nearly_as_fast_as_a_copy() -> None:
    rates = measure()
    print(rates)
    assert min(rates.encode_bytes_s, rates.decode_bytes_s) >= 0.8 * rates.copy_bytes_s


def _inputs(rank: int, count: int) -> np.ndarray:
    return np.random.default_rng(rank).standard_normal(count, dtype=np.float32)


def _sums_body(rank: int, wire: str, average: bool) -> list[float]:
    """Returns how long the calls took while the GPU was busy, and then the GPU, in seconds."""
    device = _device()
    module = module_of(device)
    op = dist.ReduceOp.AVG if average else dist.ReduceOp.SUM
    with netfold.torch.connect(format=wire) as group:
        for count in (1, 1000, 12_345_677):
            whole = torch.from_numpy(_inputs(rank, count)).to(device)
            cut = [whole[: count // 3].clone(), whole[count // 3 :].clone()]
            strided = torch.stack([whole, whole], dim=1)[:, 0]
            for tensors in ([whole], cut, [strided]):
                group.all_reduce(tensors, op)
                arrived = [_inputs(each, count) for each in range(WORLD)]
                if wire == "bfp":
                    arrived = [_core.decode(_core.encode(each), count) for each in arrived]
                total = _core.fold(arrived, format="fp32")
                if wire == "bfp":
                    total = _core.decode(_core.encode(total), count)
                wanted = torch.from_numpy(total / np.float32(WORLD if average else 1))
                assert torch.equal(torch.cat([each.reshape(-1) for each in tensors]).cpu(), wanted)
        first, doubled = torch.ones(10_000_000, device=device), torch.empty(10_000_000, device=device)
        for busy_cycles in (1, BUSY_CYCLES):  # CUDA loads a kernel when it is first used, and may wait for others then
            stream = module.current_stream()
            times = [time.monotonic()]
            module._sleep(busy_cycles)
            first.fill_(rank + 1.0)
            times.append(time.monotonic())
            group.all_reduce(first)
            times.append(time.monotonic())
            torch.mul(first, 2, out=doubled)
            times.append(time.monotonic())
            assert module.current_stream() == stream
            module.synchronize()
            times.append(time.monotonic())
            assert torch.equal(doubled, torch.full_like(doubled, 6.0))
        took_s = [after - before for before, after in pairwise(times)]
        assert took_s[-1] > 3 * sum(took_s[:-1]), f"Python waited: {took_s}"
        return took_s


@pytest.mark.parametrize("average", [False, True])
@pytest.mark.parametrize("wire", ["fp32", "bfp"])
@pytest.mark.parametrize("algorithm", ["in-network", "direct"])
def test_sums_have_the_bits_of_the_host_and_python_goes_on(algorithm: str, wire: str, average: bool) -> None:
    environment = {"NETFOLD_ALGORITHM": algorithm}
    outcomes = run_ranks(
        _sums_body, wire, average, world=WORLD, backend="gloo", environment=environment, timeout_s=250.0
    )
    print(values(outcomes))


def _member(rank: int) -> Member:
    """A member of a group, which the backend and `connect` use: it has all collectives, with every torch."""
    store = PrefixStore("member", distributed_c10d._get_default_store())
    wanted = settings_of_group(load({}), WORLD)
    return Member(Seat(store, rank, WORLD, "member", 30.0), wanted, own_address(store, rank, WORLD, "", 30.0))


def _collectives_body(rank: int) -> None:
    """The other collectives, in the order of the streams; messages, for which Python waits."""
    device = _device()
    member = _member(rank)
    staging = member.staging

    def run(call: Call) -> None:
        member.start(call, is_async=True).wait()

    own = torch.full((1000,), rank + 1.0, device=device)
    gathered = torch.empty(WORLD * 1000, device=device)
    run(collectives.all_gather(staging, [gathered], own, WORLD))
    part = torch.empty(500, device=device)
    run(collectives.reduce_scatter(staging, part, [own], WORLD, dist.ReduceOp.SUM, "fp32"))
    largest = own.clone()
    run(collectives.all_reduce(staging, [largest], dist.ReduceOp.MAX))
    run(collectives.broadcast(staging, own, 1))
    assert torch.equal(gathered.cpu(), torch.tensor([1.0, 2.0]).repeat_interleave(1000))
    assert torch.equal(part.cpu(), torch.full((500,), 3.0))
    assert torch.equal(largest.cpu(), torch.full((1000,), 2.0))
    assert torch.equal(own.cpu(), torch.full((1000,), 2.0))
    received = torch.empty(1000, device=device)
    message = collectives.send(member.message_staging, own, 1, 0)
    if rank == 1:
        message = collectives.receive(member.message_staging, received, 0, 0)
    member.start_message(message).wait()
    assert rank == 0 or torch.equal(received.cpu(), torch.full((1000,), 2.0))
    member.leave()


@pytest.mark.parametrize("algorithm", ["in-network", "direct"])
def test_other_collectives(algorithm: str) -> None:
    environment = {"NETFOLD_ALGORITHM": algorithm}
    values(run_ranks(_collectives_body, world=WORLD, backend="gloo", environment=environment, timeout_s=200.0))


def _backend_body(rank: int) -> None:
    device = _device()
    own = torch.full((1000,), rank + 1.0, device=device)
    gathered = torch.empty(WORLD * 1000, device=device)
    dist.all_gather_into_tensor(gathered, own)
    dist.all_reduce(own)
    assert torch.equal(gathered.cpu(), torch.tensor([1.0, 2.0]).repeat_interleave(1000))
    assert torch.equal(own.cpu(), torch.full((1000,), 3.0))
    if rank == 0:
        dist.send(own, 1)
    else:
        dist.recv(gathered[:1000], 0)
        assert torch.equal(gathered[:1000], own)


@pytest.mark.skipif(not has_backend(), reason="the backend needs a newer torch")
def test_the_backend() -> None:
    values(run_ranks(_backend_body, world=WORLD, timeout_s=200.0))


def _failing_body(rank: int) -> None:
    device = _device()
    group = netfold.torch.connect(timeout_s=10.0)
    tensor = torch.ones(1_000_000, device=device)
    group.all_reduce(tensor)
    if rank == 1:
        os._exit(1)
    kept = tensor.clone()
    with contextlib.suppress(NetfoldError):  # it usually returns before the death is known
        group.all_reduce(tensor)
    module_of(device).synchronize()  # the stream does not wait forever
    assert torch.equal(tensor, kept), "the tensor was touched"
    with pytest.raises(NetfoldError):
        for _ in range(100):
            group.all_reduce(tensor)
            time.sleep(0.1)


@pytest.mark.parametrize("wire", ["fp32", "bfp"])
@pytest.mark.parametrize("algorithm", ["in-network", "direct"])
def test_a_death_is_an_error_of_the_next_call(algorithm: str, wire: str) -> None:
    environment = {"NETFOLD_ALGORITHM": algorithm, "NETFOLD_FORMAT": wire}
    outcomes = run_ranks(_failing_body, world=WORLD, backend="gloo", environment=environment, timeout_s=200.0)
    assert not outcomes[0].error, outcomes[0].error


def _capture_body(rank: int) -> None:
    tensor = torch.ones(10, device=_device())
    with netfold.torch.connect() as group:
        graph = torch.cuda.CUDAGraph()
        with pytest.raises(RuntimeError, match="a CUDA graph cannot contain"), torch.cuda.graph(graph):
            group.all_reduce(tensor)
        group.all_reduce(tensor)
        assert tensor.tolist() == [WORLD] * 10


def test_a_graph_is_refused() -> None:
    values(run_ranks(_capture_body, world=WORLD, backend="gloo", timeout_s=200.0))


WITH_NCCL = """
import os, torch, torch.distributed as dist
dist.init_process_group("nccl")
rank = dist.get_rank()
for count in (1, 1000, 10_000_000):
    tensor = torch.arange(count, device="cuda:0", dtype=torch.float32) % 1000 * (rank + 1)
    dist.all_reduce(tensor)
    assert torch.equal(tensor, torch.arange(count, device="cuda:0", dtype=torch.float32) % 1000 * 3)
print("right")
dist.destroy_process_group()
"""


has_nccl = pytest.mark.skipif(
    accelerator() != "cuda" or bool(torch.version.hip) or not dist.is_nccl_available(),
    reason="NCCL is for NVIDIA's GPUs",
)


def _two_machines(command: list[str], port: int, **settings: str) -> list[str]:
    """Run two ranks of NCCL on one GPU, each of which takes itself for a machine: their NCCL_HOSTID differs. Returns
    their output. `{rank}` in the command is each one's number. Fails if one of them does."""
    ranks: list[subprocess.Popen[str]] = []
    try:
        for rank in range(WORLD):
            own = {**os.environ, "NCCL_SOCKET_IFNAME": "lo", "NCCL_HOSTID": f"machine-{rank}", **settings}
            own |= {"RANK": str(rank), "WORLD_SIZE": str(WORLD), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
            ranks.append(
                subprocess.Popen(
                    [word.replace("{rank}", str(rank)) for word in command],
                    env=own,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                )
            )
        said = [rank.communicate(timeout=200)[0] for rank in ranks]
    finally:
        for each in ranks:
            each.kill()
    assert [each.returncode for each in ranks] == [0] * WORLD, "\n".join(each[-3000:] for each in said)
    return said


@has_nccl
@pytest.mark.parametrize("algorithm", ["collnetchain", "ring"])
def test_nccl_sums_through_the_plugin(algorithm: str, free_port: Callable[[], int]) -> None:
    switch = _core.Switch("127.0.0.1:0")
    settings = {"NETFOLD_SWITCH": switch.address, "NCCL_DEBUG": "INFO", "NCCL_ALGO": f"allreduce:{algorithm}"}
    netfold_nccl = [sys.executable, "-m", "netfold.cli", "nccl", "--"]
    try:
        said = _two_machines([*netfold_nccl, sys.executable, "-c", WITH_NCCL], free_port(), **settings)
        came_bytes = switch.stats()["link"]["received_bytes"]
    finally:
        switch.close()
    print(said[0])
    assert all("right\n" in each for each in said), said[0][-3000:]
    assert all("joined nccl-" in each for each in said), "NCCL did not join the switch"
    sums_bytes = WORLD * 4 * 10_000_000
    assert (came_bytes > sums_bytes) == (algorithm == "collnetchain"), f"{came_bytes} bytes came to the switch"


WITH_HOOKS = """
import torch, torch.distributed as dist, netfold.torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("nccl")
rank = dist.get_rank()
torch.cuda.set_device(0)

def gradients(state=None, hook=None, steps=1):
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(300, 300), nn.Linear(300, 300)).cuda())
    if hook is not None:
        model.register_comm_hook(state, hook)
    for step in range(steps):
        torch.manual_seed(10 * step + rank)
        model(torch.randn(8, 300, device="cuda")).square().sum().backward()
    return torch.cat([each.grad.flatten() for each in model.parameters()])

wanted = gradients()
with netfold.torch.connect() as group:
    assert torch.allclose(gradients(group, netfold.torch.fold_hook), wanted, rtol=1e-4, atol=1e-4)
groups = netfold.torch.node_groups(1)
assert torch.allclose(gradients(groups, netfold.torch.node_fold_hook), wanted, rtol=1e-4, atol=1e-4)
groups.between.close()
with netfold.torch.connect(format="bfp", bfp=(128, 3)) as group:
    wanted = gradients(steps=20)
    plain = (gradients(group, netfold.torch.fold_hook, 20) - wanted).norm()
    state = netfold.torch.ErrorFeedbackState(group)
    kept = (gradients(state, netfold.torch.bfp_error_feedback_hook, 20) - wanted).norm()
    print("with feedback", float(kept), "without", float(plain), "of", float(wanted.norm()))
    assert all(residual.is_cuda for _, residual in state.residuals.values())
    assert kept < plain
print("right")
dist.destroy_process_group()
"""


@has_nccl
def test_the_hooks_of_ddp(free_port: Callable[[], int]) -> None:
    said = _two_machines([sys.executable, "-c", WITH_HOOKS], free_port())
    print(said[0])
    assert all("right\n" in each for each in said), said[0][-3000:]


@has_nccl
@pytest.mark.parametrize("example", ["ddp_hook", "fsdp_hook", "hsdp"])
def test_the_examples_train_on_two_machines(example: str, free_port: Callable[[], int]) -> None:
    if example == "hsdp" and not has_backend():
        pytest.skip("the backend needs a newer torch")
    torchrun = "-m torch.distributed.run --nnodes 2 --node-rank {rank} --nproc-per-node 1 --master-addr 127.0.0.1"
    command = [sys.executable, *torchrun.split(), "--master-port", str(free_port())]
    said = _two_machines([*command, str(ROOT / f"examples/gpus/{example}.py")], 0, REPLICAS="2")
    [line] = [line for line in said[0].splitlines() if line.startswith("loss ")]
    first, last = float(line.split()[1]), float(line.split()[4])
    assert last < first / 10, line
