"""The roads between workers and switch, in network namespaces: IPv6, with and without IPv4 beside it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from roads import Machine, finish, listening, machines

pytestmark = [
    pytest.mark.root,
    pytest.mark.namespaces,
    pytest.mark.timeout(120),
    pytest.mark.usefixtures("nothing_left_behind"),
]
NETFOLD = [sys.executable, "-c", "from netfold.cli import main; main()"]

# Sums by each algorithm.
RANK = """
import os
import torch, torch.distributed as dist
from netfold.torch import Options

dist.init_process_group("netfold")
rank, world = dist.get_rank(), dist.get_world_size()
for algorithm in ("in-network", "split", "ring"):
    if algorithm == "ring":
        del os.environ["NETFOLD_SWITCH"]
    group = dist.new_group(range(world), pg_options=Options(algorithm=algorithm))
    total = torch.arange(300_001, dtype=torch.float32) * (rank + 1)
    dist.all_reduce(total, group=group)
    assert torch.equal(total, torch.arange(300_001, dtype=torch.float32) * sum(range(1, world + 1))), algorithm
    print("sums by", algorithm, flush=True)
dist.destroy_process_group()
"""


def start_switch(machine: Machine, *arguments: str) -> tuple[subprocess.Popen[str], str]:
    """A switch program, and its port."""
    run = machine.start([*NETFOLD, "switch", "--port", "0", *arguments])
    return run, listening(run)


def torch_ranks(ranks: list[Machine], master: str, switch: str) -> list[str]:
    """Run RANK on these machines, and return its output."""
    settings = {"MASTER_ADDR": master, "MASTER_PORT": "29507", "WORLD_SIZE": str(len(ranks))}
    settings |= {"NETFOLD_SWITCH": switch, "NETFOLD_TIMEOUT_S": "20"}
    return finish([each.python(RANK, RANK=str(rank), **settings) for rank, each in enumerate(ranks)])


@pytest.mark.parametrize("families", [["6", "6", "6"], ["46", "6", "46"]], ids=["only IPv6", "rank 0 has both"])
def test_ranks_and_switch_meet_by_ipv6(families: list[str]) -> None:
    with machines(3, families) as (_, (first, second, box)):
        _, port = start_switch(box, "--metrics", "[::1]:9171")
        said = torch_ranks([first, second], first.v6, f"[{box.v6}]:{port}")
        assert all(f"sums by {algorithm}" in each for algorithm in ("in-network", "split", "ring") for each in said)
        shown = box.shell(" ".join([sys.executable, "-m", "netfold.cli", "top", "--once", "--metrics", "[::1]:9171"]))
        assert "packets" in shown


def test_a_switch_at_every_address_serves_ipv4_and_ipv6_in_one_job() -> None:
    """Packets of 1500 bytes: the longer header of IPv6 leaves 20 bytes less to the payload of all."""
    worker = """
import sys, numpy as np
from netfold import _core
group = _core.SwitchGroup(sys.argv[1], "job", 2, int(sys.argv[2]), timeout_s=20.0)
x = np.full(100_001, 1.5, dtype=np.float32)
group.wait(group.all_reduce(x.ctypes.data, x.ctypes.data, x.size, "fp32", "fp32"))
assert (x == 3).all()
print("payload", group.lease()["payload_bytes"])
group.close()
"""
    with machines(3, ["4", "6", "46"]) as (_, (first, second, box)):
        _, port = start_switch(box)
        runs = [first.python(worker, f"{box.v4}:{port}", "0"), second.python(worker, f"[{box.v6}]:{port}", "1")]
        assert finish(runs) == ["payload 1436\n"] * 2
