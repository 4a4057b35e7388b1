"""Smart NICs behind their driver: the same driver reaches a simulated NIC over a socket, and a PCI device of a guest's
Linux kernel by VFIO. Sums have the bits of the software's ring."""

from __future__ import annotations

import json
import os
import platform
import random
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

import c_example
import test_mpi
import vfio_guest
from netfold import _core
from netfold.errors import NetfoldError
from netfold.torch.options import load
from netfold_lab.lab import names
from netfold_lab.rtl import simulation
from repository import ROOT
from torch_ranks import run_ranks, values

pytestmark = pytest.mark.timeout(600)
SHAPE = simulation.Shape()
START_S = 30.0
RUN_S = 120.0
FRAME_BYTES = 1408  # of payload, at most


@pytest.fixture(scope="module")
def programs() -> Path:
    """The folder of the simulated NIC, netfold-nic, and of the driver's test, drive-nics."""
    return simulation.build(SHAPE, ("netfold-nic", "drive-nics")) / "rtl" / "sim"


@contextmanager
def nic(programs: Path, place: Path, *options: str, prefix: tuple[str, ...] = ()) -> Iterator[subprocess.Popen[str]]:
    """A simulated NIC that listens at `place`."""
    command = [*prefix, str(programs / "netfold-nic"), "--socket", str(place), *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == f"listening at {place}\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def sockets_of(folder: Path) -> list[Path]:
    """The sockets of two NICs."""
    return [folder / f"nic{rank}" for rank in range(2)]


@contextmanager
def two_nics(programs: Path, folder: Path, *options: str) -> Iterator[list[subprocess.Popen[str]]]:
    """Two NICs, at `sockets_of(folder)`, whose frames are datagrams."""
    with ExitStack() as nics:
        yield [nics.enter_context(nic(programs, place, *options)) for place in sockets_of(folder)]


def drive(programs: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the driver's test."""
    command = [programs / "drive-nics", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=RUN_S, check=False)


def said(run: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The object that a good run printed."""
    assert run.returncode == 0, run.stderr
    found: dict[str, Any] = json.loads(run.stdout)
    assert found["differences"] == 0
    return found


@pytest.mark.parametrize("form", [(), ("--bfp",)], ids=["fp32", "bfp"])
def test_sums_over_lossy_cables_have_the_bits_of_the_software(
    programs: Path, tmp_path: Path, form: tuple[str, ...], seed: int
) -> None:
    with two_nics(programs, tmp_path, "--faults", f"loss=0.02,seed={seed}"):
        found = said(drive(programs, *sockets_of(tmp_path), *form, "--seed", str(seed)))
    assert sum(rank["nic_frames_resent"] for rank in found["counters"]) > 0
    assert all(rank["nic_requests"] == 5 and rank["nic_cycles"] > 0 for rank in found["counters"])


@pytest.mark.root
@pytest.mark.namespaces
def test_real_frames_pass_between_interfaces(programs: Path, tmp_path: Path) -> None:
    namespace = f"{names.new_lab_id()}-nic"

    def ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True, capture_output=True)

    ip("netns", "add", namespace)
    try:
        ip("-n", namespace, "link", "add", "w0", "type", "veth", "peer", "name", "w1")
        places = [tmp_path / end for end in ("w0", "w1")]
        with ExitStack() as nics:
            for end, place in zip(("w0", "w1"), places, strict=True):
                ip("-n", namespace, "link", "set", end, "up")
                inside = ("ip", "netns", "exec", namespace)
                nics.enter_context(nic(programs, place, "--interface", end, prefix=inside))
            said(drive(programs, *places, "--bfp"))
            links = ["ip", "-n", namespace, "-s", "-j", "link", "show", "w0"]
            counted = json.loads(subprocess.run(links, capture_output=True, text=True, check=True).stdout)
    finally:
        ip("netns", "delete", namespace)
    assert counted[0]["stats64"]["rx"]["packets"] > 100


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the guest is a PC")
def test_the_linux_kernel_gives_it_to_the_driver_by_vfio(programs: Path, tmp_path: Path) -> None:
    """The driver runs in a guest. The guest's PCI devices are two simulated NICs, behind an IOMMU."""
    guest = vfio_guest.prepare(ROOT / "build" / "vfio-guest")
    sockets = sockets_of(tmp_path)
    with two_nics(programs, tmp_path):
        places = [guest.address(rank) for rank in range(2)]
        status, console = guest.run(programs / "drive-nics", [*places, "--counts", "1,1003,70000"], sockets, RUN_S)
        missing, refusal = guest.run(programs / "drive-nics", [places[0], "0000:00:1f.7"], sockets, RUN_S)
    assert status == 0, console
    found = json.loads(next(line for line in console.splitlines() if line.startswith("{")))
    assert found["differences"] == 0
    assert all(rank["nic_requests"] == 3 for rank in found["counters"])
    assert missing == 1 and "0000:00:1f.7: there is no device there" in refusal, refusal


@pytest.mark.parametrize(
    ("signal_", "why"), [(signal.SIGKILL, "has closed it"), (signal.SIGSTOP, "is its program stopped?")]
)
def test_a_nic_that_ends_is_an_error(programs: Path, tmp_path: Path, signal_: signal.Signals, why: str) -> None:
    with two_nics(programs, tmp_path) as (_, victim):
        counts = ",".join(["2000000"] * 20)
        command = [programs / "drive-nics", *sockets_of(tmp_path), "--counts", counts]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as driving:
            assert victim.stderr is not None
            assert "a program drives this NIC" in victim.stderr.readline()
            time.sleep(1.0)  # in the middle: all of it takes many seconds
            victim.send_signal(signal_)
            _, error = driving.communicate(timeout=60)
    assert driving.returncode == 1
    assert why in error, error


def test_a_nic_serves_one_program(programs: Path, tmp_path: Path) -> None:
    with nic(programs, tmp_path / "nic"):
        place = str(tmp_path / "nic")
        refused = drive(programs, place, place)
        assert refused.returncode == 1
        assert "does another program drive the device?" in refused.stderr


def test_a_socket_without_a_nic_is_an_error(programs: Path, tmp_path: Path) -> None:
    refused = drive(programs, str(tmp_path / "nowhere"), str(tmp_path / "nowhere"))
    assert refused.returncode == 1
    assert "nowhere: No such file" in refused.stderr


def _hostile(prng: random.Random) -> bytes:
    """A message of vfio-user with random parts."""
    command = prng.choice([*range(1, 17), prng.randrange(1 << 16)])
    body = prng.randbytes(prng.choice([0, 4, 16, 20, 24, 32, 48]))
    if prng.random() < 0.5:  # an access of the registers or of the configuration space that may be whole
        offset = prng.choice([prng.randrange(0x1000) & ~3, prng.randrange(0x100), (1 << 64) - 4])
        size = prng.choice([1, 2, 4, 8, 4096, 0xFFFFFFFF])
        body = struct.pack("<QII", offset, prng.choice([0, 7, 9]), size) + prng.randbytes(min(size, 64))
        command = prng.choice([9, 10])
    length = 16 + len(body) if prng.random() < 0.97 else prng.randrange(1 << 32)
    return struct.pack("<HHIII", 1, command, length, prng.choice([0] * 9 + [0x10] * 9 + [1]), 0) + body


def test_hostile_programs_do_not_end_it(programs: Path, tmp_path: Path, seed: int) -> None:
    prng = random.Random(seed)
    places = sockets_of(tmp_path)
    with two_nics(programs, tmp_path):
        for _ in range(40):
            with socket.socket(socket.AF_UNIX) as client:
                client.settimeout(5)
                client.connect(str(places[0]))
                try:
                    for _ in range(50):
                        client.sendall(_hostile(prng))
                except OSError:
                    continue  # it has closed the socket
        said(drive(programs, *places, "--counts", "1000"))


def _in_two_groups(rank: int) -> list[tuple[bytes, int]]:
    """A sum in the default group, and one in a group that comes while the first drives the NIC."""
    from netfold.torch.backend import backend_of

    found = []
    for group in (dist.group.WORLD, dist.new_group(backend="netfold")):
        tensor = torch.full((1000,), rank + 0.5)
        dist.all_reduce(tensor, group=group)
        backend = backend_of(group)  # type: ignore[arg-type]
        assert backend is not None
        found.append((tensor.numpy().tobytes(), backend.stats().get("nic_requests", 0)))
    return found


def test_a_second_group_sums_in_software(programs: Path, tmp_path: Path) -> None:
    with two_nics(programs, tmp_path):
        environment = {"NETFOLD_NIC": f"{tmp_path}/nic{{rank}}", "NETFOLD_ALGORITHM": "ring"}
        ranks = values(run_ranks(_in_two_groups, environment=environment))
    assert [[requests for _, requests in rank] for rank in ranks] == [[1, 0], [1, 0]]
    assert len({sums for rank in ranks for sums, _ in rank}) == 1


def frames_of_programs(simulated: subprocess.Popen[str], programs: int) -> list[int]:
    """The frames that a NIC sent for each of these programs, which have ended."""
    assert simulated.stderr is not None
    lines = [simulated.stderr.readline() for _ in range(2 * programs)]
    return [int(line.split()[-2]) for line in lines if "has gone" in line]


def test_c_programs_sum_through_it(programs: Path, tmp_path: Path) -> None:
    example = c_example.build(tmp_path)

    def run(**more: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "NETFOLD_NIC": f"{tmp_path}/nic{{rank}}", **more}
        words = [example, "2", "100003", "2"]
        return subprocess.run(words, capture_output=True, text=True, timeout=RUN_S, check=False, env=environment)

    with two_nics(programs, tmp_path) as simulated:
        done = run()
        assert done.returncode == 0, done.stderr  # it checks every element
        for each in simulated:
            assert frames_of_programs(each, 1)[0] > 3 * 100003 * 4 // FRAME_BYTES
        assert "leave out roce or nic" in run(NETFOLD_ROCE="eth0").stderr


@test_mpi.needs_mpi
def test_mpi_programs_sum_through_it(programs: Path, tmp_path: Path) -> None:
    place = f"{tmp_path}/nic{{rank}}"
    with two_nics(programs, tmp_path) as simulated:
        done = test_mpi.run_ranks("through_nics", 2, NETFOLD_NIC=place)
        assert test_mpi.taken_over(done) == 6 + test_mpi.SUMS
        frames = [frames_of_programs(each, 4) for each in simulated]
    assert all(count > 70_003 * 4 // FRAME_BYTES for of_nic in frames for count in of_nic)


@pytest.mark.parametrize("text", ["65:00.0", "0000:65:00.0,bar=6", "0000:65:00.0,offset=2", "eth1", "", "/x,bar"])
def test_a_wrong_place_is_explained(text: str) -> None:
    with pytest.raises(NetfoldError, match=r"0000:65:00\.0,bar=2,offset=0x1000"):
        _core.check_nic_place(text)


def test_settings() -> None:
    chosen = load(None, {"NETFOLD_NIC": "0000:65:00.0,bar=2,offset=0x1000"})
    assert (chosen.engine, chosen.algorithm) == ("nic", "ring")
    for wrong, why in (
        ({"NETFOLD_ENGINE": "nic"}, "needs NETFOLD_NIC"),
        ({"NETFOLD_NIC": "simulated", "NETFOLD_ALGORITHM": "direct"}, "ring of NICs"),
        ({"NETFOLD_NIC": "simulated", "NETFOLD_ENGINE": "agent"}, "unset one of them"),
        ({"NETFOLD_NIC": "simulated", "NETFOLD_REQUIRE_AUTH": "yes"}, "no tags"),
        ({"NETFOLD_NIC": "eth1"}, "does not name a device"),
    ):
        with pytest.raises(ValueError, match=why):
            load(None, wrong)


def test_the_simulated_nic_ends_with_its_process(programs: Path, tmp_path: Path) -> None:
    with (
        subprocess.Popen(["sleep", "60"]) as process,
        nic(programs, tmp_path / "nic", "--end-with", str(process.pid)) as simulated,
    ):
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert simulated.wait(START_S) == 0
    assert not (tmp_path / "nic").exists()


def test_the_doctor_looks_at_it(programs: Path, tmp_path: Path) -> None:
    def doctor(place: str) -> tuple[int, str]:
        command = [sys.executable, "-m", "netfold.cli", "doctor", "--nic", place]
        done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S, check=False)
        return done.returncode, done.stdout

    with nic(programs, tmp_path / "nic"):
        status, text = doctor(str(tmp_path / "nic"))
    assert status == 0
    assert "8 lanes, bfp 16,7" in text and "MSI" in text, text
    status, text = doctor(str(tmp_path / "nic"))
    assert status == 1 and "cannot reach" in text, text


def test_the_command_runs_one(programs: Path, tmp_path: Path) -> None:
    place = tmp_path / "nic"
    command = [sys.executable, "-m", "netfold.cli", "rtl", "nic", str(place)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == f"listening at {place}\n"
        running.send_signal(signal.SIGINT)
        assert running.wait(START_S) == 0
    assert not place.exists()
