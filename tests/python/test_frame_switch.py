"""The Ethernet switch from a user's view: real workers through DPDK ports, plain traffic beside them, and the
measurement of one core."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from scapy.layers.l2 import Ether
from scapy.utils import rdpcap, wrpcap
from typer.testing import CliRunner

from frame_ranks import __file__ as RANK_PROGRAM
from lab_commands import LabCommands
from netfold import _core, native
from netfold_lab.bench.switch import register
from netfold_lab.bench.workers.roce import elements
from netfold_lab.lab import names, netns, processes
from netfold_lab.lab.frame_star import device, start_switch
from netfold_lab.lab.generator import GeneratorLab
from netfold_lab.lab.star import SWITCH_PORT

WORLD = 3
SWITCH = f"{names.switch_address()}:7171"
SEED, ROCE_JOB, ROCE_COUNT = 5, 9, 100_003
PROGRAM = native.find(native.SWITCH)
BENCH = native.find(native.SWITCH_BENCH)


bench_app = typer.Typer()
register(bench_app)


def has_dpdk() -> bool:
    """Whether the programs were built with DPDK: otherwise they print an error."""
    if PROGRAM is None or BENCH is None:
        return False
    words = [PROGRAM, "--dpdk", "--port", "none0", "--bind", "127.0.0.1"]
    return "without DPDK" not in subprocess.run(words, capture_output=True, text=True, check=False).stderr


pytestmark = pytest.mark.skipif(not has_dpdk(), reason="this Netfold was built without DPDK")
STREAM = """
import socket, sys
if sys.argv[1] == "receive":
    with socket.create_server(("", 9998)) as server:
        server.settimeout(20)
        print("listening", flush=True)
        connection, _ = server.accept()
        total = 0
        while data := connection.recv(1 << 16):
            total += len(data)
        print(total)
else:
    with socket.create_connection((sys.argv[1], 9998), timeout=20) as connection:
        connection.sendall(bytes(3_000_000))
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabCommands]:
    commands = LabCommands(tmp_path_factory.mktemp("lab"))
    commands.run("up", "--workers", str(WORLD), "--rate-mbit-s", "0", "--switch", "dpdk")
    yield commands
    commands.run("down", check=False)


def on_every_worker(lab: LabCommands, job: str, *more: str, at: Sequence[str] = (SWITCH,) * WORLD) -> list[str]:
    """Run the rank program on each worker of the lab, rank r with the switch at[r]; returns the output of each."""
    words = [sys.executable, RANK_PROGRAM]
    ranks = [
        lab.start("exec", f"w{rank}", "--", *words, str(rank), str(WORLD), at[rank], job, *more)
        for rank in range(WORLD)
    ]
    said = []
    for rank in ranks:
        out, errors = rank.communicate(timeout=60)
        assert rank.returncode in (0, 9), errors
        said.append(out.strip())
    return said


def through_sockets() -> str:
    """The digest of the same all-reduces through the switch over sockets."""
    switch = _core.Switch("127.0.0.1:0")
    try:
        words = [sys.executable, RANK_PROGRAM]
        ranks = [
            subprocess.Popen([*words, str(rank), str(WORLD), switch.address, "same"], stdout=subprocess.PIPE, text=True)
            for rank in range(WORLD)
        ]
        said = {rank.communicate(timeout=60)[0].strip() for rank in ranks}
    finally:
        switch.close()
    assert len(said) == 1
    return said.pop()


@pytest.mark.namespaces
def test_workers_get_the_bits_of_the_sockets_switch(lab: LabCommands) -> None:
    assert set(on_every_worker(lab, "bits")) == {through_sockets()}


# On the machine of rank 0 there is a switch over sockets for the ranks 0 and 1. Rank 2 is at the Ethernet switch.
@pytest.mark.namespaces
def test_a_switch_over_sockets_may_be_below_it(lab: LabCommands) -> None:
    leaf = lab.start("exec", "w0", "--", str(PROGRAM), "--parent", SWITCH, "--threads", "2")
    try:
        below = f"{names.worker_address(0)}:7171"
        assert set(on_every_worker(lab, "tree", at=[below, below, SWITCH])) == {through_sockets()}
    finally:
        processes.end_children([leaf])


