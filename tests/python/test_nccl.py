"""NCCL's plugin, driven as NCCL drives it (tests/nccl/drive.cc): versions of the interface, bytes, bits, deaths. NCCL's
own loader takes it, where the installed NCCL lets itself be asked without a GPU."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from netfold import _core, native, nccl
from netfold.cli.checks import OK, package
from netfold_lab.lab import netns
from netfold_lab.lab.cluster import Lab
from netfold_lab.lab.spec import LabSpec
from repository import ROOT

VERSIONS = ("8", "10", "11", "12")
TIMEOUT_S = 200.0
REMOTE_ERROR, INVALID_USAGE = 6, 5


@pytest.fixture(scope="module")
def plugin() -> Path:
    found = native.find(native.NCCL_PLUGIN)
    assert found is not None, "`make build` builds it"
    return found


class Driver:
    """The program that drives the plugin."""

    def __init__(self, program: Path, plugin: Path) -> None:
        self._words = [str(program), str(plugin)]

    def run(
        self, task: str, ranks: int, version: str = "12", namespaces: tuple[str, ...] = (), **settings: str
    ) -> tuple[str, str]:
        """The output of the ranks, and the log of the plugin."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("NETFOLD_", "NCCL_"))}
        done = subprocess.run(
            [*self._words, version, str(ranks), task, *namespaces],
            env={**kept, **settings},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=True,
        )
        return done.stdout, done.stderr


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory, plugin: Path) -> Driver:
    program = tmp_path_factory.mktemp("nccl") / "drive"
    flags = ["-std=c++20", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{ROOT / 'bindings' / 'nccl'}"]
    source = ROOT / "tests" / "nccl" / "drive.cc"
    built = subprocess.run(
        ["c++", *flags, str(source), "-o", str(program), "-ldl"], capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stderr
    return Driver(program, plugin)


@pytest.fixture
def switch() -> Iterator[str]:
    running = _core.Switch("127.0.0.1:0")
    yield running.address
    running.close()


LOOPBACK = {"NCCL_SOCKET_IFNAME": "lo"}
ALL_WELL = "ranks that failed: 0\n"


def test_only_the_tables_are_visible(plugin: Path) -> None:
    listed = subprocess.run(["nm", "-D", "--defined-only", str(plugin)], capture_output=True, text=True, check=True)
    names = {line.split()[-1] for line in listed.stdout.splitlines()}
    assert names == {f"nccl{net}Plugin_v{version}" for net in ("Net", "CollNet") for version in VERSIONS}


@pytest.mark.parametrize("version", VERSIONS)
def test_messages_arrive_whole_and_in_order(driver: Driver, version: str) -> None:
    said, _ = driver.run("messages", 2, version, **LOOPBACK)
    assert said == ALL_WELL


@pytest.mark.parametrize("streams", ["1", "7"])
def test_any_number_of_connections(driver: Driver, streams: str) -> None:
    said, logged = driver.run("messages", 3, **LOOPBACK, NETFOLD_TCP_STREAMS=streams, NETFOLD_SECRET="known")
    assert said == ALL_WELL
    assert f"{streams} TCP connections" in logged


def test_a_ring_of_ranks_sums(driver: Driver) -> None:
    assert driver.run("ring", 4, **LOOPBACK)[0] == ALL_WELL


@pytest.mark.parametrize(("version", "ranks"), [("8", 2), ("10", 3), ("11", 2), ("12", 8)])
def test_the_switch_sums_every_type(driver: Driver, switch: str, version: str, ranks: int) -> None:
    said, logged = driver.run("sums", ranks, version, **LOOPBACK, NETFOLD_SWITCH=switch)
    assert said == ALL_WELL, logged


def test_two_switches_share_the_sums(driver: Driver, switch: str) -> None:
    other = _core.Switch("127.0.0.1:0")
    try:
        said, logged = driver.run("sums", 3, **LOOPBACK, NETFOLD_SWITCH=f"{switch},{other.address}")
        assert said == ALL_WELL, logged
        assert logged.count(f"at the switch {other.address}") == 3
        assert other.stats()["link"]["received_bytes"] > 1 << 20
    finally:
        other.close()


def test_large_sums(driver: Driver, switch: str) -> None:
    """64 MiB, eight parts at once."""
    said, _ = driver.run("sums", 2, **LOOPBACK, NETFOLD_SWITCH=switch, DRIVE_BYTES_MAX=str(64 << 20))
    assert said == ALL_WELL


@pytest.mark.parametrize(("task", "dying"), [("killed-in-ring", ("receiver", "sender")), ("killed-in-sums", ())])
def test_a_rank_that_dies_is_an_error_at_once(driver: Driver, switch: str, task: str, dying: tuple[str, ...]) -> None:
    said, logged = driver.run(task, 4, **LOOPBACK, NETFOLD_SWITCH=switch)
    errors = sorted(re.findall(r"^(\w+): status (\d) after a short time$", said, re.MULTILINE))
    assert errors == [(who, str(REMOTE_ERROR)) for who in dying or ("survivor",) * 3]
    assert said.endswith("ranks that failed: 1\n"), "the one that was killed"
    assert re.search(r"WARN NET/Netfold : .*(closed its connection|rank 1 of job)", logged)


def test_ranks_with_other_secrets_are_strangers(driver: Driver) -> None:
    said, logged = driver.run("stranger", 2, **LOOPBACK, DRIVE_DIFFER="NETFOLD_SECRET")
    assert f"stranger: status {INVALID_USAGE} after a short time" in said
    assert said.endswith(ALL_WELL)
    assert "dropped a connection" in logged


TAGGED = {**LOOPBACK, "NETFOLD_SECRET": "known", "NETFOLD_REQUIRE_AUTH": "yes"}


@pytest.mark.parametrize("streams", ["1", "3"])
def test_messages_with_tags(driver: Driver, streams: str) -> None:
    assert driver.run("messages", 3, **TAGGED, NETFOLD_TCP_STREAMS=streams)[0] == ALL_WELL
    assert driver.run("ring", 4, **TAGGED, NETFOLD_TCP_STREAMS=streams)[0] == ALL_WELL


# 64 bytes of a hello, then chunks of 32 + 65536 + 16 bytes: within data, a header, a tag, and the short last chunk.
@pytest.mark.parametrize("change_at", [64 + 40, 64 + 65_584 + 9, 64 + 2 * 65_584 - 3, 64 + 3 * 65_584 + 2000])
def test_a_changed_byte_ends_a_stream_with_tags(driver: Driver, change_at: int) -> None:
    said, logged = driver.run("changed", 2, **TAGGED, NETFOLD_TCP_STREAMS="1", DRIVE_CHANGE_AT=str(change_at))
    assert f"receiver: status {REMOTE_ERROR} after a short time" in said
    assert said.endswith(ALL_WELL), "no wrong byte was taken"
    assert re.search(r"sent bytes with a wrong tag|does not speak as|belongs nowhere", logged)


def test_ranks_that_do_not_all_want_tags_are_strangers(driver: Driver) -> None:
    said, logged = driver.run("stranger", 2, **LOOPBACK, NETFOLD_SECRET="known", DRIVE_DIFFER="NETFOLD_REQUIRE_AUTH")
    assert f"stranger: status {INVALID_USAGE} after a short time" in said
    assert said.endswith(ALL_WELL)
    assert "NETFOLD_REQUIRE_AUTH" in logged


def test_tags_need_a_secret(driver: Driver) -> None:
    said, logged = driver.run("devices", 1, NETFOLD_REQUIRE_AUTH="yes")
    assert said.endswith("ranks that failed: 1\n")
    assert "NETFOLD_SECRET" in logged


def test_devices_are_the_interfaces_that_nccl_may_use(driver: Driver, switch: str) -> None:
    assert "devices 1, for collectives 0, gather 0, dma 0: lo\n" in driver.run("devices", 1, **LOOPBACK)[0]
    everything = driver.run("devices", 1, NCCL_SOCKET_IFNAME="^nothing", NETFOLD_SWITCH=switch)[0]
    assert re.search(r"for collectives 1, .*: lo\b", everything), "the way to the switch comes first"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NETFOLD_TCP_STREAMS", "17"),
        ("NETFOLD_TIMEOUT_S", "soon"),
        ("NETFOLD_FORMAT", "fp8"),
        ("NETFOLD_SWITCH", "a:1,"),
        ("NETFOLD_REQUIRE_AUTH", "perhaps"),
        ("NCCL_SOCKET_IFNAME", "=none"),
    ],
)
def test_a_wrong_setting_is_named(driver: Driver, name: str, value: str) -> None:
    said, logged = driver.run("devices", 1, **{name: value})
    assert said.endswith("ranks that failed: 1\n")
    assert f"{name}={value}" in logged


