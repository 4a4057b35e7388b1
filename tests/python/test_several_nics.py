"""Ranks on machines with two NICs, in network namespaces, without a switch: both NICs carry every large tensor."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from roads import Machine, connect, finish, machines

pytestmark = [
    pytest.mark.root,
    pytest.mark.namespaces,
    pytest.mark.timeout(120),
    pytest.mark.usefixtures("nothing_left_behind"),
]
NICS = ("eth0", "eth1")

# All-reduces until rank 0 has been told to end. Each rank then prints how long the longest one took.
RANK = """
import select, sys, time, torch, torch.distributed as dist

dist.init_process_group("netfold")
rank, world = dist.get_rank(), dist.get_world_size()
numbers = torch.arange(500_000, dtype=torch.float32)
longest = 0.0
while True:
    total = numbers * (rank + 1)
    begun = time.monotonic()
    dist.all_reduce(total)
    took = time.monotonic() - begun
    assert torch.equal(total, numbers * sum(range(1, world + 1)))
    ends = torch.zeros(1)
    if rank == 0 and select.select([sys.stdin], [], [], 0)[0]:
        ends += 1
    dist.all_reduce(ends)
    if rank == 0 and not longest:
        print("summed", flush=True)
    longest = max(longest, took)
    if ends.item():
        break
print("longest", longest)
dist.destroy_process_group()
"""
PROGRAM = [sys.executable, "-c", RANK]


@contextmanager
def workers(rates_mbit_s: tuple[int, int], count: int = 2) -> Iterator[tuple[Machine, list[Machine]]]:
    """A router and machines with two NICs each, of these rates both ways."""
    with machines(count, ["4"] * count) as (router, made):
        for machine in made:
            connect(router, machine, f"more{machine.number}", "eth1", 10 + machine.number, "4")
            for rate, own, ports in zip(rates_mbit_s, NICS, ("eth", "more"), strict=True):
                shape = f"root tbf rate {rate}mbit burst 32kb latency 50ms"
                machine.shell(f"tc qdisc add dev {own} {shape}")
                router.shell(f"tc qdisc add dev {ports}{machine.number} {shape}")
        yield router, made


def start(made: list[Machine], interfaces: Sequence[str], timeout_s: int = 20) -> list[subprocess.Popen[str]]:
    """The ranks; `interfaces` has the setting of each."""
    common = {"MASTER_ADDR": made[0].v4, "MASTER_PORT": "29507", "WORLD_SIZE": str(len(made))}
    common["NETFOLD_TIMEOUT_S"] = str(timeout_s)
    return [
        each.start(PROGRAM, stdin=subprocess.PIPE, RANK=str(rank), NETFOLD_INTERFACE=names, **common)
        for rank, (each, names) in enumerate(zip(made, interfaces, strict=True))
    ]


def begin(made: list[Machine]) -> list[subprocess.Popen[str]]:
    """The ranks, once they have their first sum."""
    runs = start(made, [",".join(NICS)] * len(made))
    assert runs[0].stdout is not None
    said = ""
    while not said.endswith("summed\n"):  # after torch's warnings
        line = runs[0].stdout.readline()
        said += line
        assert line, said
    return runs


def end(runs: list[subprocess.Popen[str]]) -> float:
    """End the ranks; returns how many seconds the longest sum took."""
    assert runs[0].stdin is not None
    runs[0].stdin.write("end\n")
    return max(float(said.split()[-1]) for said in finish(runs))


def sent_bytes(machine: Machine) -> dict[str, int]:
    links = json.loads(machine.shell("ip -json -statistics link"))
    return {link["ifname"]: link["stats64"]["tx"]["bytes"] for link in links if link["ifname"] in NICS}


@pytest.mark.parametrize("rates", [(100, 100), (160, 40)], ids=["alike", "4 to 1"])
def test_both_nics_carry_what_they_can(rates: tuple[int, int]) -> None:
    with workers(rates) as (_, made):
        runs = begin(made)
        time.sleep(3)  # until the rates are known
        before = [sent_bytes(each) for each in made]
        time.sleep(5)
        after = [sent_bytes(each) for each in made]
        end(runs)
    for one, other in zip(before, after, strict=True):
        first, second = (other[nic] - one[nic] for nic in NICS)
        assert first / (first + second) == pytest.approx(rates[0] / sum(rates), abs=0.1), (one, other)


def test_a_nic_that_fails_is_left_out_until_it_is_back() -> None:
    with workers((100, 100)) as (router, made):
        runs = begin(made)
        time.sleep(1)
        router.shell("ip link set more2 down")
        time.sleep(1.5)
        before = sent_bytes(made[0])
        time.sleep(1.5)
        without = sent_bytes(made[0])
        router.shell("ip link set more2 up")
        time.sleep(5)  # TCP tries again after pauses that double
        again = sent_bytes(made[0])
        time.sleep(1.5)
        after = sent_bytes(made[0])
        longest = end(runs)
    gone, back = ({nic: other[nic] - one[nic] for nic in NICS} for one, other in ((before, without), (again, after)))
    assert gone["eth0"] > 2_000_000 and gone["eth1"] < 100_000, (gone, back)
    assert back["eth1"] > 2_000_000, (gone, back)
    assert longest < 5.0


def test_ranks_with_other_numbers_of_nics_are_named() -> None:
    with workers((100, 100)) as (_, made):
        said = [run.communicate(timeout=60)[0] for run in start(made, ["eth0,eth1", "eth1"], timeout_s=5)]
    assert "rank 0 has 2 interfaces and rank 1 has one interface" in said[1], said
    assert "name the same number of interfaces on all ranks" in said[0], said


def test_an_interface_that_is_not_there_is_named() -> None:
    with workers((100, 100)) as (_, made):
        said = [run.communicate(timeout=60)[0] for run in start(made, ["eth0,eth7"] * 2)]
    assert all("this machine has no interface 'eth7'" in each for each in said), said
