"""Properties that only a GPU can show: its streams wait for the network, tensors arrive whole, NCCL uses the plugin.

Two ranks share one GPU."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

import netfold.torch
from netfold import _core, native
from netfold.cli import nccl
from netfold.errors import NetfoldError
from netfold.torch.device_rates import measure
from netfold.torch.devices import accelerator, module_of
from netfold.torch.stream_memory import stream_memory
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


def _sums_body(rank: int, wire: str, average: bool) -> float:
    """Returns how long the calls took while the GPU was busy, in seconds."""
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
        first = torch.ones(10_000_000, device=device)
        group.all_reduce(first)
        module.synchronize()
        stream = module.current_stream()
        begun = time.monotonic()
        module._sleep(BUSY_CYCLES)
        first.fill_(rank + 1.0)
        group.all_reduce(first)
        doubled = first * 2
        took_s = time.monotonic() - begun
        assert module.current_stream() == stream
        module.synchronize()
        assert time.monotonic() - begun > 3 * took_s, "the GPU was not busy"
        assert torch.equal(doubled, torch.full_like(doubled, 6.0))
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


def _collectives_body(rank: int) -> None:
    """The backend's other collectives, in the order of the streams."""
    device = _device()
    own = torch.full((1000,), rank + 1.0, device=device)
    gathered = torch.empty(WORLD * 1000, device=device)
    dist.all_gather_into_tensor(gathered, own)
    part = torch.empty(500, device=device)
    dist.reduce_scatter_tensor(part, own)
    dist.broadcast(own, 1)
    assert torch.equal(gathered.cpu(), torch.tensor([1.0, 2.0]).repeat_interleave(1000))
    assert torch.equal(part.cpu(), torch.full((500,), 3.0))
    assert torch.equal(own.cpu(), torch.full((1000,), 2.0))
    if rank == 0:
        dist.send(own, 1)
    else:
        dist.recv(gathered[:1000], 0)
        assert torch.equal(gathered[:1000].cpu(), torch.full((1000,), 2.0))


def test_other_collectives() -> None:
    values(run_ranks(_collectives_body, world=WORLD, timeout_s=200.0))


def _failing_body(rank: int) -> None:
    device = _device()
    tensor = torch.ones(1_000_000, device=device)
    dist.all_reduce(tensor)
    if rank == 1:
        os._exit(1)
    kept = tensor.clone()
    dist.all_reduce(tensor)  # may return before the death is known
    module_of(device).synchronize()  # the stream does not wait forever
    assert torch.equal(tensor, kept), "the tensor was touched"
    with pytest.raises(NetfoldError):
        for _ in range(100):
            dist.all_reduce(tensor)
            time.sleep(0.1)


def test_a_death_is_an_error_of_the_next_call() -> None:
    outcomes = run_ranks(_failing_body, world=WORLD, timeout_s=200.0)
    assert not outcomes[0].error, outcomes[0].error


def _capture_body(rank: int) -> None:
    tensor = torch.ones(10, device=_device())
    graph = torch.cuda.CUDAGraph()
    with pytest.raises(RuntimeError, match="a CUDA graph cannot contain"), torch.cuda.graph(graph):
        dist.all_reduce(tensor)


def test_a_graph_is_refused() -> None:
    values(run_ranks(_capture_body, world=WORLD, timeout_s=200.0))


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


@pytest.mark.skipif(accelerator() != "cuda" or bool(torch.version.hip), reason="NCCL is for NVIDIA's GPUs")
def test_nccl_sums_in_the_switch(tmp_path: Path) -> None:
    """Two ranks on one GPU are two machines to NCCL if their NCCL_HOSTID differs."""
    plugin = native.find(native.NCCL_PLUGIN)
    assert plugin is not None
    switch = _core.Switch("127.0.0.1:0")
    ranks: list[subprocess.Popen[str]] = []
    try:
        for rank in range(WORLD):
            own: dict[str, Any] = {
                **os.environ,
                "NETFOLD_SWITCH": switch.address,
                "NCCL_SOCKET_IFNAME": "lo",
                "NCCL_HOSTID": f"machine-{rank}",
                "NCCL_DEBUG": "INFO",
                "NCCL_ALGO": "allreduce:collnetchain",
                "RANK": str(rank),
                "WORLD_SIZE": str(WORLD),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": "29517",
            }
            own |= nccl.variables(plugin.parent, own)
            ranks.append(
                subprocess.Popen(
                    [sys.executable, "-c", WITH_NCCL],
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
        switch.close()
    (tmp_path / "nccl.log").write_text("\n".join(said))
    assert all("right\n" in each for each in said), said[0][-3000:]
    assert all("joined nccl-" in each for each in said), "NCCL did not sum in the switch"
