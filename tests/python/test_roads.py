"""The roads between workers and switch, in network namespaces: IPv6, with and without IPv4 beside it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence

import pytest

from netfold import _core
from roads import Machine, connect, finish, listening, machines

pytestmark = [
    pytest.mark.root,
    pytest.mark.namespaces,
    pytest.mark.timeout(120),
    pytest.mark.usefixtures("nothing_left_behind"),
]
NETFOLD = [sys.executable, "-c", "from netfold.cli import main; main()"]

# Sums by each algorithm.
RANK = """
import torch, torch.distributed as dist
from netfold.torch import Options

dist.init_process_group("netfold")
rank, world = dist.get_rank(), dist.get_world_size()
for algorithm in ("in-network", "split", "ring"):
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


# Prints the payload that the job got, then sums until an error, or until so many seconds are over.
WORKER = """
import sys, time, numpy as np
from netfold import _core
switch, rank, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
begun = time.monotonic()
group = _core.SwitchGroup(switch, "job", 2, rank, timeout_s=20.0)
print("joined after", round(time.monotonic() - begun, 3), flush=True)
print("payload", group.lease()["payload_bytes"], flush=True)
x = np.ones(100_000, dtype=np.float32)
until = time.monotonic() + seconds
last = time.monotonic()
try:
    while True:
        x[:] = [1.5, 2.5][rank]
        more = np.full(1, float(time.monotonic() < until), dtype=np.float32)
        group.wait(group.all_reduce(x.ctypes.data, x.ctypes.data, x.size, "fp32", "fp32"))
        assert (x == 4).all()
        group.wait(group.all_reduce(more.ctypes.data, more.ctypes.data, 1, "fp32", "fp32"))
        last = time.monotonic()
        if more[0] < 2:
            break
except RuntimeError as error:
    print("error after", round(time.monotonic() - last, 3), error, flush=True)
group.close()
"""
HEADS = {"4": 20 + 8 + 16, "6": 40 + 8 + 16}  # before a payload: IP, UDP, Netfold
JUMBO = 9000
SILENCE = """
nft add table inet roads
nft add chain inet roads out '{ type filter hook output priority 0; }'
nft add rule inet roads out icmp type destination-unreachable drop
nft add rule inet roads out icmpv6 type packet-too-big drop
"""


def numbers(name: str, said: list[str]) -> list[float]:
    """The numbers that the workers printed after `name`."""
    return [float(re.search(rf"^{name} ([\d.]+)", each, re.MULTILINE)[1]) for each in said]  # type: ignore[index]


@pytest.mark.parametrize(("family", "hop"), [("4", 9000), ("4", 4000), ("6", 1400), ("4", 1280)])
def test_packets_are_as_large_as_every_hop_carries(family: str, hop: int) -> None:
    """All interfaces of the machines say 9000. A hop on the way to one worker carries less, and says nothing."""
    with machines(3, [family] * 3, JUMBO) as (router, (first, second, box)):
        if shutil.which("nft"):
            router.shell(SILENCE)
        router.shell(f"ip link set eth{second.number} mtu {hop}")
        _, port = start_switch(box)
        switch = f"{box.v4}:{port}" if family == "4" else f"[{box.v6}]:{port}"
        said = finish([each.python(WORKER, switch, str(rank), "0") for rank, each in enumerate((first, second))])
        payloads = numbers("payload", said)
        most = min(hop - HEADS[family], 8192)
        assert payloads[0] == payloads[1] <= most
        assert payloads[0] >= most - 12, "the search ends 8 bytes before the limit, and a payload has whole elements"


def test_an_mtu_that_shrinks_ends_the_job_with_an_error_that_names_the_worker() -> None:
    with machines(3, ["4"] * 3, JUMBO) as (router, (first, second, box)):
        if shutil.which("nft"):
            router.shell(SILENCE)
        _, port = start_switch(box)
        runs = [each.python(WORKER, f"{box.v4}:{port}", str(rank), "20") for rank, each in enumerate((first, second))]
        for run in runs:
            assert run.stdout is not None
            assert [run.stdout.readline().split()[0] for _ in range(2)] == ["joined", "payload"]
        time.sleep(0.5)
        router.shell(f"ip link set eth{second.number} mtu 1500")
        said = finish(runs)
        assert all("the MTU of the path between rank 1 and the switch" in each for each in said)