@pytest.mark.root
@pytest.mark.namespaces
@pytest.mark.usefixtures("nothing_left_behind")
def test_machines_of_their_own(driver: Driver) -> None:
    """Every rank in a network namespace: a ring among them, and sums through a switch in another one."""
    program = native.find(native.SWITCH)
    with Lab(LabSpec(workers=3, rate_mbit_s=0, switch_rate_mbit_s=0)) as lab:
        namespaces = tuple(str(netns.DIRECTORY / lab.worker(rank)) for rank in range(3))
        assert driver.run("ring", 3, namespaces=namespaces)[0] == ALL_WELL
        running = lab.spawn(f"{lab.lab_id}-switch", [str(program)], stderr=subprocess.DEVNULL)
        try:
            address = f"{lab.addresses()['switch']}:7171"
            assert driver.run("sums", 3, namespaces=namespaces, NETFOLD_SWITCH=address)[0] == ALL_WELL
        finally:
            running.terminate()
            running.wait()


@pytest.mark.root
@pytest.mark.namespaces
@pytest.mark.usefixtures("nothing_left_behind")
def test_machines_with_ipv6_only(driver: Driver) -> None:
    name = f"nfnccl{os.getpid()}"
    program = native.find(native.SWITCH)
    in_it = ["ip", "netns", "exec", name]
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        subprocess.run(["ip", "-n", name, "link", "set", "lo", "up"], check=True)
        subprocess.run(["ip", "-n", name, "addr", "del", "127.0.0.1/8", "dev", "lo"], check=True)
        namespaces = (str(netns.DIRECTORY / name),) * 2
        assert driver.run("ring", 2, namespaces=namespaces, **LOOPBACK)[0] == ALL_WELL
        command = [*in_it, str(program), "--bind", "::1"]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as running:
            try:
                said, logged = driver.run("sums", 2, namespaces=namespaces, **LOOPBACK, NETFOLD_SWITCH="[::1]:7171")
            finally:
                running.terminate()
        assert said == ALL_WELL, logged
        assert "at the switch [::1]:7171" in logged
    finally:
        subprocess.run(["ip", "netns", "del", name], check=True)