# The ranks 0 and 1 are at the Ethernet switch. Rank 2 is at the switch above it, on its own machine.
@pytest.mark.namespaces
def test_it_may_be_below_a_switch_over_sockets(tmp_path: Path) -> None:
    lab = LabCommands(tmp_path)
    up = lab.run("up", "--workers", str(WORLD), "--rate-mbit-s", "0", "--switch", "dpdk", "--json")
    here, above = names.switch(json.loads(up.stdout)["results"][0]["lab"]), f"{names.worker_address(2)}:7171"
    with contextlib.ExitStack() as stack:
        stack.callback(lab.run, "down", check=False)
        processes.end_all_in([here], netns.DIRECTORY)
        stack.callback(processes.end_children, [lab.start("exec", "w2", "--", str(PROGRAM))])
        ports = [*(f"p{rank}" for rank in range(WORLD)), SWITCH_PORT]
        devices = [device(number, port) for number, port in enumerate(ports)]
        started = start_switch(here, devices, tmp_path, ["--parent", above, "--threads", "2"])
        stack.callback(processes.end_children, [started])
        assert set(on_every_worker(lab, "tree", at=[SWITCH, SWITCH, above])) == {through_sockets()}


@pytest.mark.namespaces
def test_plain_traffic_is_forwarded_between_workers(lab: LabCommands) -> None:
    receiving = lab.start("exec", "w1", "--", sys.executable, "-c", STREAM, "receive")
    assert receiving.stdout is not None
    assert receiving.stdout.readline() == "listening\n"
    lab.run("exec", "w0", "--", sys.executable, "-c", STREAM, "10.77.0.11")
    assert receiving.communicate(timeout=30)[0].strip() == "3000000"


@pytest.mark.namespaces
def test_roce_workers_fold_through_the_same_switch(lab: LabCommands) -> None:
    where = ["--metrics", names.switch_metrics(), "--job", str(ROCE_JOB), "--ports", "0,1,2", "--adds", "float"]
    lab.run("exec", "switch", "--", sys.executable, "-m", "netfold.cli", "configure", *where)
    with contextlib.ExitStack() as stack:
        ranks = [stack.enter_context(roce_worker(lab, rank)) for rank in range(WORLD)]
        cards = [answer(rank) for rank in ranks]
        for rank in ranks:
            ask(rank, json.dumps(cards))
        assert [answer(rank) for rank in ranks] == ["connected"] * WORLD
        for rank in ranks:
            ask(rank, "all-reduce")
        sums = {answer(rank)["crc32"] for rank in ranks}
    gradients = [elements(SEED, rank, ROCE_COUNT, "fp32") for rank in range(WORLD)]
    assert sums == {zlib.crc32(_core.fold(gradients, "fp32").view(np.uint8))}


@contextlib.contextmanager
def roce_worker(lab: LabCommands, rank: int) -> Iterator[subprocess.Popen[str]]:
    """A worker that all-reduces once for each line of input; ends with the block."""
    options = {"interface": names.INTERFACE, "rank": rank, "world": WORLD, "seed": SEED, "count": ROCE_COUNT}
    more = {"format": "fp32", "client": {"job": ROCE_JOB, "timeout_s": 20.0}}
    words = ["-m", "netfold_lab.bench.workers.roce", "worker", json.dumps(options | more)]
    process = lab.start("exec", f"w{rank}", "--", sys.executable, *words, stdin=subprocess.PIPE)
    try:
        yield process
    finally:
        process.communicate(timeout=30)


def ask(process: subprocess.Popen[str], line: str) -> None:
    """Send one line to the worker."""
    assert process.stdin is not None
    process.stdin.write(f"{line}\n")
    process.stdin.flush()


