"""`netfold up`: machines reached by a real ssh, in namespaces of their own, and what it says of them."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from lab_commands import wait_for
from netfold.cli.launch import commands, placement, verdicts
from own_machines import ADDRESSES, IPV6_ADDRESSES, WORKERS, Machine, Run, three_machines
from switch_programs import run

SSH = "ssh -o BatchMode=yes -o ConnectTimeout=10 -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -i key -q"
TRAIN = """
import os, torch, torch.distributed as dist
dist.init_process_group("netfold")
total = torch.arange(100_000, dtype=torch.float32) * (dist.get_rank() + 1)
dist.all_reduce(total)
assert torch.equal(total, torch.arange(100_000, dtype=torch.float32) * 3)
print("sums right at", os.environ.get("NETFOLD_SWITCH"), "for", os.environ["COLOR"])
dist.destroy_process_group()
"""
in_namespaces = [
    pytest.mark.root,
    pytest.mark.namespaces,
    pytest.mark.usefixtures("nothing_left_behind"),
    pytest.mark.skipif(shutil.which("dropbear") is None, reason="needs the ssh server dropbear"),
]


@pytest.fixture(params=["IPv4"])
def machines(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, Machine]]:
    """Three machines with an ssh server each, which know one key; the folder is on all of them."""
    addresses = {"IPv4": ADDRESSES, "IPv6": IPV6_ADDRESSES}[request.param]
    (tmp_path / "train.py").write_text(TRAIN)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "key"], check=True, timeout=20)
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    shutil.copy(tmp_path / "key.pub", home / "authorized_keys")
    with three_machines(tmp_path, addresses) as made:
        for name, machine in made.items():
            begin = f"mount --bind {home} $HOME/.ssh && dropbearkey -t ed25519 -f host-{name}"
            machine.run(f"mkdir -p $HOME/.ssh && {begin}")
            machine.start(f"exec dropbear -F -E -s -r host-{name} -P {name}.pid")
        for machine in made.values():
            wait_for(lambda machine=machine: ":22 " in machine.run("ss -Hltn"), "an ssh server", 20.0)
        yield made


def up(machine: Machine, words: str) -> Run:
    return machine.start(f"exec netfold up --ssh '{SSH}' {words}")


def ended(run: Run) -> int:
    status = run.process.wait(60)
    print(run.said())
    return status


def processes(machine: Machine) -> list[str]:
    """Of a machine, without its first one, its ssh servers, this question, and those that have ended."""
    listed = [line.split(maxsplit=1) for line in machine.run("ps -e -o stat=,comm=").splitlines()]
    names = [name for state, name in listed if not state.startswith("Z")]
    return sorted(name for name in names if name not in ("sleep", "dropbear", "ps", "sh"))


@pytest.mark.usefixtures("machines")
class TestOverSsh:
    pytestmark = in_namespaces

    @pytest.mark.parametrize("machines", ["IPv4", "IPv6"], indirect=True)
    def test_a_job_trains_through_a_switch_that_ends_with_it(self, machines: dict[str, Machine]) -> None:
        at = r"10\.0\.0\.5" if "10.0.0." in machines["first"].run("cat /etc/hosts") else r"\[fd00::5\]"
        launcher = machines["switch"]
        job = up(launcher, "--hosts first,second --switch localhost --env COLOR=red -- torchrun train.py")
        assert ended(job) == 0
        for name in WORKERS:
            assert re.search(rf"^\[{name}\] sums right at {at}:\d+ for red$", job.said(), re.M)
        assert re.search(rf"the switch is at {at}:\d+;", job.said())
        assert {name: processes(machine) for name, machine in machines.items()} == {name: [] for name in ADDRESSES}

    def test_ctrl_c_ends_everything_everywhere(self, machines: dict[str, Machine]) -> None:
        child = "setsid tail -f /dev/null & echo started; tail -f /dev/null"  # it leaves its process group
        job = up(machines["first"], f"--hosts first,second --switch none -- sh -c '{child}'")
        wait_for(lambda: job.said().count("started\n") == 2, "the command", 30.0)
        assert "tail" in processes(machines["second"])
        machines["first"].run("pkill -INT -f '[b]in/netfold up'")
        assert ended(job) == 1
        assert "interrupted: ending the job on all machines" in job.said()
        assert {name: processes(machine) for name, machine in machines.items()} == {name: [] for name in ADDRESSES}

    def test_a_launcher_that_is_killed_leaves_nothing(self, machines: dict[str, Machine]) -> None:
        job = up(machines["switch"], "--hosts first,second --switch none -- sh -c 'echo started; tail -f /dev/null'")
        wait_for(lambda: job.said().count("started\n") == 2, "the command", 30.0)
        machines["switch"].run("pkill -KILL -f '[b]in/netfold up'; pkill -KILL -x ssh; true")
        job.process.wait(20)
        for machine in machines.values():
            wait_for(lambda machine=machine: processes(machine) == [], "the end on all machines", 20.0)

    def test_the_first_failure_is_named_and_a_closed_firewall_too(self, machines: dict[str, Machine]) -> None:
        failing = up(machines["switch"], "--hosts first,second --switch none -- sh -c 'exit $((RANK * 3))'")
        assert ended(failing) == 1
        assert "second: the command ended with status 3" in failing.said()
        absent = up(machines["switch"], "--hosts first,third -- true")
        assert ended(absent) == 1
        assert "third: " in absent.said()
        chain = "add chain inet f in { type filter hook input priority 0; }"
        rule = "add rule inet f in tcp dport != 22 ct state new drop"
        machines["second"].run(f"nft add table inet f && nft '{chain}' && nft '{rule}'")
        closed = up(machines["switch"], "--hosts first,second --check")
        assert ended(closed) == 1
        assert re.search(r"^missing +first to second +TCP to 10\.0\.0\.2:\d+: timed out", closed.said(), re.M)
        assert "open the firewalls" in closed.said()


def test_one_machine_needs_no_ssh(tmp_path: Path) -> None:
    done = run(
        "up", "--hosts", "localhost", "--folder", str(tmp_path), "--", "sh", "-c", "pwd; echo $WORLD_SIZE; exit 7"
    )
    assert done.returncode == 1  # netfold's statuses: 0, 1 and 2
    assert done.stdout.split("\n")[-3:-1] == [str(tmp_path), "1"]
    assert "the command ended with status 7" in done.stderr
    assert run("up", "--hosts", "localhost").returncode == 2
    assert "name the machines with --hosts" in run("up", "--", "true").stderr
    wrong = run("up", "--hosts", "a,b", "--", "torchrun", "--nnodes", "2", "train.py")
    assert (wrong.returncode, "leave out --nnodes" in wrong.stderr) == (2, True)


def test_torchrun_is_told_its_place() -> None:
    words, variables = commands.placed(["torchrun", "--nproc-per-node", "4", "t.py"], 1, 2, "10.0.0.1", 29500)
    assert " ".join(words) == (
        "torchrun --nnodes 2 --node-rank 1 --master-addr 10.0.0.1 --master-port 29500 --nproc-per-node 4 t.py"
    )
    assert variables == {}
    words, _ = commands.placed(["python", "-m", "torch.distributed.run", "t.py"], 0, 2, "10.0.0.1", 29500)
    assert words[:5] == ["python", "-m", "torch.distributed.run", "--nnodes", "2"]


def test_a_switch_is_placed_where_it_helps() -> None:
    alike = {f"w{number}": 1e9 for number in range(8)}
    assert placement.best(alike, {}) is None, "a worker's link has no room"
    assert placement.best({"a": 1e9, "b": 1e9}, {"c": 1e9}) is None, "two workers send each byte once anyway"
    like = placement.best(alike, {"spare": 1e9})
    assert like is not None and like.name == "spare" and 1.05 < like.times_as_fast < 1.2
    faster = placement.best(alike | {"w3": 9e9}, {"spare": 1e9})
    assert faster is not None and faster.name == "w3" and faster.times_as_fast > 1.7


def test_machines_that_differ_are_told() -> None:
    def machine(name: str, **facts: object) -> SimpleNamespace:
        here = {"netfold": "1", "torch": "2.15", "python": "3.11", "clock_s": 0.0, "checks": [], "interfaces": []}
        here["interfaces"] = [{"name": "eth0", "address": f"10.0.0.{name}", "mtu": 9000, "rate_mbit_s": 1000}]
        return SimpleNamespace(name=name, address=f"10.0.0.{name}", facts=here | facts)

    good = [machine("1"), machine("2")]
    assert {check.status for check in verdicts.of_facts(good, needs_torch=True)} == {"ok"}
    other = {"name": "eth0", "address": "10.0.0.3", "mtu": 1500, "rate_mbit_s": 100}
    bad = machine("3", netfold="2", torch="", clock_s=-7.0, interfaces=[other])
    said = {check.name: check for check in verdicts.of_facts([*good, bad], needs_torch=True)}
    assert said["Netfold"].required and said["Netfold"].found == "1 on 1, 2; 2 on 3"
    assert said["PyTorch"].status == "missing"
    assert "differ by 7.0 s; 3 most" in said["clocks"].found
    assert said["MTU"].found == "9000 on 1, 9000 on 2, 1500 on 3"
    slow = verdicts.of_rates([*good, bad], [1e8, 1e8, 1e7])
    assert [check.name for check in slow] == ["links", "link of 3"]
    assert "10 MB/s (its NIC: 100 Mbit/s)" in slow[1].found


def test_a_process_that_ignores_sigterm_is_killed() -> None:
    program = "from netfold.cli.launch import keeper; keeper.GRACE_S = 0.5; keeper.main()"
    stubborn = ["sh", "-c", "trap : TERM; echo $$; while :; do tail -f /dev/null; done"]
    request = {"do": "run", "command": stubborn, "environment": {}, "folder": ""}
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as keeper:
        assert keeper.stdin is not None and keeper.stdout is not None
        keeper.stdin.write(json.dumps(request).encode() + b"\n")
        keeper.stdin.flush()
        process_id = int(json.loads(keeper.stdout.readline())["line"])
        assert Path(f"/proc/{process_id}").exists()
        keeper.stdin.close()
        assert keeper.wait(20) == 0
        assert not Path(f"/proc/{process_id}").exists()


def test_the_keeper_names_an_error() -> None:
    keeper = [sys.executable, "-m", "netfold.cli.launch.keeper"]
    request = '{"do": "run", "command": ["no-such-program"], "environment": {}, "folder": ""}\n'
    done = subprocess.run(keeper, input=request, capture_output=True, text=True, timeout=30, check=True)
    assert "no-such-program" in done.stdout


SLURM = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
SlurmctldPort={ports[0]}
SlurmctldPidFile={folder}/controller.pid
SlurmdPidFile={folder}/%n.pid
SlurmdSpoolDir={folder}/%n
StateSaveLocation={folder}/state
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs={cores}
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs={cores}
PartitionName=all Nodes=ALL Default=YES State=UP
"""


