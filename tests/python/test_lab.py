"""The lab from a user's view: it starts, its links have the requested properties, and it never leaves anything
behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import site
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab_commands import RECEIVER, SENDER, LabCommands, wait_for
from netfold_lab.lab import userns

pytestmark = [pytest.mark.namespaces, pytest.mark.usefixtures("nothing_left_behind")]
NOBODY = 65534
TRANSFER_BYTES = 3_000_000
STREAM = """
import socket, sys, time
if sys.argv[1] == "receive":
    with socket.create_server(("", 9998)) as server:
        print("listening", flush=True)
        server.settimeout(20)
        connection, _ = server.accept()
        begin, total = time.monotonic(), 0
        while data := connection.recv(1 << 16):
            total += len(data)
        print(total, time.monotonic() - begin)
else:
    with socket.create_connection((sys.argv[1], 9998), timeout=20) as connection:
        connection.sendall(bytes(int(sys.argv[2])))
"""
SEGMENTS = """
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
    sender.setsockopt(17, 103, 1472)  # UDP_SEGMENT
    for _ in range(5):
        sender.sendto(bytes(1472 * 20), (sys.argv[1], 9997))
"""


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[LabCommands]:
    commands = LabCommands(tmp_path)
    yield commands
    commands.run("down", check=False)


def on_nodes(lab: LabCommands, receiver: list[str], sender: list[str]) -> list[float]:
    """Run one program on w1 until it listens, and the other on w0; returns the numbers that the first prints."""
    with lab.start("exec", "w1", "--", sys.executable, "-c", *receiver) as receiving:
        assert receiving.stdout is not None
        assert receiving.stdout.readline() == "listening\n"
        lab.run("exec", "w0", "--", sys.executable, "-c", *sender)
        return [float(word) for word in receiving.communicate(timeout=60)[0].split()]


def queue(lab: LabCommands) -> dict:
    """The statistics of w0's link, upwards."""
    return json.loads(lab.run("exec", "w0", "--", "tc", "-s", "-j", "qdisc", "show", "dev", "eth0").stdout)[0]


def test_up_exec_down(lab: LabCommands) -> None:
    report = json.loads(lab.run("up", "--workers", "2", "--json").stdout)
    assert report["results"][0]["addresses"]["w1"] == "10.77.0.11"
    assert "10.77.0.10/24" in lab.run("exec", "w0", "--", "ip", "-br", "address").stdout
    forgotten = lab.start("exec", "w1", "--", "sh", "-c", "echo here; exec sleep 1000")
    assert forgotten.stdout is not None
    assert forgotten.stdout.readline() == "here\n"
    assert report["results"][0]["lab"] in lab.run("down").stdout
    assert forgotten.wait(10) != 0, "a program that ran on a node ends with its lab"
    assert lab.files() == []


