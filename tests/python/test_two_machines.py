"""The README's commands, as they are written, on two machines whose host names resolve to 127.0.1.1, as Debian's do.

A machine is a set of namespaces (network, mounts, host name, processes). It ends with its first process.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from lab_commands import wait_for
from repository import ROOT

TIMEOUT_S = 120.0
WORKERS = ("first", "second")
ADDRESSES = {"first": "10.0.0.1", "second": "10.0.0.2", "switch": "10.0.0.5"}
NAMESPACES = ("--net", "--uts", "--mount", "--pid")

TRAIN = """
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("netfold")
rank, world = dist.get_rank(), dist.get_world_size()
model = DistributedDataParallel(torch.nn.Linear(4, 1, bias=False))
torch.nn.init.zeros_(model.module.weight)
model(torch.full((1, 4), float(rank + 1))).sum().backward()
said = [None] * world
dist.all_gather_object(said, f"rank {rank}")
maximum = torch.tensor([rank], dtype=torch.int64)
dist.all_reduce(maximum, dist.ReduceOp.MAX, group=dist.new_group(range(world)))
total = torch.arange(100_000, dtype=torch.float32) * (rank + 1)
dist.all_reduce(total)
assert torch.equal(total, torch.arange(100_000, dtype=torch.float32) * 3)
dist.barrier()
dist.destroy_process_group()
print("sums", world, model.module.weight.grad.tolist(), said, maximum.item())
"""
SUMS = "sums 2 [[1.5, 1.5, 1.5, 1.5]] ['rank 0', 'rank 1'] 1"

pytestmark = [pytest.mark.root, pytest.mark.namespaces, pytest.mark.usefixtures("nothing_left_behind")]


@dataclass
class Run:
    """A command that was started on a machine."""

    process: subprocess.Popen[bytes]
    log: Path

    def said(self) -> str:
        """The output of the command so far."""
        return self.log.read_text()


class Machine:
    """Namespaces of its own, with a host name that resolves to 127.0.1.1 here and to its address elsewhere."""

    def __init__(self, name: str, folder: Path) -> None:
        hosts = folder / f"hosts-{name}"
        others = "".join(f"{address}\t{other}\n" for other, address in ADDRESSES.items() if other != name)
        hosts.write_text(f"127.0.0.1\tlocalhost\n127.0.1.1\t{name}\n{others}")
        begin = f"echo {name} > /proc/sys/kernel/hostname; mount --bind {hosts} /etc/hosts; ip link set lo up"
        words = ["unshare", *NAMESPACES, "--fork", "--kill-child", "--mount-proc"]
        self._holder = subprocess.Popen([*words, "sh", "-c", f"set -e; {begin}; exec sleep {TIMEOUT_S * 5:.0f}"])
        self.name, self._folder = name, folder
        self._started: list[Run] = []
        try:
            wait_for(lambda: [child.name() for child in self._children()] == ["sleep"], f"machine {name}", 20.0)
        except BaseException:
            self.end()
            raise
        self.process_id = self._children()[0].pid

    def _children(self) -> list[psutil.Process]:
        assert self._holder.poll() is None, "a machine could not start: see its output"
        return psutil.Process(self._holder.pid).children()

    def start(self, command: str) -> Run:
        """Start a line of a shell."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("GLOO_", "NETFOLD_"))}
        programs = Path(sys.executable).parent
        environment |= {"PATH": f"{programs}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
        words = ["nsenter", "--target", str(self.process_id), *NAMESPACES, f"--wdns={self._folder}", "sh", "-c"]
        log = self._folder / f"{self.name}-{len(self._started)}.log"
        with log.open("w") as file:
            run = Run(subprocess.Popen([*words, command], env=environment, stdout=file, stderr=subprocess.STDOUT), log)
        self._started.append(run)
        return run

    def run(self, command: str) -> str:
        """Run a line to its end; returns its output."""
        run = self.start(command)
        assert run.process.wait(TIMEOUT_S) == 0, run.said()
        return run.said()

    def end(self) -> None:
        """End everything that runs on the machine: its processes end with the first one."""
        self._holder.kill()
        self._holder.wait()
        for run in self._started:
            run.process.wait()


def connect(switch: Machine, worker: Machine) -> None:
    """A cable from a worker's eth0 to a port of the switch's bridge."""
    port = f"to-{worker.name}"
    cable = ["ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", str(worker.process_id)]
    subprocess.run(["nsenter", "--target", str(switch.process_id), "--net", *cable], check=True, timeout=20.0)
    switch.run(f"ip link set {port} master eth0 up")


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[dict[str, Machine]]:
    """Two machines, each with a cable to the machine that the README calls the switch."""
    (tmp_path / "train.py").write_text(TRAIN)
    made: dict[str, Machine] = {}
    try:
        for name in ADDRESSES:
            made[name] = Machine(name, tmp_path)
        made["switch"].run("ip link add eth0 type bridge")
        for name in WORKERS:
            connect(made["switch"], made[name])
        for name, address in ADDRESSES.items():
            made[name].run(f"ip address add {address}/24 dev eth0 && ip link set eth0 up")
        yield made
    finally:
        for machine in made.values():
            machine.end()


def readme_commands() -> list[str]:
    """The README's commands for the two machines, in their order."""
    commands = re.findall(r"^(NETFOLD_SWITCH=\S+ torchrun .*?) *(?:#.*)?$", (ROOT / "README.md").read_text(), re.M)
    assert len(commands) == len(WORKERS), "the README shows the command of each of two machines"
    return commands


def train(machines: dict[str, Machine], commands: list[str]) -> None:
    """Run each machine's command, and check the sums of both ranks."""
    runs = [machines[name].start(command) for name, command in zip(WORKERS, commands, strict=True)]

    def ended() -> bool:
        statuses = [run.process.poll() for run in runs]
        return None not in statuses or any(statuses)  # one that fails may leave the other waiting

    deadline = time.monotonic() + TIMEOUT_S
    while not ended() and time.monotonic() < deadline:
        time.sleep(0.1)
    said = "\n".join(run.said() for run in runs)
    assert [run.process.poll() for run in runs] == [0, 0], said
    assert all(SUMS in run.said().splitlines() for run in runs), said


def test_with_a_switch(machines: dict[str, Machine]) -> None:
    switch = machines["switch"].start("netfold switch --metrics 127.0.0.1:9171")
    wait_for(lambda: "listening on" in switch.said(), "the switch", 20.0)
    train(machines, readme_commands())
    counters = machines["switch"].run("netfold top --once --json --metrics 127.0.0.1:9171")
    assert re.search(r'"jobs_finished": *[1-9]', counters), counters


def test_with_a_switch_at_a_second_address_of_its_network(machines: dict[str, Machine]) -> None:
    machines["switch"].run("ip address add 10.0.0.6/24 dev eth0")  # the kernel sends datagrams from the first
    switch = machines["switch"].start("netfold switch")
    wait_for(lambda: "listening on" in switch.said(), "the switch", 20.0)
    train(machines, [line.replace("10.0.0.5", "10.0.0.6") for line in readme_commands()])


@pytest.mark.parametrize("setting", ["", "NETFOLD_ALGORITHM=in-network "], ids=["among-ranks", "embedded-switch"])
@pytest.mark.parametrize("master", ["10.0.0.1", "first"], ids=["master-by-address", "master-by-name"])
def test_without_a_switch(machines: dict[str, Machine], setting: str, master: str) -> None:
    lines = [re.sub(r"^NETFOLD_SWITCH=\S+ ", setting, line) for line in readme_commands()]
    train(machines, [line.replace("--master-addr 10.0.0.1", f"--master-addr {master}") for line in lines])


def test_with_torchs_own_rendezvous(machines: dict[str, Machine]) -> None:
    train(machines, ["torchrun --nnodes 2 --rdzv-backend c10d --rdzv-endpoint first:29400 train.py"] * 2)
