"""Other releases of PyTorch than the one of this environment: the backend with the oldest one that it supports.

Each is installed into an environment of its own, without its dependencies. The packages of this environment serve it
too. Among them are the libraries of CUDA, whose names are the same in all releases for one CUDA.
NETFOLD_TORCH_RELEASES=2.14.0,2.14.1 names others.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

from netfold.torch_versions import OLDEST
from switch_programs import Running, start

__all__ = ["start"]  # a fixture

RELEASES = os.environ.get("NETFOLD_TORCH_RELEASES", ".".join(map(str, (*OLDEST, 0)))).split(",")
MORE = ("nvidia-curand>=10,<11",)  # what torch 2.14 needs beside what 2.15 does
TIMEOUT_S = 300
RANK = """
import sys
import torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.distributed.fsdp import fully_shard

rank = int(sys.argv[2])
dist.init_process_group("netfold", init_method=f"file://{sys.argv[1]}", rank=rank, world_size=2)
total = torch.arange(100_000, dtype=torch.float32) * (rank + 1)
dist.all_reduce(total)
assert torch.equal(total, torch.arange(100_000, dtype=torch.float32) * 3)
parts = [torch.zeros(3, dtype=torch.int64) for _ in range(2)]
dist.all_gather(parts, torch.full((3,), rank))
assert [part.tolist() for part in parts] == [[0] * 3, [1] * 3]
said = [None, None]
dist.all_gather_object(said, f"rank {rank}")
assert said == ["rank 0", "rank 1"]
if rank == 0:
    dist.send(torch.ones(2), 1)
else:
    received = torch.zeros(2)
    dist.recv(received, 0)
    assert received.tolist() == [1.0, 1.0]
dist.barrier()
for wrap in (DistributedDataParallel, fully_shard):
    torch.manual_seed(0)
    model = wrap(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)))
    model(torch.full((4, 8), rank + 1.0)).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
dist.destroy_process_group()
print(torch.__version__)
"""


@pytest.fixture(scope="module", params=RELEASES)
def environment(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A release, and the Python of an environment that has it before all packages of this environment."""
    folder = tmp_path_factory.mktemp("torch") / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True, timeout=60)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check", "install", "-q"]
    pip += ["--no-deps", "--no-compile", f"torch=={request.param}", *MORE]
    done = subprocess.run(pip, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr
    [site] = folder.glob("lib/python*/site-packages")
    ours = sysconfig.get_path("purelib")
    (site / "packages.pth").write_text(f"import site; site.addsitedir({ours!r})\n")
    return request.param, python


def trained(python: Path, folder: Path, **settings: str) -> set[str]:
    """Runs two ranks; returns the versions of torch that they name."""
    places = (python.parents[1] / "lib", Path(sysconfig.get_path("purelib")))
    cuda = [found for place in places for found in sorted(place.rglob("nvidia/*/lib"))]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NETFOLD_")}
    environment |= {"LD_LIBRARY_PATH": ":".join(map(str, cuda)), "OMP_NUM_THREADS": "1", "NETFOLD_TIMEOUT_S": "60"}
    ranks = [
        subprocess.Popen(
            [python, "-c", RANK, folder / "store", str(rank)],
            env={**environment, **settings},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    said = [rank.communicate(timeout=TIMEOUT_S) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], said
    return {output.strip().partition("+")[0] for output, _ in said}


@pytest.mark.timeout(5 * TIMEOUT_S)
def test_the_backend_trains(environment: tuple[str, Path], start: Callable[..., Running], tmp_path: Path) -> None:
    release, python = environment
    for name, settings in (("alone", {}), ("switch", {"NETFOLD_SWITCH": start().address})):
        (tmp_path / name).mkdir()
        assert trained(python, tmp_path / name, **settings) == {release}
