"""RoCE through the switch, frame by frame: against frames of scapy, and whole jobs over packet sockets."""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
from pathlib import Path

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
import typer
from scapy.contrib.roce import BTH
from scapy.layers.inet import IP
from typer.testing import CliRunner

import netfold
from netfold import _core
from netfold.errors import NetfoldError
from netfold_lab.bench import roce as bench
from netfold_lab.lab import names, netns
from netfold_lab.lab.cables import Cables
from roce_frames import (
    ACKNOWLEDGE,
    ETHERNET,
    FIRST,
    LAST,
    ONLY,
    RETH,
    SUMMED_FLAG,
    SUMMED_IMMEDIATE,
    SUMMED_LABEL,
    Connection,
    aggregation_header,
    elements_of,
    fields_by_tshark,
    frames_marked_by_tshark,
    icrc,
    mac,
    read,
)

GOLDEN = {  # captured from hardware, without FCS
    "write only": (
        "7cfe90753cd87cfe90753cd889156020000000281b4000000000000000000000ffff0f00000200000000000000000000ffff0f000002"
        "0a70ffff0000010a80a788bc000055d4c0726000000047b3000000050000000001000000e3d856bb"
    ),
    "acknowledge": (
        "7cfe90753cd87cfe90753cd889156020000000141b4000000000000000000000ffff0f00000200000000000000000000ffff0f000002"
        "1140ffff0000010900a788c00000000525f0c038"
    ),
}
# A congestion notice of RoCE v2, captured on a ConnectX-4 Lx.
GOLDEN_V2 = (
    "e41d2dab2bc27cfe90643b32080045c2003c718c4000401191610a0011010a001201000012b7002800008100ffff4000"
    "0118000000000000000000000000000000000000000082fd002a"
)
FP32, INT32 = 1, 4
FIRST_ROOM = 1004


class Ring:
    """Workers at ports 0, 1, ... of a switch, each writing to the next. The switch knows their ports."""

    def __init__(self, world: int, version: int = 1, **options: float) -> None:
        self.world = world
        self.switch = _core.FramePipeline(world, **options)
        self.connections = [
            Connection(mac(rank), mac((rank + 1) % world), 0x200 + rank, rank + 1, (rank + 1) % world + 1, version)
            for rank in range(world)
        ]
        for rank, connection in enumerate(self.connections):
            # Sent to itself: the address is learnt, and no other port gets the frame.
            to_itself = Connection(connection.source, connection.source, version=version)
            assert self.switch.offer(rank, to_itself.frame(ACKNOWLEDGE, 0, b"\x1f\x00\x00\x00")) == []

    def offer(self, rank: int, frame: bytes, time_s: float = 0.0) -> list[tuple[int, bytes]]:
        return self.switch.offer(rank, frame, time_s)

    def counts(self) -> dict[str, int]:
        return {name: count for name, count in self.switch.counts().items() if count}


@pytest.mark.parametrize("name", GOLDEN)
def test_the_icrc_of_the_tests_is_that_of_hardware(name: str) -> None:
    frame = bytes.fromhex(GOLDEN[name])
    assert icrc(frame[ETHERNET:-4]) == frame[-4:]
    read(frame)


def test_the_icrc_of_version_2_is_that_of_hardware_and_of_scapy() -> None:
    packet = bytes.fromhex(GOLDEN_V2)[ETHERNET:]
    assert icrc(packet[:-4]) == packet[-4:]
    frame = Connection(mac(0), mac(1), version=2).frame(LAST, 77, bytes(range(64)))
    read(frame)
    by_scapy = IP(frame[ETHERNET:])
    del by_scapy[BTH].icrc
    assert bytes(by_scapy)[-4:] == frame[-4:]