def answer(process: subprocess.Popen[str]) -> Any:
    """The worker's next line of JSON."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.communicate(timeout=30)[1]
    return json.loads(line)


@pytest.mark.namespaces
def test_a_worker_that_dies_is_named(lab: LabCommands) -> None:
    said = on_every_worker(lab, "death", "die")
    assert [one.splitlines()[1:] for one in said] == [["peer_failed 2"], ["peer_failed 2"], []]


@pytest.fixture
def metrics(tmp_path: Path) -> Iterator[str]:
    """A switch with three unused ports in memory; yields the address of its counters."""
    assert PROGRAM is not None
    words = ["--dpdk", *["--port", "ring"] * 3, "--bind", "127.0.0.1", "--port", "0", "--buffers", "4096"]
    with subprocess.Popen([PROGRAM, *words, "--metrics", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True) as switch:
        assert switch.stdout is not None
        line = switch.stdout.readline()
        yield line.removeprefix("metrics on http://").removesuffix("/metrics\n")
        switch.terminate()
        assert switch.wait(timeout=20) == 0


def netfold(*arguments: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "netfold.cli", *arguments]
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)


def frames_of(metrics: str) -> dict:
    done = netfold("top", "--metrics", metrics, "--interval-s", "0.1", "--json")
    return json.loads(done.stdout)["results"][0]["frames"]


def test_what_folds_is_changed_while_it_runs(metrics: str) -> None:
    assert (frames_of(metrics)["AGG_MODE"], frames_of(metrics)["AGG_PORT_CFG"]) == (0, "0x18000007")
    assert netfold("configure", "--metrics", metrics, "--ports", "0,2", "--adds", "float").stdout == "changed\n"
    after = frames_of(metrics)
    assert (after["AGG_MODE"], after["AGG_PORT_CFG"]) == (1, "0x10000005")
    assert [port["folds"] for port in after["ports"]] == [1, 0, 1]
    table = netfold("top", "--metrics", metrics, "--interval-s", "0.1", "--once").stdout
    assert "AGG_PORT_CFG 0x10000005" in table and "nf0" not in table and "ring" in table
    assert netfold("configure", "--metrics", metrics, "--job", "7", "--adds", "int").stdout == "changed\n"
    assert frames_of(metrics)["AGG_MODE"] == 1  # of one job only
    assert {each["name"] for each in frames_of(metrics)["protocols"]} == {"netfold", "roce_v1", "roce_v2", "pcie"}
    for words, sentence in ((("--ports", "0,x"), "ports: all, none, or numbers"), (("--adds", "both"), "float or int")):
        done = netfold("configure", "--metrics", metrics, *words)
        assert done.returncode == 2 and sentence in done.stderr


# Frames of one capture leave into another; a null device takes what it is sent.
def test_captures_and_null_devices_are_ports(tmp_path: Path) -> None:
    frames = [Ether(src="02:00:00:00:00:02", dst="02:00:00:00:00:08", type=0x9000) / bytes([n] * 60) for n in range(5)]
    wrpcap(str(tmp_path / "in.pcap"), frames)
    wrpcap(str(tmp_path / "none.pcap"), frames[:0], linktype=1)
    first = f"net_pcap0,rx_pcap={tmp_path}/in.pcap,tx_pcap={tmp_path}/back.pcap"
    second = f"net_pcap1,rx_pcap={tmp_path}/none.pcap,tx_pcap={tmp_path}/out.pcap"
    devices = [word for name in (first, second, "net_null0,no-rx=1") for word in ("--port", name)]
    words = [str(PROGRAM), "--dpdk", *devices, "--bind", "127.0.0.1", "--port", "0", "--metrics", "127.0.0.1:0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as switch:
        assert switch.stdout is not None
        at = switch.stdout.readline().removeprefix("metrics on http://").removesuffix("/metrics\n")
        try:
            ports = frames_of(at)["ports"]
        finally:
            switch.terminate()
            assert switch.wait(timeout=20) == 0
    assert (ports[0]["received_frames"], ports[0]["flooded"]) == (5, 5)
    assert [port["sent_frames"] for port in ports] == [0, 5, 5]
    assert [bytes(frame) for frame in rdpcap(str(tmp_path / "out.pcap"))] == [bytes(frame) for frame in frames]


@pytest.mark.namespaces
def test_faults_of_the_kernel_are_refused(tmp_path: Path) -> None:
    done = LabCommands(tmp_path).run("up", "--switch", "dpdk", "--loss", "0.1", check=False)
    assert done.returncode == 2
    assert "--faults-by netfold" in done.stderr


def bench(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "netfold.cli", "bench", "switch", *arguments]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert not check or done.returncode == 0, done.stderr
    return done


def test_one_core_is_measured_and_every_sum_checked() -> None:
    report = json.loads(bench("--workers", "2,8", "--format", "fp32,bfp", "--frames", "40000", "--json").stdout)
    assert report["command"] == "bench switch"
    assert [(one["workers"], one["format"]) for one in report["results"]] == [
        (2, "fp32"),
        (2, "bfp"),
        (8, "fp32"),
        (8, "bfp"),
    ]
    for one in report["results"]:
        core = one["cores"][0]
        assert one["right"] and one["buffers_leaked"] == 0
        assert core["results_checked"] == core["gradient_frames"] >= 40000
        assert one["folded_gbit_s_per_core"] > 0 and one["frames_s_per_core"] > 0, json.dumps(core)


# The kernel gives it the core whenever it wakes up.
WAKES_OFTEN = """
import os, time
os.sched_setaffinity(0, {0})
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
print("ready", flush=True)
end = time.monotonic() + 60
while time.monotonic() < end:
    time.sleep(10e-6)