# NCCL asks for a GPU before it looks for a network. Its loader is a function without a GPU, though, that the library's
# symbols name.
LOAD = """
import ctypes, subprocess, sys
listed = subprocess.run(["nm", sys.argv[1]], capture_output=True, text=True, check=True).stdout
places = {words[2]: int(words[0], 16) for words in map(str.split, listed.splitlines()) if len(words) == 3}
if "_Z11ncclNetInitP8ncclComm" not in places:
    sys.exit("stripped")
library = ctypes.CDLL(sys.argv[1])
unique_id = ctypes.create_string_buffer(128)
assert library.ncclGetUniqueId(unique_id) == 0
base = ctypes.cast(library.ncclGetUniqueId, ctypes.c_void_p).value - places["ncclGetUniqueId"]
load = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(base + places["_Z11ncclNetInitP8ncclComm"])
communicator = ctypes.create_string_buffer(64 << 20)  # zeros: no name of a network is asked for
print("status", load(ctypes.addressof(communicator)))
"""


def test_nccl_itself_loads_it(plugin: Path, switch: str) -> None:
    found = find_spec("nvidia.nccl") if find_spec("nvidia") else None
    libraries = (
        [path for folder in found.submodule_search_locations for path in Path(folder).glob("lib/libnccl.so*")]
        if found
        else []
    )
    if not libraries:
        pytest.skip("no NCCL is installed")
    settings = nccl.variables(plugin.parent, {"NETFOLD_SWITCH": switch, **LOOPBACK})
    done = subprocess.run(
        [sys.executable, "-c", LOAD, str(libraries[0])],
        env={**os.environ, **settings, **LOOPBACK, "NETFOLD_SWITCH": switch, "NCCL_DEBUG": "INFO"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    if done.stderr.strip() == "stripped":
        pytest.skip("this NCCL names no loader")
    assert "status 0" in done.stdout, done.stdout + done.stderr
    for words in (
        "Loaded net plugin Netfold (v12)",
        "Loaded collnet plugin Netfold (v12)",
        "Assigned NET plugin Netfold",
    ):
        assert words in done.stdout


def test_the_command_sets_what_nccl_needs_and_says_so() -> None:
    command = [sys.executable, "-c", "from netfold.cli import main; main()", "nccl", "--", "env"]
    settings = {"NETFOLD_SWITCH": "10.0.0.5:7171", "LD_LIBRARY_PATH": "/opt/lib", "NCCL_ALGO": "ring"}
    done = subprocess.run(command, env={**os.environ, **settings}, capture_output=True, text=True, check=True)
    plugin = native.find(native.NCCL_PLUGIN)
    assert plugin is not None
    for wanted in ("NCCL_NET_PLUGIN=netfold", "NCCL_COLLNET_ENABLE=1", f"LD_LIBRARY_PATH={plugin.parent}:/opt/lib"):
        assert f"{wanted}\n" in done.stdout
        assert f"netfold nccl: {wanted}\n" in done.stderr
    assert "NCCL_ALGO=ring\n" in done.stdout, "what the user has set stays"
    assert "NCCL_COLLNET_ENABLE" not in nccl.variables(plugin.parent, {})


def test_the_doctor_loads_it() -> None:
    [check] = [one for one in package.libraries() if one.name == "libnccl-net-netfold.so"]
    assert check.status == OK
