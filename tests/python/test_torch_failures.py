"""If a rank or the switch dies, the error of every surviving rank names it within the timeout, and nothing is left."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from netfold import _core
from netfold.errors import NetfoldError
from netfold.torch.calls import Call
from netfold.torch.completion import CallerDriven, CompletionThread, Fold, Folds
from netfold.torch.work import FoldWork
from torch_ranks import run_ranks, values

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("no_rank_left")]
TIMEOUT_S = 4.0
SLACK_S = 5.0  # of a busy machine

SWITCH = """
import signal, sys
from netfold import _core
switch = _core.Switch(f"127.0.0.1:{sys.argv[1]}")
print("up", flush=True)
signal.pause()
"""


class SwitchProcess:
    """A switch that can be killed."""

    def __init__(self, port: int) -> None:
        self.address = f"127.0.0.1:{port}"
        self._process = subprocess.Popen(
            [sys.executable, "-c", SWITCH, str(port)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "up\n"
        self.pid = self._process.pid

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture
def switch_at() -> Iterator[Callable[[int], SwitchProcess]]:
    started: list[SwitchProcess] = []

    def start(port: int) -> SwitchProcess:
        started.append(SwitchProcess(port))
        return started[-1]

    yield start
    for process in started:
        process.kill()


def _fold_until_it_fails(count: int = 2_000_000) -> tuple[str, float]:
    """All-reduce until an error comes, for little more than TIMEOUT_S at most; returns the error and its time."""
    tensors = [torch.ones(count) for _ in range(4)]
    deadline = time.monotonic() + 10 * TIMEOUT_S
    try:
        while time.monotonic() < deadline:
            works = [dist.all_reduce(tensor.fill_(1.0), async_op=True) for tensor in tensors]
            for work in works:
                work.wait()
    except RuntimeError as error:
        return str(error), time.monotonic()
    return "no error came", time.monotonic()


def _a_rank_stops_body(rank: int, kill: int, note: str) -> tuple[str, float, str]:
    dist.all_reduce(torch.ones(10))
    if rank == 2:
        for _ in range(4):
            dist.all_reduce(torch.ones(2_000_000), async_op=True)
        Path(note).write_text(str(time.monotonic()))
        os.kill(os.getpid(), kill)
        time.sleep(60)
    error, at = _fold_until_it_fails()
    try:
        dist.all_reduce(torch.ones(10))
        later = "no error came"
    except RuntimeError as again:
        later = str(again)
    assert time.monotonic() - at < 10, "a failed job fails later all-reduces at once"
    return error, at, later


KILLED, SILENT = int(signal.SIGKILL), int(signal.SIGSTOP)


@pytest.mark.parametrize(
    ("algorithm", "kill"),
    [
        pytest.param("in-network", KILLED, id="in-network-killed"),
        pytest.param("in-network", SILENT, id="in-network-silent"),
        pytest.param("ring", KILLED, id="ring-killed"),
        pytest.param("ring", SILENT, id="ring-silent"),
        pytest.param("halving-doubling", KILLED, id="halving-doubling-killed"),
        pytest.param("halving-doubling", SILENT, id="halving-doubling-silent"),
    ],
)
def test_a_rank_that_dies_is_named(
    algorithm: str, kill: int, free_port: Callable[[], int], switch_at: Callable, tmp_path: Path
) -> None:
    environment = {"NETFOLD_TIMEOUT_S": str(TIMEOUT_S), "NETFOLD_ALGORITHM": algorithm}
    if algorithm == "in-network":
        environment["NETFOLD_SWITCH"] = switch_at(free_port()).address
    note = tmp_path / "died-at"
    outcomes = run_ranks(_a_rank_stops_body, kill, str(note), world=4, environment=environment, timeout_s=30)
    died_at = float(note.read_text())
    for rank in (0, 1, 3):
        error, at, later = values([outcomes[rank]])[0]
        assert "rank 2" in error
        assert "rank 2" in later
        assert at - died_at < TIMEOUT_S + SLACK_S


def _ddp_body(rank: int) -> list[str]:
    model = DistributedDataParallel(nn.Linear(500, 500))
    errors = []
    for step in range(8):
        if rank == 1 and step == 4:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            model(torch.ones(2, 500)).sum().backward()
        except RuntimeError as error:
            errors.append(str(error))
    dist.destroy_process_group()
    return errors


@pytest.mark.parametrize("algorithm", ["in-network", "ring"])
def test_ddp_raises_and_survives(algorithm: str) -> None:
    """Every later step raises the same reason: DDP itself stays usable."""
    environment = {"NETFOLD_TIMEOUT_S": str(TIMEOUT_S), "NETFOLD_ALGORITHM": algorithm}
    outcomes = run_ranks(_ddp_body, world=3, environment=environment)
    for rank in (0, 2):
        errors = values([outcomes[rank]])[0]
        assert len(errors) == 4
        assert all("rank 1" in error for error in errors)


def _switch_dies_body(rank: int, pid: int) -> tuple[str, float]:
    dist.all_reduce(torch.ones(10))
    dist.barrier()  # every rank has its sum
    if rank == 0:
        os.kill(pid, signal.SIGKILL)
    killed_at = time.monotonic()
    error, at = _fold_until_it_fails()
    return error, at - killed_at


def _rank_0_dies_body(rank: int) -> tuple[str, float]:
    dist.all_reduce(torch.ones(10))
    dist.barrier()
    if rank == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return _fold_until_it_fails()


def test_an_embedded_switch_that_dies_is_said_to_be_rank_0s() -> None:
    outcomes = run_ranks(_rank_0_dies_body, world=2, environment={"NETFOLD_TIMEOUT_S": str(TIMEOUT_S)})
    error, _ = values([outcomes[1]])[0]
    assert "in rank 0's process" in error


def _one_fold_body(rank: int) -> float:
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    return tensor.item()


def test_a_switch_that_dies_is_named_and_the_next_job_works(free_port: Callable[[], int], switch_at: Callable) -> None:
    port = free_port()
    switch = switch_at(port)
    environment = {"NETFOLD_TIMEOUT_S": str(TIMEOUT_S), "NETFOLD_SWITCH": switch.address}
    for error, after_s in values(run_ranks(_switch_dies_body, switch.pid, world=3, environment=environment)):
        assert switch.address in error
        assert after_s < TIMEOUT_S + SLACK_S
    switch.kill()
    switch_at(port)
    assert values(run_ranks(_one_fold_body, world=3, environment=environment)) == [3.0] * 3


def _joins_in_vain_body(rank: int, meeting: str) -> tuple[str, float]:
    begun = time.monotonic()
    with pytest.raises(RuntimeError) as refusal:
        dist.init_process_group("netfold", init_method=f"file://{meeting}", rank=rank, world_size=2)
    return str(refusal.value), time.monotonic() - begun


def test_an_unreachable_switch_is_named(free_port: Callable[[], int]) -> None:
    address = f"127.0.0.1:{free_port()}"
    environment = {"NETFOLD_SWITCH": address, "NETFOLD_TIMEOUT_S": str(TIMEOUT_S)}
    for error, after_s in values(run_ranks(_joins_in_vain_body, environment=environment, joins=False)):
        assert address in error
        assert after_s < TIMEOUT_S + SLACK_S


def test_reaching_the_switch_has_a_bound_of_its_own(free_port: Callable[[], int]) -> None:
    address = f"127.0.0.1:{free_port()}"
    environment = {"NETFOLD_SWITCH": address, "NETFOLD_TIMEOUT_S": "60", "NETFOLD_CONNECT_TIMEOUT_S": "1.5"}
    for error, after_s in values(run_ranks(_joins_in_vain_body, environment=environment, joins=False)):
        assert address in error
        assert 1.0 < after_s < 1.5 + SLACK_S


def test_a_wrong_secret_is_refused() -> None:
    switch = _core.Switch("127.0.0.1:0", secret="right")
    environment = {"NETFOLD_SWITCH": switch.address, "NETFOLD_TIMEOUT_S": "3", "NETFOLD_SECRET": "wrong"}
    for error, _ in values(run_ranks(_joins_in_vain_body, environment=environment, joins=False)):
        assert "secret" in error
    switch.close()


def test_an_embedded_switch_that_cannot_bind_is_told_to_all() -> None:
    environment = {"NETFOLD_BIND": "192.0.2.77:0", "NETFOLD_TIMEOUT_S": "3"}
    for error, _ in values(run_ranks(_joins_in_vain_body, environment=environment, joins=False)):
        assert "192.0.2.77" in error


class BrokenEvent:
    """The event of a kernel that failed."""

    def synchronize(self) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")


def _broken_device_body(rank: int) -> list[str]:
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    staging = backend._member.staging
    stage = staging.stage
    if rank == 1:
        staging.stage = lambda tensors: replace(stage(tensors), ready=BrokenEvent())
    errors = []
    for _ in range(2):
        with pytest.raises(RuntimeError) as failure:
            dist.all_reduce(torch.ones(10))
        errors.append(str(failure.value))
        staging.stage = stage
    return errors


def test_a_device_that_fails_ends_the_job_for_all() -> None:
    """Its fold is missing on one rank: no later fold may match another rank's in its place."""
    begun = time.monotonic()
    other, own = values(run_ranks(_broken_device_body, environment={"NETFOLD_TIMEOUT_S": "30"}))
    assert all("illegal memory access" in error for error in other + own)
    assert all("rank 1" in error for error in other)
    assert time.monotonic() - begun < 20