"""


@pytest.mark.namespaces  # needs root
def test_a_thread_that_wakes_up_in_every_round_does_not_hide_the_rate() -> None:
    with subprocess.Popen([sys.executable, "-c", WAKES_OFTEN], stdout=subprocess.PIPE) as other:
        try:
            assert other.stdout is not None and other.stdout.readline() == b"ready\n"
            done = bench("--workers", "8", "--format", "bfp", "--frames", "40000", "--cores", "0", "--json")
        finally:
            other.kill()
    core = json.loads(done.stdout)["results"][0]["cores"][0]
    assert core["frames_s_per_core"] > 0, json.dumps(core)


@pytest.mark.parametrize(
    ("protocol", "wire", "layout", "size_bytes"),
    [
        ("pcie", "fp32", "run-to-completion", 192),
        ("pcie", "fp32", "per-port", 192),
        ("roce", "int32", "run-to-completion", 1094),
        ("roce", "fp32", "per-port", 1094),
        ("netfold", "bfp", "per-port", 1520),
    ],
)
def test_rounds_are_forwarded_and_folded_in_turns(protocol: str, wire: str, layout: str, size_bytes: int) -> None:
    arguments = ("--protocol", protocol, "--format", wire, "--layout", layout, "--workers", "3", "--frames", "8000")
    one = json.loads(bench(*arguments, "--json").stdout)["results"][0]
    assert one["right"] and one["size_bytes"] == size_bytes
    assert one["wrong_forwarded"] == one["wrong_sums"] == one["missing"] == one["buffers_leaked"] == 0
    turns = one["turns"]
    assert turns["forwarding"]["frames"] > 0 < turns["while_folding"]["frames"]
    sums = 3 if protocol == "pcie" else 1  # frames a sum
    assert one["sums_checked"] * sums >= turns["while_folding"]["frames"]
    assert (turns["folding"] is None) == (layout == "run-to-completion")


# Only the generator, and a switch in another namespace, at the other ends of real devices.
@pytest.mark.namespaces
@pytest.mark.parametrize(("kind", "more"), [("veth", ()), ("memif", ("--layout", "per-port", "--threads", "2"))])
def test_a_switch_at_the_other_end_is_measured(kind: str, more: tuple[str, ...]) -> None:
    arguments = ("--device", kind, "--workers", "3", "--format", "fp32,bfp", "--frames", "6000", *more, "--json")
    for one in json.loads(bench(*arguments).stdout)["results"]:
        assert one["right"] and one["wrong_sums"] == 0 and len(one["devices"]) == 3
        assert one["gradient_frames"] == 6000 <= one["results_checked"]
        assert one["chunks"] == 2000 or one["lost"] > 0
        assert one["frames_s"] > 0 and one["latency_us"]["p999"] >= one["latency_us"]["p50"] > 0


@pytest.mark.namespaces
def test_the_lossless_rate_of_a_device_is_found() -> None:
    result = json.loads(bench("--device", "memif", "--workers", "2", "--frames", "600", "--search", "--json").stdout)
    one = result["results"][0]
    assert one["right"] and one["unpaced"]["gradient_frames"] == 600
    assert 0 <= one["lossless_gbit_s"] < one["unpaced"]["gbit_s"] * 1.25


@pytest.fixture
def cables() -> Iterator[GeneratorLab]:
    """Two veth cables to a switch whose jobs need the secret "open sesame"."""
    with tempfile.NamedTemporaryFile("w") as secret:
        secret.write("open sesame")
        secret.flush()
        with GeneratorLab(2, "veth", switch_words=["--secret-file", secret.name, "--require-auth"]) as made:
            yield made


def generate(lab: GeneratorLab, *arguments: str, secret: str = "open sesame") -> subprocess.CompletedProcess[str]:
    words = [*lab.enter(), "env", f"NETFOLD_SECRET={secret}", sys.executable, "-m", "netfold.cli", "bench", "switch"]
    return subprocess.run([*words, *arguments], capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.namespaces
def test_a_running_switch_is_joined_as_workers_join_it(cables: GeneratorLab) -> None:
    devices = [word for device in cables.devices for word in ("--device", device)]
    there = ["--switch", cables.switch_address, "--address", cables.first_address, "--timeout-s", "5"]
    done = generate(cables, *devices, *there, "--frames", "2000", "--gradients", "100", "--require-auth", "--json")
    one = json.loads(done.stdout)["results"][0]
    # Ethernet, IPv4, UDP, the packet's header, 100 gradients and the tag.
    assert (one["right"], one["gradient_frames"], one["size_bytes"]) == (True, 2000, 42 + 16 + 400 + 16)
    for words, secret, sentence in (
        ([*devices, *there], "wrong", "secret"),
        ([*devices, *there, "--gradients", "4000"], "open sesame", "--gradients 4000: a frame of this job takes"),
        ([*devices, *there[:3], "10.77.0.10", "--switch", "10.77.0.99:7171"], "", "cannot reach the switch"),
        (["--device", "net_af_packet0,iface=nosuch0", *there], "", "nosuch0, which is not there"),
    ):
        done = generate(cables, *words, "--timeout-s", "2", secret=secret)
        assert done.returncode != 0 and sentence in done.stderr, done.stderr
    with netns.open_socket(cables.enter()[1].rpartition("/")[2]) as ipr:
        ipr.link("set", index=ipr.link_lookup(ifname=cables.devices[1])[0], state="down")
    done = generate(cables, *devices, *there, "--timeout-s", "2")
    assert done.returncode == 1 and cables.devices[1] in done.stderr, done.stderr
    log = (cables.directory / "switch.log").read_text()  # which looks at its links once a second
    assert "went down: what must come through it waits" in log and "p1" in log.partition("went down")[0][-40:]


# A week in an hour, in its short form: faults, jobs of all sizes that come and go, plain frames beside them.
def test_faults_and_changing_jobs_leave_nothing_wrong_and_nothing_behind() -> None:
    arguments = ("--frames", "300000", "--chunks-a-job", "500", "--plain", "0.2", "--json")
    faults = "loss=0.01,duplicate=0.02,reorder=0.02"
    result = json.loads(bench("--faults", faults, *arguments).stdout)["results"][0]
    core = result["cores"][0]
    assert result["right"] and result["buffers_leaked"] == 0
    assert core["wrong_sums"] == 0 and core["counters_add_up"]
    assert core["jobs"] > 50 and core["faults_injected"] > 5000 and core["resent"] > 1000
    assert core["plain_frames_lost"] == 0 and core["plain_frames"] > 10000


def test_the_highest_lossless_rate_is_found() -> None:
    result = json.loads(bench("--search", "--frames", "20000", "--plain", "0.5", "--json").stdout)["results"][0]
    assert result["lossless_gbit_s"] > 0
    assert result["cores"][0]["latency_us"]["p99"] >= result["cores"][0]["latency_us"]["p50"] > 0


def test_wrong_usage_is_explained() -> None:
    for words, sentence in (
        (("--format", "fp13"), "--format takes fp32"),
        (("--window", "3"), "--window 3: it must be a power of two"),
        (("--workers", "0"), "--workers must be from 1 to 64"),
        (("--device", "net_null0"), "say which switch is at the other end"),
        (("--device", "ring", "--device", "eth1"), "stands for the devices of all workers"),
        (("--device", "eth1", "--workers", "2"), "here each --device is a worker"),
        (("--device", "eth1", "--faults", "loss=0.1"), "--faults needs --device ring"),
        (("--device", "veth", "--switch", "10.0.0.1:7171"), "a lab with a switch of its own"),
        (("--switch", "10.0.0.1:7171"), "at the other end of a --device"),
        (("--protocol", "ethernet"), "--protocol must be netfold, pcie or roce"),
        (("--layout", "per-port", "--search"), "--search is not possible with --layout per-port"),
        (("--protocol", "pcie", "--search"), "--search is not possible with --protocol pcie"),
        (("--protocol", "roce", "--format", "bfp"), "must be fp32 or int32, not bfp"),
        (("--protocol", "pcie", "--workers", "65"), "--workers must be from 1 to 64"),
    ):
        done = CliRunner().invoke(bench_app, words)
        assert done.exit_code == 2 and sentence in " ".join(done.output.split()), done.output


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--dpdk"], "name each with --port"),
        (["--port", "eth7"], "to switch frames of this device, give --dpdk too"),
        (["--dpdk", "--port", "eth7"], "--dpdk needs --bind"),
        (["--dpdk", "--port", "nosuch0", "--bind", "127.0.0.1"], "nor an interface of this machine"),
        (["--dpdk", "--port", "ffff:ff:1f.7", "--bind", "127.0.0.1"], "no PCI device at"),
        (["--dpdk", "--port", "lo", "--bind", "127.0.0.1", "--pcap", "x"], "--pcap is for the switch over sockets"),
    ],
)
def test_the_program_says_what_is_wrong(words: list[str], sentence: str) -> None:
    assert PROGRAM is not None
    done = subprocess.run([PROGRAM, *words], capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 2, done.stderr
    assert sentence in done.stderr
