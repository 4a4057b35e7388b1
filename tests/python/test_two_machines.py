"""The README's commands, as they are written, on two machines whose host names resolve to 127.0.1.1, as Debian's do.

A machine is a set of namespaces (network, mounts, host name, processes). It ends with its first process.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab_commands import wait_for
from own_machines import TIMEOUT_S, WORKERS, Machine, three_machines
from repository import ROOT

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


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[dict[str, Machine]]:
    """Two machines, each with a cable to the machine that the README calls the switch."""
    (tmp_path / "train.py").write_text(TRAIN)
    with three_machines(tmp_path) as made:
        yield made


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
