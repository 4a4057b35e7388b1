"""The examples of trainers: each trains on two ranks with Netfold."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "trainers"


STARTS_ITS_RANKS = ("lightning", "ray")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("trainer", ["lightning", "accelerate", "transformers", "ray", "deepspeed"])
def test_it_trains_with_netfold(trainer: str) -> None:
    pytest.importorskip(trainer)
    starter = [sys.executable]
    if trainer not in STARTS_ITS_RANKS:
        starter += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    environment = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": "", "NETFOLD_LOG": "info"}
    environment |= {"RAY_raylet_start_wait_time_s": "300"}  # on a busy machine Ray's own 30 s are not enough
    done = subprocess.run(
        [*starter, str(EXAMPLES / f"with_{trainer}.py")],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=500,  # DeepSpeed compiles a part of its own when it first runs on a machine without a GPU
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "trained by netfold on 2 workers" in done.stdout
    assert "netfold: 2 ranks fold" in done.stdout + done.stderr  # Ray prints what its workers say