def test_a_switch_below_another_one_finds_the_mtu_of_its_way_up() -> None:
    with machines(4, ["6"] * 4, JUMBO) as (router, (first, second, leaf, top)):
        if shutil.which("nft"):
            router.shell(SILENCE)
        router.shell(f"ip link set eth{top.number} mtu 3000")
        _, port = start_switch(top)
        _, leaf_port = start_switch(leaf, "--parent", f"[{top.v6}]:{port}")
        runs = [
            first.python(WORKER, f"[{leaf.v6}]:{leaf_port}", "0", "0"),
            second.python(WORKER, f"[{leaf.v6}]:{leaf_port}", "1", "0"),
        ]
        assert all(payload > 8000 for payload in numbers("payload", finish(runs))), "the whole job is at the leaf"
        runs = [
            first.python(WORKER, f"[{leaf.v6}]:{leaf_port}", "0", "0"),
            second.python(WORKER, f"[{top.v6}]:{port}", "1", "0"),
        ]
        assert all(2900 < payload <= 3000 - HEADS["6"] for payload in numbers("payload", finish(runs)))


# Sums by the switch and among the ranks, and prints how long the longest sum took, and what happened to the switch.
BOTH = """
import sys, time, numpy as np
from netfold import _core
switch, rank, own, other = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
group = _core.SplitGroup(rank, 2, listen=own, timeout_s=20.0, switches=[switch], job="job")
group.connect([own, other] if rank == 0 else [other, own])
x = np.ones(1_000_000, dtype=np.float32)
longest, until, news, told = 0.0, time.monotonic() + 20, [], False
while True:
    x[:] = [1.5, 2.5][rank]
    begun = time.monotonic()
    group.wait(group.all_reduce(x.ctypes.data, x.ctypes.data, x.size, "fp32", "fp32", algorithm="split"))
    longest = max(longest, time.monotonic() - begun)
    assert (x == 4).all()
    news += group.take_switch_news()
    if not told:
        print("running", flush=True)
        told = True
    goes_on = np.full(1, float(len(news) < 2 and time.monotonic() < until), dtype=np.float32)
    group.wait(group.all_reduce(goes_on.ctypes.data, goes_on.ctypes.data, 1, "fp32", "fp32", algorithm="ring"))
    if goes_on[0] == 0:
        break
print("longest", longest)
print(news)
group.close()
"""


def begin_divided(script: str, workers: Sequence[Machine], at_switch: str) -> list[subprocess.Popen[str]]:
    """Two ranks that divide tensors between the switch and themselves; returns once both fold."""
    own = [f"{each.v4}:7300" for each in workers]
    runs = [each.python(script, at_switch, str(rank), own[rank], own[1 - rank]) for rank, each in enumerate(workers)]
    for run in runs:
        assert run.stdout is not None and run.stdout.readline() == "running\n"
    return runs


def test_an_mtu_that_shrinks_costs_a_divided_job_the_switch_for_a_while() -> None:
    with machines(3, ["4"] * 3, JUMBO) as (router, (first, second, box)):
        if shutil.which("nft"):
            router.shell(SILENCE)
        _, port = start_switch(box)
        runs = begin_divided(BOTH, (first, second), f"{box.v4}:{port}")
        router.shell(f"ip link set eth{box.number} mtu 1500")
        said = finish(runs)
        assert all(re.search(r"has shrunk|does not reach it any more", each) for each in said), said
        assert all("'')]" in each for each in said), "the switch is back"


# Prints which DSCP the packets have that pass the router, by source address, protocol (6 TCP, 17 UDP) and IP version,
# once its standard input ends.
WATCH = """
import json, select, socket, sys
seen = {}
with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(3)) as all_frames:
    print("watching", flush=True)
    while not select.select([sys.stdin], [], [], 0)[0]:
        if not select.select([all_frames], [], [], 0.05)[0]:
            continue
        bytes_, (_, protocol, kind, *_) = all_frames.recvfrom(65536)
        if kind == socket.PACKET_OUTGOING or protocol not in (0x800, 0x86DD):
            continue
        if protocol == 0x800:
            source, dscp, carries = socket.inet_ntop(socket.AF_INET, bytes_[12:16]), bytes_[1] >> 2, bytes_[9]
        else:
            source = socket.inet_ntop(socket.AF_INET6, bytes_[8:24])
            dscp, carries = (bytes_[0] & 15) << 2 | bytes_[1] >> 6, bytes_[6]
        if carries in (6, 17):
            seen.setdefault(f"{source} {carries}", set()).add(dscp)
print(json.dumps({who: sorted(each) for who, each in seen.items()}))
"""


