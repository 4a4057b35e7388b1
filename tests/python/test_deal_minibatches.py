"""The example of a host that deals out minibatches runs, and its workers learn."""

from __future__ import annotations

import re
import subprocess
import sys

from netfold import _core
from repository import ROOT

EXAMPLE = ROOT / "examples" / "deal_minibatches.py"


def test_the_host_hears_of_every_sum_and_the_workers_learn() -> None:
    switch = _core.Switch("127.0.0.1:0")
    try:
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "3"]
        words = [*torchrun, str(EXAMPLE), switch.address]
        done = subprocess.run(words, capture_output=True, text=True, timeout=100, check=False)
    finally:
        switch.close()
    assert done.returncode == 0, done.stderr
    assert "host: 60 tensors summed" in done.stdout
    accuracy = re.search(r"accuracy ([0-9.]+)%", done.stdout)
    assert accuracy and float(accuracy[1]) > 85, done.stdout