def _no_memory_body(rank: int) -> tuple[str, bool]:
    tensor = torch.full((2**25,), float(rank))  # 128 MiB, in place: as many bytes are saved before they are overwritten
    dist.all_reduce(torch.ones(4))
    if rank == 1:
        mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (mapped + 2**26, resource.RLIM_INFINITY))
    try:
        dist.all_reduce(tensor)
        error = ""
    except RuntimeError as raised:
        error = str(raised)
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    return error, bool((tensor == rank).all())


@pytest.mark.parametrize("algorithm", ["in-network", "ring", "direct"])
def test_refused_memory_is_an_error_of_all_ranks(algorithm: str) -> None:
    outcomes = values(run_ranks(_no_memory_body, environment={"NETFOLD_ALGORITHM": algorithm}))
    for error, is_as_before in outcomes:
        assert "rank 1 got no more memory from its system" in error
        assert is_as_before


def test_a_future_that_cannot_be_completed_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    work = FoldWork([], lambda: None)
    monkeypatch.setattr(work, "_base", torch.futures.Future())
    work._base.set_result([])  # a second result raises, as a broken device does
    work.complete([])
    assert work.is_completed()
    with pytest.raises(RuntimeError):
        work.wait()


def test_what_the_client_refuses_arrives_through_the_work() -> None:
    class Client:
        def all_reduce(self, *_: object) -> int:
            raise TypeError("incompatible function arguments")

        def next_completion(self, timeout_s: float) -> None:
            time.sleep(0.01)

        def close(self, reason: str) -> None: ...

        def stats(self) -> dict[str, int]:
            return {}

    folds = CompletionThread(Client(), "test")
    work = FoldWork([], folds.step_aside)
    folds.submit(Fold(Call((), lambda client, _awaited: client.all_reduce(1, 1, 1, "fp32", "fp32"), list), work))
    with pytest.raises(TypeError, match="incompatible"):
        work.wait()
    folds.close()


