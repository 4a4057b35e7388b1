"""The three placements of the engine: equal bits from each, agents that die or are stopped, and no leftovers."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from netfold import _core, native
from netfold.agent import PrivateAgent
from netfold.errors import NetfoldError
from netfold.torch import Options
from netfold.torch.backend import backend_of
from torch_ranks import run_ranks, values

pytestmark = [pytest.mark.timeout(180), pytest.mark.usefixtures("no_rank_left", "no_agent_left")]
TIMEOUT_S = 5.0
SLACK_S = 6.0  # of busy cores: each rank is waited for, and writes when it has the error
SEVERAL_PARTS = (1 << 20) + 12_345  # elements: an agent folds 2^19 at a time


class AgentProcess:
    """`netfold agent` at a socket of its own."""

    def __init__(self, *arguments: str) -> None:
        self.socket = f"@netfold-test-{secrets.token_hex(8)}"
        program = native.find(native.AGENT)
        assert program is not None
        self.process = subprocess.Popen(
            [program, "--socket", self.socket, *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == f"listening at {self.socket}\n"
        self.pid = self.process.pid
        self.environment = {
            "NETFOLD_ENGINE": "agent",
            "NETFOLD_AGENT": self.socket,
            "NETFOLD_ALGORITHM": "ring",
            "NETFOLD_TIMEOUT_S": str(TIMEOUT_S),
        }

    def end(self) -> None:
        self.process.send_signal(signal.SIGCONT)
        self.process.terminate()
        self.process.communicate(timeout=30)


@pytest.fixture
def agent() -> Iterator[AgentProcess]:
    started = AgentProcess()
    yield started
    started.end()


def _abandoned_agents() -> list[list[str]]:
    """Command lines of agents whose process has ended."""
    found = []
    for process in psutil.process_iter(["name", "cmdline"]):
        words = process.info["cmdline"] or []
        if process.info["name"] == Path(native.AGENT).name and "--end-with" in words:
            owner = int(words[words.index("--end-with") + 1])
            if not psutil.pid_exists(owner):
                found.append(words)
    return found


@pytest.fixture
def no_agent_left() -> Iterator[None]:
    yield
    deadline = time.monotonic() + 15.0
    while left := _abandoned_agents():
        assert time.monotonic() < deadline, f"left behind: {left}"
        time.sleep(0.05)


def _numbers(rank: int, count: int) -> torch.Tensor:
    return torch.randn(count, generator=torch.Generator().manual_seed(rank))


def _checksums(rank: int, options: Options) -> list[int]:
    """Checksums of the results of all-reduces in one group."""
    group = dist.new_group(pg_options=options)
    tensors = [_numbers(rank, count) for count in (1, 1000, SEVERAL_PARTS)]
    tensors += [_numbers(rank, 10_001).half(), _numbers(rank, 10_001).bfloat16()]
    for work in [dist.all_reduce(tensor, group=group, async_op=True) for tensor in tensors]:
        work.wait()
    dist.all_reduce(tensors[1], op=dist.ReduceOp.AVG, group=group)
    return [zlib.crc32(tensor.view(torch.uint8).numpy().tobytes()) for tensor in tensors]


PLACES = [("ring", "thread"), ("ring", "agent"), ("ring", "caller"), ("in-network", "thread"), ("in-network", "agent")]


def _same_bits_body(rank: int, wire: str) -> dict[str, list[list[int]]]:
    """Checksums by algorithm, of every placement."""
    found: dict[str, list[list[int]]] = {}
    for algorithm, engine in PLACES:
        options = Options(algorithm=algorithm, engine=engine, format=wire)
        found.setdefault(algorithm, []).append(_checksums(rank, options))
    return found


@pytest.mark.parametrize("wire", ["fp32", "fp16", "bf16", "bfp"])
def test_every_placement_gives_the_same_bits(wire: str) -> None:
    environment = {"NETFOLD_ALGORITHM": "ring"}
    by_rank = values(run_ranks(_same_bits_body, wire, world=4, environment=environment, timeout_s=120))
    for algorithm in by_rank[0]:
        different = {str(checksums) for found in by_rank for checksums in found[algorithm]}
        assert len(different) == 1, algorithm


def _crc(tensor: torch.Tensor) -> int:
    return zlib.crc32(tensor.numpy().tobytes())


def _copies(rank: int, group: dist.ProcessGroup) -> list[int]:
    """Checksums of the results of all-gathers and broadcasts, with one slot of the undo log and with several."""
    found = []
    for count in (1, 1000, SEVERAL_PARTS):
        own = _numbers(rank, count).double() if count == 1000 else _numbers(rank, count)
        whole, parts = torch.empty(4 * count, dtype=own.dtype), [torch.empty_like(own) for _ in range(4)]
        dist.all_gather_into_tensor(whole, own, group=group)
        dist.all_gather(parts, own, group=group)
        in_place = torch.zeros_like(whole)
        in_place.view(4, count)[rank] = own
        dist.all_gather_into_tensor(in_place, in_place.view(4, count)[rank], group=group)
        dist.broadcast(own, 2, group=group)
        found += [_crc(whole), _crc(torch.cat(parts)), _crc(in_place), _crc(own)]
    return found


def _scattered(rank: int, group: dist.ProcessGroup) -> list[int]:
    """Checksums of the results of reduce-scatters."""
    found = []
    for count in (1, 1000, SEVERAL_PARTS // 2):
        numbers = _numbers(rank, 4 * count)
        for dtype in (torch.float32, torch.bfloat16):
            whole, part = numbers.to(dtype), torch.empty(count, dtype=dtype)
            dist.reduce_scatter_tensor(part, whole, group=group)
            found.append(_crc(part.float()))
            dist.reduce_scatter(part, list(whole.view(4, count).unbind()), op=dist.ReduceOp.AVG, group=group)
            found.append(_crc(part.float()))
            assert torch.equal(whole, numbers.to(dtype)), "the input was written to"
    return found


def _moved_bytes(group: dist.ProcessGroup) -> list[int]:
    """The bytes that this rank sent through Netfold for each collective."""
    moved = []
    tensor = torch.ones(40_000)
    for call in (
        lambda: dist.reduce_scatter_tensor(torch.empty(10_000), tensor, group=group),
        lambda: dist.all_gather_into_tensor(tensor, torch.ones(10_000), group=group),
        lambda: dist.broadcast(tensor, 0, group=group),
    ):
        before = backend_of(group).stats()["shm_sent_bytes"]
        call()
        dist.all_reduce(torch.ones(1), group=group)  # the counters are noted when something is finished
        moved.append(backend_of(group).stats()["shm_sent_bytes"] - before)
    return moved


def _collectives_body(rank: int, wire: str) -> tuple[list[list[int]], list[list[int]], list[int]]:
    gloo = dist.new_group(backend="gloo")
    groups = [dist.new_group(pg_options=Options(engine=engine, format=wire)) for engine in ("thread", "agent")]
    copies = [_copies(rank, group) for group in (gloo, *groups)]
    return copies, [_scattered(rank, group) for group in groups], _moved_bytes(groups[1])


@pytest.mark.parametrize("wire", ["fp32", "bfp"])
def test_other_collectives_have_the_bits_of_gloo_and_of_a_thread(wire: str) -> None:
    outcomes = values(
        run_ranks(_collectives_body, wire, world=4, environment={"NETFOLD_ALGORITHM": "ring"}, timeout_s=120)
    )
    for copies, scattered, moved in outcomes:
        assert copies == [outcomes[0][0][0]] * 3
        assert scattered[0] == scattered[1]
        assert moved[1] >= 120_000, "all-gathers went elsewhere"
        assert moved[0] >= (120_000 if wire == "fp32" else 20_000)
    assert sum(moved[2] for _, _, moved in outcomes) >= 3 * 160_000


def _barrier_body(rank: int) -> tuple[float, float]:
    time.sleep(0.1 * rank)
    came = time.monotonic()
    dist.barrier()
    return came, time.monotonic()


def test_nobody_passes_an_agents_barrier_before_all_have_come(agent: AgentProcess) -> None:
    times = values(run_ranks(_barrier_body, world=3, environment=agent.environment))
    assert min(passed for _, passed in times) >= max(came for came, _ in times)


UPPER_LOWER = "upper:\n  s1: [127.0.0.{}]\n  s2: [127.0.0.{}]\nlower:\n  s3: [127.0.0.{}]\n  s4: [127.0.0.{}]\n"


def _sum_by_topology_body(rank: int, meeting: str) -> int:
    os.environ["NETFOLD_BIND"] = f"127.0.0.{rank + 1}"
    dist.init_process_group("netfold", init_method=f"file://{meeting}", rank=rank, world_size=4)
    tensor = _numbers(rank, 100_003)
    dist.all_reduce(tensor)
    return _crc(tensor)


def test_agents_fold_by_where_the_ranks_sit(tmp_path: Path) -> None:
    def sums(engine: str, *hosts: int) -> set[int]:
        path = tmp_path / "topology.yaml"
        path.write_text(UPPER_LOWER.format(*hosts))
        environment = {"NETFOLD_ENGINE": engine, "NETFOLD_TOPOLOGY": str(path), "NETFOLD_ALGORITHM": "hdrm"}
        return set(values(run_ranks(_sum_by_topology_body, world=4, environment=environment, joins=False)))

    expected = sums("thread", 4, 1, 3, 2)
    assert len(expected) == 1
    assert sums("agent", 4, 1, 3, 2) == expected
    assert sums("agent", 1, 2, 3, 4) != expected, "the order of the sums tells of no topology"


@pytest.mark.parametrize(("secrets_of_ranks", "meet"), [(("right", "right"), True), (("right", "wrong"), False)])
def test_agents_prove_their_ranks_secret(agent: AgentProcess, secrets_of_ranks: tuple[str, str], meet: bool) -> None:
    groups = [
        _core.AgentPeerGroup(rank, 2, agent=agent.socket, secret=secret, timeout_s=3.0)
        for rank, secret in enumerate(secrets_of_ranks)
    ]
    errors: list[NetfoldError] = []

    def connect(group: _core.AgentPeerGroup) -> None:
        try:
            group.connect([each.address for each in groups])
        except NetfoldError as error:
            errors.append(error)

    threads = [threading.Thread(target=connect, args=(group,)) for group in groups]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if meet:
        assert errors == []
        for ticket, group in [(group.barrier(), group) for group in groups]:
            group.wait(ticket)
    else:
        assert len(errors) == 2
        assert "auth" in {error.code for error in errors}
    for group in groups:
        group.close()


def _threads() -> list[str]:
    names = [(task / "comm").read_text() for task in Path("/proc/self/task").iterdir()]
    return [name for name in names if name.startswith("nf-")] + [
        thread.name for thread in threading.enumerate() if thread.name.startswith("netfold")
    ]


def _training_body(rank: int) -> tuple[list[str], list[float], float]:
    model = DistributedDataParallel(nn.Linear(40, 3))
    for _ in range(3):
        model.zero_grad()
        model(torch.full((2, 40), float(rank))).sum().backward()
    gradients = [float(parameter.grad.sum()) for parameter in model.parameters()]
    total = torch.ones(1)
    work = dist.all_reduce(total, async_op=True)
    work.get_future().then(lambda done: done.value()[0].mul_(10)).wait()
    assert total.item() == 20
    return _threads(), gradients, backend_of(dist.group.WORLD).stats()["cpu_s"]


@pytest.mark.parametrize("engine", ["caller", "thread", "agent"])
def test_training_where_the_engine_is_elsewhere(engine: str) -> None:
    environment = {"NETFOLD_ALGORITHM": "ring", "NETFOLD_ENGINE": engine}
    for threads, gradients, cpu_s in values(run_ranks(_training_body, environment=environment)):
        assert gradients == [pytest.approx(2 * 40 * 3 * 0.5), 6.0]
        assert (cpu_s > 0) == (engine != "caller")
        assert [name for name in threads if name.startswith("nf-")] == threads[: engine == "thread"]
        assert bool(threads) == (engine != "caller"), "no thread of Netfold's where the caller folds"


def _one_fold_body(rank: int) -> float:
    tensor = torch.ones(10)
    dist.all_reduce(tensor)
    return tensor.sum().item()


def test_several_jobs_share_an_agent(agent: AgentProcess) -> None:
    for world in (3, 2):
        assert values(run_ranks(_one_fold_body, world=world, environment=agent.environment)) == [10.0 * world] * world


def _until_it_fails(world: int) -> tuple[str, float]:
    """All-reduce until an error comes; fails if a tensor is neither completely folded nor unchanged."""
    tensors = [torch.ones(SEVERAL_PARTS) for _ in range(3)]
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        works = [dist.all_reduce(tensor.fill_(1.0), async_op=True) for tensor in tensors]
        try:
            for work in works:
                work.wait()
        except RuntimeError as error:
            at = time.monotonic()
            for tensor in tensors:
                assert (tensor == tensor[0]).all(), "half folded"
                assert tensor[0] in (1.0, world)
            return str(error), at
    return "no error came", time.monotonic()


def _something_dies_body(rank: int, pid: int, number: int, note: str) -> tuple[str, float]:
    dist.all_reduce(torch.ones(10))
    if rank == 1:

        def kill() -> None:
            Path(note).write_text(str(time.monotonic()))
            os.kill(pid or os.getpid(), number)

        threading.Timer(0.3, kill).start()
    return _until_it_fails(dist.get_world_size())


@pytest.mark.parametrize(
    ("number", "says"),
    [
        (signal.SIGKILL, "has ended"),
        (signal.SIGTERM, "was stopped by SIGTERM"),
        (signal.SIGINT, "was stopped by Ctrl-C"),
        (signal.SIGSTOP, "no sign of life"),
    ],
)
def test_an_agent_that_ends_is_named(agent: AgentProcess, tmp_path: Path, number: int, says: str) -> None:
    note = tmp_path / "died-at"
    arguments = (agent.pid, int(number), str(note))
    outcomes = values(run_ranks(_something_dies_body, *arguments, world=3, environment=agent.environment))
    for error, at in outcomes:
        assert says in error
        assert agent.socket in error
        assert at - float(note.read_text()) < TIMEOUT_S + SLACK_S
    if number in (signal.SIGTERM, signal.SIGINT):
        assert agent.process.wait(30) == 0


def _still_folds_body(rank: int, pid: int) -> float:
    for _ in range(3):
        if rank == 0:
            os.kill(pid, signal.SIGHUP)
        dist.barrier()
    return _one_fold_body(rank)


def test_the_end_of_a_session_ends_no_job(agent: AgentProcess) -> None:
    assert values(run_ranks(_still_folds_body, agent.pid, environment=agent.environment)) == [20.0] * 2
    assert agent.process.poll() is None


def _gather_until_it_fails_body(rank: int, pid: int) -> str:
    """Like _until_it_fails, for all-gathers: their output is complete or unchanged."""
    world = dist.get_world_size()
    own, whole = torch.ones(SEVERAL_PARTS), torch.empty(world * SEVERAL_PARTS)
    if rank == 1:
        threading.Timer(0.3, os.kill, (pid, signal.SIGKILL)).start()
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            dist.all_gather_into_tensor(whole.zero_(), own)
        except RuntimeError as error:
            assert (whole == whole[0]).all(), "half gathered"
            return str(error)
    return "no error came"


def test_an_agent_that_dies_leaves_nothing_half_gathered(agent: AgentProcess) -> None:
    for error in values(run_ranks(_gather_until_it_fails_body, agent.pid, world=3, environment=agent.environment)):
        assert "has ended" in error


@pytest.mark.parametrize("is_shared", [True, False])
def test_a_worker_that_dies_is_named(agent: AgentProcess, tmp_path: Path, is_shared: bool) -> None:
    note = tmp_path / "died-at"
    environment = {**agent.environment, **({} if is_shared else {"NETFOLD_AGENT": ""})}
    arguments = (0, int(signal.SIGKILL), str(note))
    outcomes = run_ranks(_something_dies_body, *arguments, world=3, environment=environment)
    for rank in (0, 2):
        error, at = values([outcomes[rank]])[0]
        assert "rank 1" in error
        assert at - float(note.read_text()) < TIMEOUT_S + SLACK_S
    assert values(run_ranks(_one_fold_body, environment=environment)) == [20.0] * 2


def _own_agent_dies_body(rank: int) -> str:
    dist.all_reduce(torch.ones(10))
    if rank == 1:  # later: the other ranks may still be in that all-reduce
        pid = PrivateAgent._running[os.getpid()]._process.pid
        threading.Timer(0.3, os.kill, (pid, signal.SIGKILL)).start()
    return _until_it_fails(dist.get_world_size())[0]


def test_an_agent_of_one_rank_that_dies_is_felt_by_all() -> None:
    environment = {"NETFOLD_ENGINE": "agent", "NETFOLD_ALGORITHM": "ring", "NETFOLD_TIMEOUT_S": str(TIMEOUT_S)}
    errors = values(run_ranks(_own_agent_dies_body, world=3, environment=environment))
    assert "agent" in errors[1]
    assert all("rank 1" in error for error in errors)


def _joins_in_vain_body(rank: int, meeting: str) -> str:
    with pytest.raises(RuntimeError) as refusal:
        dist.init_process_group("netfold", init_method=f"file://{meeting}", rank=rank, world_size=2)
    return str(refusal.value)


def test_where_no_agent_is_it_says_how_to_start_one() -> None:
    environment = {"NETFOLD_ENGINE": "agent", "NETFOLD_AGENT": "@absent", "NETFOLD_ALGORITHM": "ring"}
    for error in values(run_ranks(_joins_in_vain_body, environment=environment, joins=False)):
        assert "netfold agent --socket @absent" in error


def test_it_stays_on_its_cores() -> None:
    pinned = AgentProcess("--cores", "0")
    group = _core.AgentPeerGroup(0, 1, agent=pinned.socket)
    group.connect([group.address])
    statuses = [(task / "status").read_text() for task in Path(f"/proc/{pinned.pid}/task").iterdir()]
    assert len(statuses) >= 4  # main, accepting, a session, its engine
    assert all("Cpus_allowed_list:\t0\n" in status for status in statuses)
    group.close()
    pinned.end()


@pytest.mark.root
def test_it_serves_its_own_user_alone(agent: AgentProcess) -> None:
    try:
        os.seteuid(65534)
        with pytest.raises(NetfoldError, match="user 0's, not ours"):
            _core.AgentPeerGroup(0, 1, agent=agent.socket)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as stranger:
            stranger.settimeout(10)
            stranger.connect("\0" + agent.socket[1:])
            answer = json.loads(stranger.recv(65536))
    finally:
        os.seteuid(0)
    assert "serves user 0, not user 65534" in answer["error"]["message"]


def test_one_agent_a_process() -> None:
    first, second = PrivateAgent.hold(), PrivateAgent.hold()
    assert first is second
    with pytest.raises(RuntimeError, match="same NETFOLD_CORES"):
        PrivateAgent.hold([0])
    first.release()
    assert first._process.poll() is None
    second.release()
    assert first._process.poll() == 0


@pytest.mark.parametrize(
    ("arguments", "word"), [(["--cores", "4096"], "--cores"), (["--end-with", "-1"], "--end-with")]
)
def test_wrong_usage_is_named(arguments: list[str], word: str) -> None:
    program = native.find(native.AGENT)
    assert program is not None
    answer = subprocess.run([program, *arguments], capture_output=True, text=True, check=False, timeout=30)
    assert answer.returncode == 2
    assert word in answer.stderr


def test_help_teaches() -> None:
    program = native.find(native.AGENT)
    assert program is not None
    answer = subprocess.run([program, "--help"], capture_output=True, text=True, check=True, timeout=30)
    for word in ("Examples:", "NETFOLD_ENGINE=agent", "NETFOLD_AGENT=", "--cores", "ptrace_scope", "Exit status"):
        assert word in answer.stdout