def test_links_have_the_rate_that_was_asked(lab: LabCommands) -> None:
    lab.run("up", "--workers", "2", "--rate-mbit-s", "20", "--burst-bytes", "65536")
    total, elapsed_s = on_nodes(lab, [STREAM, "receive"], [STREAM, "10.77.0.11", str(TRANSFER_BYTES)])
    assert total == TRANSFER_BYTES
    least_s = (TRANSFER_BYTES - 2 * 65536) * 8 / 20e6
    assert elapsed_s > 0.9 * least_s
    shaped = queue(lab)
    assert (shaped["kind"], shaped["options"]["rate"]) == ("tbf", 20_000_000 // 8)
    assert TRANSFER_BYTES * 1.04 < shaped["bytes"] < TRANSFER_BYTES * 1.10, "headers of every segment are charged"


def test_segments_of_one_send_are_charged_one_by_one(lab: LabCommands) -> None:
    lab.run("up", "--workers", "2")
    lab.run("exec", "w0", "--", sys.executable, "-c", SEGMENTS, "10.77.0.11")
    sent = queue(lab)
    assert sent["packets"] >= 100
    assert 100 * 1514 <= sent["bytes"] < 100 * 1514 + 5000, "100 full packets, and a little of the kernel's own"


def test_faults_in_the_kernel(lab: LabCommands) -> None:
    lab.run("up", "--workers", "2", "--loss", "0.2", "--duplicate", "0.2", "--reorder", "0.05")
    arrived, different, overtaken = on_nodes(lab, [RECEIVER], [SENDER, "10.77.0.11", "2000", "1000"])
    assert 1450 < different < 1750, "2000 less a fifth"
    assert 1.1 < arrived / different < 1.35, "a fifth of them twice"
    assert overtaken > 10


def test_clean_links_lose_nothing(lab: LabCommands) -> None:
    lab.run("up", "--workers", "2")
    arrived, different, overtaken = on_nodes(lab, [RECEIVER], [SENDER, "10.77.0.11", "1000", "1000"])
    assert (arrived, different) == (1000, 1000)
    assert overtaken < 10, "the kernel's own: packets of one sender pass through queues of several cores"


def test_auto_needs_no_topology(lab: LabCommands) -> None:
    words = (
        "--workers",
        "2",
        "--algorithm",
        "auto",
        "--against",
        "",
        "--size-bytes",
        "4096",
        "--repeat",
        "1",
        "--json",
    )
    (one,) = json.loads(lab.run("run", *words).stdout)["results"]
    assert one["same_bits"]
    assert one["max_abs_error"] < 1e-6


def test_the_uplinks_of_a_tree_carry_each_tensor_once(lab: LabCommands) -> None:
    words = ("--workers", "4", "--leaves", "2", "--size-bytes", "1MiB", "--algorithm", "in-network")
    (one,) = json.loads(lab.run("run", *words, "--against", "none", "--repeat", "1", "--json").stdout)["results"]
    assert one["same_bits"]
    # As much as one worker sends, for two; and their echoes.
    assert 0.95 < one["uplink_bytes_sent"] / one["wire_bytes_sent"] < 1.3


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_while_it_runs(lab: LabCommands, number: signal.Signals) -> None:
    running = start_long_run(lab)
    os.kill(running.pid, number)
    _, complaint = running.communicate(timeout=30)
    assert running.returncode == 1
    assert "interrupted" in complaint
    assert lab.files() == []


def test_killed_then_down(lab: LabCommands) -> None:
    running = start_long_run(lab)
    running.kill()
    running.communicate(timeout=30)
    if os.geteuid() == 0:
        assert lab.files() != [], "no command could remove"
    lab.run("down")
    assert lab.files() == []


def test_the_next_command_clears_what_a_crash_left(lab: LabCommands) -> None:
    running = start_long_run(lab)
    running.kill()
    running.communicate(timeout=30)
    lab.run("up", "--workers", "1")
    assert len(lab.files()) == 1


def test_down_leaves_running_ones_alone(lab: LabCommands) -> None:
    running = start_long_run(lab)
    assert "nothing" in lab.run("down").stdout
    assert running.poll() is None
    lab.run("down", "--all" if os.geteuid() else lab.files()[0])
    running.communicate(timeout=30)
    assert running.returncode == 1


def start_long_run(lab: LabCommands) -> subprocess.Popen[str]:
    """A measurement that would take minutes; returns when its ranks have started."""
    running = lab.start(
        *("run", "--workers", "2", "--algorithm", "none", "--against", "gloo"),
        *("--rate-mbit-s", "10", "--size-bytes", "4194304", "--repeat", "100"),
    )
    wait_for(lambda: running.poll() is not None or any(lab.runtime.glob("*/4MiB.sum.*")), "the first all-reduce")
    assert running.poll() is None, running.communicate()[1]
    time.sleep(0.5)
    return running


@pytest.mark.root
def test_without_root_in_a_user_namespace() -> None:
    lab = unprivileged()
    try:
        lab.run("up", "--workers", "2")
        assert "10.77.0.10/24" in lab.run("exec", "w0", "--", "ip", "-br", "address").stdout
        lab.run("down")
        assert lab.files() == []
        running = start_long_run(lab)
        os.kill(running.pid, signal.SIGINT)
        assert running.wait(30) == 1
        assert lab.files() == []
    finally:
        lab.run("down", "--all", check=False)
        shutil.rmtree(lab.runtime)


@pytest.mark.parametrize(("arguments", "status"), [(("down",), 0), (("down", "nf123456"), 1), (("up", "w0"), 2)])
def test_exit_statuses_pass_through_a_user_namespace(tmp_path: Path, arguments: tuple[str, ...], status: int) -> None:
    environment = {**userns.environment(), "NETFOLD_RUNTIME_DIR": str(tmp_path)}
    done = subprocess.run(userns.command([*arguments]), env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stderr


def unprivileged() -> LabCommands:
    """The commands as user `nobody`, if that user can read an interpreter and the packages."""
    if shutil.which("setpriv") is None:
        pytest.skip("setpriv is not here")
    runtime = Path(tempfile.mkdtemp(prefix="netfold-nobody-"))
    os.chown(runtime, NOBODY, NOBODY)
    packages = os.pathsep.join(site.getsitepackages())
    prefix = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
    prefix += ("env", f"HOME={runtime}", "PYTHONDONTWRITEBYTECODE=1")
    for python in (sys.executable, f"/usr/bin/python3.{sys.version_info.minor}"):
        lab = LabCommands(runtime, python, prefix, more_path=packages)
        try:
            if lab.run("--help", check=False).returncode == 0:
                return lab
        except OSError:
            continue
    shutil.rmtree(runtime)
    pytest.skip("user `nobody` cannot read this interpreter or the packages")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("run", "--workers", "0"), "--workers must be from 1"),
        (("run", "--format", "fp8"), "--format must be one of"),
        (("run", "--against", "nccl"), "--against takes"),
        (("run", "--size-bytes", "10"), "multiple of 4"),
        (("run", "--size-bytes", "many"), "numbers of bytes"),
        (("run", "--loss", "1.5"), "fraction"),
        (("run", "--leaves", "3"), "divide the 8 workers"),
        (("run", "--leaves", "2", "--algorithm", "auto"), "--leaves measures --algorithm in-network"),
        (("run", "--repeat", "0"), "--repeat must be at least 1"),
        (("run", "--algorithm", "tree"), "--algorithm must be one of"),
        (("run", "--algorithm", "none", "--against", ""), "nothing to measure"),
        (("run", "--algorithm", "ring", "--loss", "0.1"), "Use --faults-by kernel"),
        (("run", "--algorithm", "hdrm", "--bigraph", "2x2"), "for 8 ranks"),
        (("run", "--sweep-workers", "8..2"), "ascending"),
        (("run", "--out", "plot.gif"), "--out must end in"),
        (("run", "--out", "plot.png", "--against", ""), "needs --algorithm in-network and a peer"),
        (("run", "--rate-mbit-s", "-1"), "rate must be from 0"),
        (("run", "--rate-mbit-s", "nan"), "rate must be from 0"),
        (("run", "--switch-rate-mbit-s", "inf"), "rate must be from 0"),
        (("run", "--latency-ms", "nan"), "--latency-ms"),
        (("run", "--timeout-s", "nan"), "--timeout-s must be a positive number"),
        (("run", "--timeout-s", "inf"), "--timeout-s must be a positive number"),
        (("run", "--loss", "nan"), "fraction"),
        (("run", "--seed", "-1"), "--seed must be 0 or more"),
        (("run", "--model-sizes", "--scale", "nan"), "--scale"),
        (("up", "--mtu", "100"), "--mtu must be from"),
        (("up", "--burst-bytes", "100"), "must hold a packet"),
        (("down", "w0"), "not a lab's ID"),
        (("run", "--workers", "several"), "parse string as an integer"),
    ],
)
def test_wrong_usage(lab: LabCommands, arguments: tuple[str, ...], sentence: str) -> None:
    done = lab.run(*arguments, check=False)
    assert done.returncode == 2
    assert sentence in " ".join(done.stderr.split())
    assert done.stdout == ""