@pytest.mark.parametrize(
    "kind", [CallerDriven, lambda client: CompletionThread(client, "test")], ids=["caller", "thread"]
)
def test_a_sum_that_was_done_before_closing_does_not_fail(kind: Callable[[object], Folds]) -> None:
    class Client:
        """It has done the first fold and not the second, and was not asked for either."""

        tickets = 0
        closed = threading.Event()

        def all_reduce(self, *_: object) -> int:
            self.tickets += 1
            return self.tickets

        def next_completion(self, timeout_s: float) -> None:
            self.closed.wait(timeout_s)

        def wait(self, ticket: int, timeout_s: float) -> bool:
            if ticket == 2:
                raise NetfoldError("closed", "peer_failed", -1)
            return True

        def close(self, reason: str) -> None:
            self.closed.set()

        def stats(self) -> dict[str, int]:
            return {}

    folds = kind(Client())
    works = [folds.new_work([]), folds.new_work([])]
    for work in works:
        folds.submit(Fold(Call((), lambda client, _awaited: client.all_reduce(1, 1, 1, "fp32", "fp32"), list), work))
    folds.close()
    assert works[0].wait()
    with pytest.raises(RuntimeError, match="shut down with this collective in flight"):
        works[1].wait()


def _destroys_with_work_in_flight(rank: int) -> tuple[bool, float]:
    tensor = torch.full((1 << 20,), float(rank + 1))
    gathered = [torch.zeros(1000, dtype=torch.int64) for _ in range(2)]
    work = dist.all_reduce(tensor, async_op=True)
    other = dist.all_gather(gathered, torch.full((1000,), rank), async_op=True)
    dist.destroy_process_group()
    return work.wait() and other.wait() and bool((gathered[1] == 1).all()), tensor[-1].item()