@pytest.mark.root
@pytest.mark.usefixtures("nothing_left_behind")
@pytest.mark.skipif(None in map(shutil.which, ("slurmctld", "slurmd", "salloc")), reason="needs Slurm")
def test_within_slurm_the_machines_are_its_nodes(
    tmp_path: Path, free_port: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    ports = [free_port() for _ in range(3)]
    about = {"host": socket.gethostname().partition(".")[0], "folder": tmp_path, "cores": os.cpu_count()}
    (tmp_path / "slurm.conf").write_text(SLURM.format(ports=ports, **about))
    for name in ("state", "n1", "n2"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))
    started = []
    with (tmp_path / "slurm.log").open("w") as log:
        try:
            for daemon in (["slurmctld", "-D"], ["slurmd", "-D", "-N", "n1"], ["slurmd", "-D", "-N", "n2"]):
                started.append(subprocess.Popen(daemon, stdout=log, stderr=log))

            def idle() -> bool:
                command = ["sinfo", "--noheader", "-N", "-o", "%T"]
                return (
                    subprocess.run(command, capture_output=True, text=True, check=False).stdout.split() == ["idle"] * 2
                )

            wait_for(idle, "a cluster of Slurm", 30.0)
            program = str(Path(sys.executable).parent / "netfold")
            command = ["sh", "-c", "echo $RANK of $WORLD_SIZE on $SLURMD_NODENAME"]
            job = ["salloc", "-Q", "-N2", program, "up", "--switch", "none", "--", *command]
            done = subprocess.run(job, capture_output=True, text=True, timeout=60, check=False)
            assert done.returncode == 0, done.stderr
            assert {"[n1] 0 of 2 on n1", "[n2] 1 of 2 on n2"} <= set(done.stdout.splitlines())
        finally:
            for process in reversed(started):
                process.terminate()
                process.wait(20)