@pytest.mark.parametrize("family", ["4", "6"])
def test_every_packet_has_the_dscp_that_was_asked_for(family: str) -> None:
    """The workers' 46 and the switch's 34: in data, in probes, in control messages, and among the ranks."""
    with machines(3, [family] * 3) as (router, (first, second, box)):
        _, port = start_switch(box, "--dscp", "34")
        watch = router.start([sys.executable, "-c", WATCH], stdin=subprocess.PIPE)
        assert watch.stdout is not None and watch.stdout.readline() == "watching\n"
        hosts = [each.v4 if family == "4" else f"[{each.v6}]" for each in (first, second, box)]
        script = BOTH.replace("timeout_s=20.0", "timeout_s=20.0, dscp=46").replace("+ 20", "+ 0.5")
        own = [f"{host}:7300" for host in hosts]
        finish(
            [
                each.python(script, f"{hosts[2]}:{port}", str(rank), own[rank], own[1 - rank])
                for rank, each in enumerate((first, second))
            ]
        )
        said, _ = watch.communicate("", timeout=20.0)
        # A connection that has been closed is answered by the kernel, in its own name: RST and late ACKs have no class.
        found = {who: set(each) - {0} if who.endswith(" 6") else set(each) for who, each in json.loads(said).items()}
        addresses = [each.v4 if family == "4" else each.v6 for each in (first, second, box)]
        assert found == {
            f"{address} {kind}": {dscp}
            for address, dscp in zip(addresses, (46, 46, 34), strict=True)
            for kind in (6, 17)
        }


def test_several_interfaces_carry_a_tensor_to_the_switch() -> None:
    with machines(3, ["4"] * 3) as (router, (first, second, box)):
        _, port = start_switch(box)
        for worker in (first, second):
            connect(router, worker, f"more{worker.number}", "eth1", 10 + worker.number, "4")
        script = BOTH.replace("job=", "interfaces=['eth0', 'eth1'], job=").replace("+ 20", "+ 2")
        own = [f"{each.v4}:7300" for each in (first, second)]
        runs = [
            each.python(script, f"{box.v4}:{port}", str(rank), own[rank], own[1 - rank])
            for rank, each in enumerate((first, second))
        ]
        finish(runs)
        for worker in (first, second):
            links = {link["ifname"]: link for link in json.loads(worker.shell("ip -json -statistics link"))}
            sent = {name: links[name]["stats64"]["tx"]["bytes"] for name in ("eth0", "eth1")}
            assert all(size_bytes > 4_000_000 for size_bytes in sent.values()), sent


def test_an_interface_that_fails_is_left_out_until_it_is_back() -> None:
    with machines(3, ["4"] * 3) as (router, (first, second, box)):
        _, port = start_switch(box)
        for worker in (first, second):
            connect(router, worker, f"more{worker.number}", "eth1", 10 + worker.number, "4")
        script = BOTH.replace("job=", "interfaces=['eth0', 'eth1'], job=")
        runs = begin_divided(script, (first, second), f"{box.v4}:{port}")
        router.shell(f"ip link set more{second.number} down")
        time.sleep(2)
        router.shell(f"ip link set more{second.number} up")
        for said in finish(runs):
            assert said.count(f"{box.v4}:{port} by eth1") >= 2 and "by eth0'" not in said, said
            assert "'')]" in said, "it is back"


def test_an_interface_that_is_not_there_is_named() -> None:
    with pytest.raises(RuntimeError, match="this machine has no interface 'nowhere0'"):
        _core.SwitchGroup("127.0.0.1:9", "job", 1, 0, timeout_s=5.0, interface="nowhere0")