@pytest.mark.parametrize(("algorithm", "engine"), [("ring", "thread"), ("ring", "caller"), ("in-network", "thread")])
def test_collectives_in_flight_end_before_their_group(algorithm: str, engine: str) -> None:
    environment = {"NETFOLD_ALGORITHM": algorithm, "NETFOLD_ENGINE": engine}
    assert values(run_ranks(_destroys_with_work_in_flight, environment=environment)) == [(True, 3.0)] * 2


SCRIPT = """
import torch, torch.distributed as dist
dist.init_process_group("netfold")
tensor = torch.ones(100_000)
works = [dist.all_reduce(tensor, async_op=True) for _ in range(1)]
works[0].wait()
assert tensor[0] == dist.get_world_size()
"""


@pytest.mark.parametrize("algorithm", ["in-network", "ring"])
def test_a_script_that_never_says_goodbye_ends_cleanly(tmp_path: Path, algorithm: str) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    run = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script)],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", "NETFOLD_ALGORITHM": algorithm},
    )
    assert run.returncode == 0, run.stderr
    assert "leaked" not in run.stderr
    assert "Traceback" not in run.stderr


RAISES = """
import os, time
import torch, torch.distributed as dist
meeting, rank = "file://" + os.environ["MEETING"], int(os.environ["RANK"])
dist.init_process_group("netfold", init_method=meeting, rank=rank, world_size=2)
dist.all_reduce(torch.ones(10))
if dist.get_rank() == 1:
    raise ValueError("the data ran out")
dist.all_reduce(torch.ones(10))
"""


@pytest.mark.parametrize("algorithm", ["in-network", "ring"])
def test_a_script_that_ends_by_an_exception_tells_the_others(tmp_path: Path, algorithm: str) -> None:
    script = tmp_path / "train.py"
    script.write_text(RAISES)
    environment = {**os.environ, "MEETING": str(tmp_path / "store"), "NETFOLD_ALGORITHM": algorithm}
    ranks = [
        subprocess.Popen(
            [sys.executable, str(script)], stderr=subprocess.PIPE, text=True, env={**environment, "RANK": str(rank)}
        )
        for rank in range(2)
    ]
    errors = [rank.communicate(timeout=60)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [1, 1]
    assert "rank 1 ended by ValueError: the data ran out" in errors[0]