@hypothesis.given(
    version=st.sampled_from([1, 2]),
    world=st.integers(2, 8),
    sizes=st.lists(st.integers(FIRST_ROOM // 4 + 1, 2500), min_size=1, max_size=7),
    first_psn=st.one_of(st.integers(0, 2**24 - 1), st.integers(2**24 - 9, 2**24 - 1)),
    fmt=st.sampled_from([0, FP32, INT32]),
    immediate=st.booleans(),
    seed=st.integers(0, 2**32),
)
@hypothesis.settings(max_examples=40)
def test_every_worker_gets_the_fold_under_its_own_headers(
    version: int, world: int, sizes: list[int], first_psn: int, fmt: int, immediate: bool, seed: int
) -> None:
    random = np.random.default_rng(seed)
    ring = Ring(world, version)
    psns = [(first_psn + 1000 * rank) & 0xFFFFFF for rank in range(world)]
    for message, count in enumerate(sizes):
        if fmt == INT32:
            values = random.integers(-(2**31), 2**31, (world, count), np.int32)
            expected = netfold.fold(list(values), "int32")
        else:
            values = random.standard_normal((world, count), np.float32)
            expected = netfold.fold(list(values))
        sent = [
            ring.connections[rank].message(
                psns[rank],
                aggregation_header(rank, message, 4 * count, fmt=fmt),
                values[rank].tobytes(),
                message if immediate else None,
            )
            for rank in range(world)
        ]
        sums: dict[int, list[bytes]] = {rank: [] for rank in range(world)}
        order = [(rank, index) for rank in range(world) for index in range(len(sent[0]))]
        random.shuffle(order)
        order.sort(key=lambda place: place[1] > 0)  # a message's first packet opens it
        for rank, index in order:
            for port, frame in ring.offer(rank, sent[rank][index]):
                sums[port].append(frame)
        for rank in range(world):
            received = sorted(
                (read(frame) for frame in sums[(rank + 1) % world]), key=lambda r: r.psn - psns[rank] & 0xFFFFFF
            )
            assert [one.psn for one in received] == [(psns[rank] + i) & 0xFFFFFF for i in range(len(sent[rank]))]
            assert b"".join(elements_of(one, i) for i, one in enumerate(received)) == expected.tobytes()
            for one, original in zip(received, map(read, sent[rank]), strict=True):
                assert (one.destination, one.opcode, one.queue_pair) == (
                    mac((rank + 1) % world),
                    original.opcode,
                    0x200 + rank,
                )
                assert one.is_sum and not original.is_sum
            assert received[0].body[:RETH] == read(sent[rank][0]).body[:RETH]
            assert received[0].body[RETH + 3] == SUMMED_FLAG
            if immediate:
                assert struct.unpack("!I", received[-1].body[:4])[0] == message | SUMMED_IMMEDIATE
        psns = [(psn + len(sent[0])) & 0xFFFFFF for psn in psns]
    assert ring.switch.counts()["buffers_in_use"] == 0


def two_messages(ring: Ring, count: int = 600) -> tuple[list[list[bytes]], np.ndarray]:
    """One message of each of two workers, of 3 packets, and their sum."""
    values = np.arange(2 * count, dtype=np.float32).reshape(2, count)
    sent = [
        ring.connections[rank].message(7, aggregation_header(rank, 0, 4 * count, fmt=FP32), values[rank].tobytes())
        for rank in range(2)
    ]
    return sent, values[0] + values[1]


def test_what_comes_again_is_answered_with_the_kept_sum() -> None:
    ring = Ring(2)
    sent, total = two_messages(ring)
    for frame in sent[0]:
        assert ring.offer(0, frame) == []
    waiting = ring.offer(0, sent[0][1])  # the other worker's is not here
    assert [port for port, _ in waiting] == [0]
    assert struct.unpack("!HBBHHHHI", waiting[0][1][ETHERNET : ETHERNET + 16]) == (0x4E46, 0x10, 0, 1, 1, 1, 1, 0)
    for frame in sent[1]:
        assert sorted(port for port, _ in ring.offer(1, frame)) == [0, 1]
    again = ring.offer(0, sent[0][1])
    assert [port for port, _ in again] == [1]
    assert elements_of(read(again[0][1]), 1) == total.tobytes()[FIRST_ROOM : FIRST_ROOM + 1024]
    assert ring.counts() == {
        "roce_v1_forwarded": 2,
        "roce_v1_kept": 3,
        "roce_v1_waiting": 1,
        "roce_v1_folded": 3,
        "roce_v1_answered": 1,
        "roce_v1_epochs": 1,
    }


def test_table_six_forwards_what_is_not_for_folding() -> None:
    ring = Ring(2)
    connection = ring.connections[0]
    plain = [
        connection.frame(FIRST, 5, struct.pack("!QII", 0, 0, 2048) + bytes(1024)),  # no aggregation header
        connection.frame(7, 6, bytes(1024)),  # of a queue pair that does not fold
        connection.frame(8, 7, bytes(64)),
        connection.frame(ONLY, 8, struct.pack("!QII", 0, 0, 100) + aggregation_header(0, 0, 80) + bytes(80)),
        connection.frame(0x04, 9, b"a send"),
        connection.frame(0x00, 9, b"not RoCE", ethernet=0x0101),
    ]
    for frame in plain:
        assert ring.offer(0, frame) == [(1, frame)]


def damaged(frame: bytes, at: int, value: int = 0xFF) -> bytes:
    """The frame with another byte and a matching ICRC."""
    changed = bytearray(frame)
    changed[at] ^= value
    packet = bytes(changed[ETHERNET:-4])
    return bytes(changed[:ETHERNET]) + packet + icrc(packet)


def test_what_is_wrong_is_dropped_under_its_name() -> None:
    ring = Ring(2)
    sent, _ = two_messages(ring)
    first, middle, last = sent[0]
    wrong_icrc = middle[:100] + bytes([middle[100] ^ 1]) + middle[101:]
    assert ring.offer(0, first) == []
    aggregation = ETHERNET + 40 + 12 + RETH
    cases = {
        "icrc": wrong_icrc,
        "malformed": middle[:80],
        "header": damaged(first, aggregation + 3),
        "epoch": damaged(first, aggregation + 7, 1),  # epoch 0
        "rank": damaged(first, aggregation + 9, 1),
        "spoofed": damaged(middle, 11),  # another source address
        "order": damaged(first, aggregation + 15, 9),
        "shape": damaged(last, ETHERNET + 40, 8 ^ 7),  # a Middle that is too short
    }
    for reason, frame in cases.items():
        assert ring.offer(0, frame) == [], reason
        assert ring.counts()[f"roce_v1_drop_{reason}"] == 1, ring.counts()
    stray = ring.connections[0].frame(7, 400, bytes(1024))
    notice = ring.offer(0, stray)  # told which one it was
    assert notice[0][0] == 0 and notice[0][1][12:14] == b"\x88\xb5"
    assert ring.counts()["roce_v1_drop_psn"] == 1


def test_contributions_of_a_dead_worker_are_released() -> None:
    ring = Ring(2, age_s=2.0)
    sent, _ = two_messages(ring)
    for frame in sent[0]:
        ring.offer(0, frame, 1.0)
    assert ring.switch.counts()["buffers_in_use"] == 3
    ring.switch.pump(2.5)
    assert ring.switch.counts()["buffers_in_use"] == 3
    ring.switch.pump(3.5)
    assert ring.switch.counts()["buffers_in_use"] == 0
    assert ring.counts()["roce_v1_aged"] == 3
    for rank in (1, 0):  # both come again: nothing is lost but time
        answers = [answer for frame in sent[rank] for answer in ring.offer(rank, frame, 4.0)]
    assert len(answers) == 6


def test_an_epoch_that_began_with_a_refused_packet_lives_as_long_as_any_other() -> None:
    ring = Ring(2)
    sent, _ = two_messages(ring)
    ring.offer(0, sent[0][0], 200.0)
    foreign = ring.connections[0].message(0, aggregation_header(0, 0, 1200, job=2), bytes(1200))
    ring.offer(0, foreign[0], 200.1)  # job 1's connection
    ring.switch.pump(200.4)
    ring.offer(0, foreign[0], 200.5)
    assert (ring.counts()["roce_v1_drop_spoofed"], ring.counts()["roce_v1_epochs"]) == (2, 2)


def test_the_registers_are_a_view_of_the_configuration() -> None:
    switch = _core.FramePipeline(8)
    assert switch.registers == (1, 8 << 27 | 0xFF)
    switch.set_registers(0, 4 << 27 | 0xF0)  # the paper's example: ports 5 to 8
    assert switch.registers == (0, 4 << 27 | 0xF0)
    switch.configure([0, 1, 2], is_float=True)
    assert switch.registers == (1, 3 << 27 | 0x7)
    for mode, ports in ((0, 3 << 27 | 0xF0), (2, 4 << 27 | 0xF0), (0, 4 << 27 | 1 << 26 | 0xF0), (0, 0)):
        with pytest.raises(NetfoldError):
            switch.set_registers(mode, ports)


def test_integers_where_the_switch_is_set_so() -> None:
    ring = Ring(2)
    ring.switch.set_registers(0, 2 << 27 | 0x3)
    values = np.array([[2**31 - 1] * 300, [1] * 300], np.int32)
    answers = []
    for rank in range(2):
        frames = ring.connections[rank].message(0, aggregation_header(rank, 0, 1200), values[rank].tobytes())
        answers = [answer for frame in frames for answer in ring.offer(rank, frame)]
    first = next(read(frame) for port, frame in answers if port == 0)
    assert elements_of(first, 0) == np.full(251, -(2**31), np.int32).tobytes()


def is_sum(frame: bytes) -> bool:
    """The switch marks damaged frames; a frame that the damage excludes from folding passes unchanged."""
    return int.from_bytes(frame[ETHERNET + 1 : ETHERNET + 4], "big") & 0xFFFFF == SUMMED_LABEL


@hypothesis.given(st.data())
@hypothesis.settings(max_examples=100)
def test_hostile_bytes_change_no_sum(data: st.DataObject) -> None:
    ring = Ring(2)
    sent, total = two_messages(ring)
    received = bytearray(total.nbytes)
    for index in range(3):
        for rank in range(2):
            frame = bytearray(sent[rank][index])
            for at in data.draw(st.lists(st.integers(12, len(frame) - 1), min_size=1, max_size=4)):
                frame[at] ^= data.draw(st.integers(1, 255))
            cut = data.draw(st.integers(0, len(frame)))
            hostile = bytes(frame[:cut]) if data.draw(st.booleans()) else bytes(frame)
            for port, answer in ring.offer(rank, hostile) + ring.offer(rank, sent[rank][index]):
                if port == 0 and answer[12:14] == b"\x89\x15" and is_sum(answer):
                    at = 0 if index == 0 else FIRST_ROOM + (index - 1) * 1024
                    part = elements_of(read(answer), index)
                    received[at : at + len(part)] = part
    assert bytes(received) == total.tobytes()


@pytest.mark.root
@pytest.mark.namespaces
@pytest.mark.parametrize("version", [1, 2])
def test_eight_endpoints_at_one_percent_loss_have_the_bits_of_the_software_fold(version: int, tmp_path: Path) -> None:
    capture = tmp_path / "rank0.pcap"
    plan = bench.RoceSettings(workers=8, size_bytes=400_000, loss=0.01, repeat=1, timeout_s=30, version=version)
    entry = bench.measure(plan, lambda what: None, capture)
    assert entry["ranks_with_wrong_bits"] == 0
    assert entry["workers_counters"]["resent_writes"] > 0
    assert entry["switch_counters"][f"roce_v{version}_answered"] > 0
    if shutil.which("tshark") is None:
        pytest.skip("no tshark")
    assert frames_marked_by_tshark(capture) == ""
    from scapy.utils import RawPcapReader

    ether_type = {1: b"\x89\x15", 2: b"\x08\x00"}[version]
    frames = [frame for frame, _ in RawPcapReader(str(capture)) if frame[12:14] == ether_type]
    assert len(frames) > 200
    ours = [read(frame) for frame in frames]  # tshark does not check the ICRC; this does
    assert fields_by_tshark(capture) == [(one.opcode, one.queue_pair, one.psn) for one in ours]


def ip(namespace: str, words: str) -> None:
    """Run `ip` in a namespace."""
    subprocess.run(["ip", "-n", namespace, *words.split()], check=True)


@pytest.mark.root
@pytest.mark.namespaces
def test_version_2_passes_a_router_between_two_networks() -> None:
    settings = bench.RoceSettings(workers=2, size_bytes=200_000, version=2, timeout_s=20)
    right = bench.expected_checksums(settings)
    with Cables(3) as cables:
        router = cables.worker(2)
        for rank in range(2):
            ip(cables.worker(rank), f"address add 10.{rank}.0.2/24 dev {names.INTERFACE}")
            ip(router, f"address add 10.{rank}.0.1/24 dev {names.INTERFACE}")
        netns.configure(router, {"net/ipv4/ip_forward": "1", "net/ipv4/conf/all/send_redirects": "0"})
        options = bench.options_of_ranks(settings, None)
        for rank in range(2):
            ip(cables.worker(rank), f"route add default via 10.{rank}.0.1")
        with bench.switched(cables, "software", "worker", options, 20, ports=[0, 1]) as (switches, workers):
            for worker in workers:
                worker.tell("go")
            answers = [worker.hear() for worker in workers]
            counts = bench.counters_of(switches)
    assert [answer["crc32"] for answer in answers] == right
    assert counts["roce_v2_folded"] >= 48
    assert counts["port2_forwarded"] > 100, "sums pass the router"


def program() -> typer.Typer:
    """The command in `netfold bench`."""
    app = typer.Typer()
    app.callback()(lambda: None)
    bench.register(app)
    return app


@pytest.mark.root
@pytest.mark.namespaces
@pytest.mark.parametrize("wire", ["bfp", "int32"])
def test_the_command_checks_every_bit(wire: str) -> None:
    words = ["roce", "--workers", "3", "--size-bytes", "100000", "--format", wire, "--repeat", "1", "--json"]
    done = CliRunner().invoke(program(), words)
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert report["results"][0]["ranks_with_wrong_bits"] == 0
    assert report["results"][0]["protocol"] == "roce"


@pytest.mark.root
@pytest.mark.namespaces
@pytest.mark.parametrize(
    ("collective", "version", "wire"),
    [
        ("reduce-scatter", "2", "bfp"),
        ("reduce-scatter", "1", "fp32"),
        ("all-gather", "2", "fp32"),
        ("broadcast", "1", "fp32"),
    ],
)
def test_the_command_checks_every_bit_of_a_collective(collective: str, version: str, wire: str) -> None:
    words = ["roce", "--workers", "3", "--size-bytes", "1200000", "--collective", collective, "--version", version]
    done = CliRunner().invoke(program(), [*words, "--format", wire, "--loss", "0.01", "--repeat", "1", "--json"])
    assert done.exit_code == 0, done.output
    [report] = json.loads(done.stdout)["results"]
    assert report["ranks_with_wrong_bits"] == 0
    assert report["workers_counters"]["resent_writes"] > 0


@pytest.mark.root
@pytest.mark.namespaces
@pytest.mark.parametrize(("version", "wire"), [("2", "fp32"), ("1", "bfp")])
def test_the_command_checks_every_bit_of_a_tree_of_switches(version: str, wire: str) -> None:
    words = ["roce", "--workers", "6", "--leaves", "3", "--size-bytes", "400000", "--version", version]
    done = CliRunner().invoke(program(), [*words, "--format", wire, "--loss", "0.01", "--repeat", "1", "--json"])
    assert done.exit_code == 0, done.output
    [report] = json.loads(done.stdout)["results"]
    assert report["ranks_with_wrong_bits"] == 0
    assert report["workers_counters"]["resent_writes"] > 0
    assert f"roce_v{version}_drop_not_summed" not in report["switch_counters"]  # only counters above 0


@pytest.mark.parametrize(
    "words",
    [
        ["--workers", "1"],
        ["--workers", "6", "--leaves", "4"],
        ["--workers", "6", "--leaves", "2", "--collective", "broadcast"],
        ["--size-bytes", "3"],
        ["--format", "fp8"],
        ["--loss", "0.9"],
        ["--collective", "gather"],
        ["--collective", "all-gather", "--workers", "3", "--size-bytes", "4096"],
    ],
)
def test_wrong_usage_says_so(words: list[str]) -> None:
    assert CliRunner().invoke(program(), ["roce", *words]).exit_code == 2


def test_a_place_names_device_version_job_and_the_longest_message() -> None:
    assert _core.parse_roce_place("eth{rank}", 3) == ("eth3", False, 2, 1, 128, False)
    assert _core.parse_roce_place("mlx5_0,verbs,version=1,packets=8,job=9") == ("mlx5_0", True, 1, 9, 8, False)
    assert _core.parse_roce_place("eth1,one-way,job=9") == ("eth1", False, 2, 9, 128, True)
    with pytest.raises(NetfoldError, match="an RDMA NIC has no one-way messages"):
        _core.parse_roce_place("mlx5_0,one-way,verbs")
    for wrong in ("packets=1", "packets=129", "packets=8x", "packets=", "packet=8", "job=x"):
        with pytest.raises(NetfoldError, match="packets=NUMBER \\(of a message, 2 to 128\\)"):
            _core.parse_roce_place(f"eth1,{wrong}")


def test_errors_of_a_worker_say_what_to_do() -> None:
    with pytest.raises(NetfoldError, match="nosuch0"):
        _core.RoceGroup("nosuch0", 0, 2)
    with pytest.raises(NetfoldError, match="two at least"):
        _core.RoceGroup("lo", 0, 1)
    with pytest.raises(ValueError, match="2 to 128 packets"):
        _core.RoceGroup("lo", 0, 2, message_packets=1)


def test_a_machine_without_an_rdma_device_says_so() -> None:
    if list(Path("/sys/class/infiniband").glob("*")):
        pytest.skip("this machine has one")
    with pytest.raises(NetfoldError, match=r"no RDMA device|libibverbs"):
        _core.RoceGroup("", 0, 2, verbs=True)
