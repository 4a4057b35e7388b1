"""`torchrun ... -m netfold.bench`: all-reduces on one's own machines."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys

import pytest
import torch

from netfold.bench import report
from netfold.bench.__main__ import sizes_of
from netfold.bench.rounds import Entry


def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m"]
    own = {"OMP_NUM_THREADS": "1", "NETFOLD_BIND": "127.0.0.1", **environment}
    return subprocess.run(
        [*command, "netfold.bench", *words],
        env={**os.environ, **own},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_systems_are_measured_and_one_that_cannot_start_is_named() -> None:
    environment = {"NETFOLD_SWITCH": "127.0.0.1:9", "NETFOLD_CONNECT_TIMEOUT_S": "0.5"}
    words = (
        "--size-bytes",
        "1000,1MiB",
        "--rounds",
        "2",
        "--systems",
        "netfold ring,netfold in-network,gloo",
        "--json",
    )
    done = run(*words, **environment)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["parameters"] == {"world": 2, "device": "cpu", "rounds": 2}
    failed, *measured = told["results"]
    assert failed["system"] == "netfold in-network"
    assert "127.0.0.1:9" in failed["error"]
    assert [(one["system"], one["size_bytes"]) for one in measured] == [
        (system, size) for size in (1000, 1 << 20) for system in ("netfold ring", "gloo")
    ]
    for one in measured:
        assert len(one["time_s"]) == 2
        assert one["bus_gbit_s"] == pytest.approx(one["size_bytes"] * 8 / one["time_s_median"] / 1e9)


def test_a_system_that_does_not_exist() -> None:
    done = run("--systems", "netfold carrier-pigeon")
    assert done.returncode != 0
    assert "--systems knows netfold auto" in done.stderr


@pytest.mark.parametrize("text", ["0", "1 kB", "", "4KiB,-1"])
def test_sizes_that_are_none(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="takes sizes such as"):
        sizes_of(text)


def test_the_table() -> None:
    entries = [
        Entry(4096, "netfold auto", [2e-4, 1e-4, 3e-4]),
        Entry(4096, "gloo", [4e-4]),
        Entry(1 << 20, "netfold auto", [2.5]),
        Entry(0, "nccl", error="rank 1: no such interface"),
    ]
    lines = report.table(entries, 4, torch.device("cpu")).splitlines()
    assert lines[2].split() == ["size", "system", "all-reduce", "bus", "Gbit/s", "against", "gloo"]
    assert lines[3].split() == ["4", "KiB", "netfold", "auto", "200", "us", "0.246", "2.00x"]
    assert lines[4].split() == ["gloo", "400", "us", "0.123"]
    assert lines[5].split() == ["1", "MiB", "netfold", "auto", "2.5", "s", "0.00503"]
    assert lines[-1] == "nccl was not measured: rank 1: no such interface"
