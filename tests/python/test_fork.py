"""A child of fork() does not end the process group of its parent: a DataLoader's worker is such a child."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from torch_ranks import run_ranks, values

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("no_rank_left")]
CHILD_S = 20.0


def _child(how: str, note: Path) -> None:
    """Ends as a program ends: with atexit, and with the destructors of all objects."""
    if how == "destroys":
        dist.destroy_process_group()
    elif how == "all-reduces":
        try:
            dist.all_reduce(torch.ones(10))
        except RuntimeError as error:
            note.write_text(str(error))
    ctypes.pythonapi.Py_Exit(7)


def _forking_body(rank: int, how: str, folder: str) -> tuple[int, str, list[float]]:
    note = Path(folder, f"rank{rank}")
    tensor = torch.ones(100_000)
    dist.all_reduce(tensor)
    child = os.fork()
    if child == 0:
        try:
            _child(how, note)
        finally:
            os._exit(1)
    deadline = time.monotonic() + CHILD_S
    status = -1
    while time.monotonic() < deadline:
        ended, waited = os.waitpid(child, os.WNOHANG)
        if ended:
            status = os.waitstatus_to_exitcode(waited)
            break
        time.sleep(0.02)
    else:
        os.kill(child, 9)
        os.waitpid(child, 0)
    sums = []
    for _ in range(3):  # what the child did must not fail these
        time.sleep(0.1)
        dist.all_reduce(tensor.fill_(1.0))
        sums.append(float(tensor[-1]))
    return status, note.read_text() if note.exists() else "", sums


CASES = [
    pytest.param("thread", "ring", "exits", id="thread-ring"),
    pytest.param("caller", "direct", "exits", id="caller-direct"),
    pytest.param("thread", "in-network", "exits", id="thread-switch"),
    pytest.param("agent", "ring", "destroys", id="agent-ring"),
    pytest.param("thread", "in-network", "destroys", id="switch-destroyed"),
    pytest.param("thread", "ring", "all-reduces", id="all-reduce"),
]


@pytest.mark.parametrize(("engine", "algorithm", "how"), CASES)
def test_a_forked_child_leaves_the_group_to_its_parent(engine: str, algorithm: str, how: str, tmp_path: Path) -> None:
    environment = {"NETFOLD_ENGINE": engine, "NETFOLD_ALGORITHM": algorithm, "NETFOLD_TIMEOUT_S": "20"}
    for status, said, sums in values(run_ranks(_forking_body, how, str(tmp_path), environment=environment)):
        assert status == 7, "the child hung (-1), raised (1) or crashed"
        assert sums == [2.0, 2.0, 2.0]
        if how == "all-reduces":
            assert "was forked" in said


def _dies_before_its_child(rank: int, folder: str) -> str:
    heard = Path(folder, "heard")
    tensor = torch.ones(100_000)
    dist.all_reduce(tensor)
    if rank == 1:
        if os.fork() == 0:
            deadline = time.monotonic() + CHILD_S
            while not heard.exists() and time.monotonic() < deadline:
                time.sleep(0.02)
            os._exit(0)
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        dist.all_reduce(tensor)
    except RuntimeError as error:
        return str(error)
    finally:
        heard.touch()
    return ""


@pytest.mark.parametrize("algorithm", ["ring", "direct", "in-network"])
def test_the_death_of_a_rank_with_a_living_child_is_noticed_at_once(algorithm: str, tmp_path: Path) -> None:
    environment = {"NETFOLD_ALGORITHM": algorithm, "NETFOLD_TIMEOUT_S": "8"}
    outcomes = run_ranks(_dies_before_its_child, str(tmp_path), environment=environment)
    error = values(outcomes[:1])[0]
    assert "rank 1" in error
    assert not any(late in error for late in ("within", "silent", "for 8 s")), error
