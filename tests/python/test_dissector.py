"""The Wireshark dissector with packets written from PROTOCOL.md, not by the core."""

from __future__ import annotations

import json
import math
import shutil
import struct
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

SCRIPT = Path(__file__).parents[2] / "tools" / "wireshark" / "netfold.lua"
LINKTYPE_RAW, LINKTYPE_ETHERNET = 101, 1
SWITCH_PORT, WORKER_PORT = 48620, 48621
NO_WORKER = 0xFFFF
TAG = bytes(range(0xA0, 0xB0))

KINDS = {"contribution": 0, "result": 1, "probe": 2, "missing": 3, "waiting": 4, "await": 5, "complete": 6, "echo": 7}
KINDS |= {"scatter": 8, "copy": 9, "copied": 10, "done": 11}
FORMATS = {"none": 0, "fp32": 1, "fp16": 2, "bf16": 3, "int32": 4, "bfp": 5}

pytestmark = pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed: make test installs it")


@dataclass
class Packet:
    """A data packet by PROTOCOL.md, as `bytes_on_wire`. A test can make any field wrong."""

    kind: str | int = "contribution"
    format: str | int = "none"
    count: int = 0
    payload: bytes = b""
    chunk: int = 0x00012345
    slot: int | None = None
    worker: int = 3
    job: int = 0x0102
    epoch: int = 0x0304
    version: int = 1
    last: bool = False
    average: bool = False
    tag: bytes = b""
    other_flags: int = 0

    def numbers(self) -> tuple[int, int, int, int]:
        kind = KINDS[self.kind] if isinstance(self.kind, str) else self.kind
        format_ = FORMATS[self.format] if isinstance(self.format, str) else self.format
        flags = (1 if self.tag else 0) | (2 if self.last else 0) | (4 if self.average else 0) | self.other_flags
        slot = self.chunk % 512 if self.slot is None else self.slot
        return kind, format_, flags, slot

    def bytes_on_wire(self) -> bytes:
        kind, format_, flags, slot = self.numbers()
        first, second = self.version << 4 | kind, format_ << 4 | flags
        fields = (first, second, self.job, self.epoch, self.worker, slot, self.count, self.chunk)
        return struct.pack("!BBHHHHHI", *fields) + self.payload + self.tag


def bfp_payload(blocks: Sequence[tuple[int, Sequence[int]]], mantissa: int) -> bytes:
    """Blocks of (exponent, mantissas), the mantissas as two's complement of m + 1 bits from the lowest bit up."""
    payload = b""
    for exponent, values in blocks:
        bits = sum((value % 2 ** (mantissa + 1)) << i * (mantissa + 1) for i, value in enumerate(values))
        payload += bytes([exponent]) + bits.to_bytes(len(values) * (mantissa + 1) // 8, "little")
    return payload


def udp_frame(payload: bytes, link_type: int, source: int = WORKER_PORT, destination: int = SWITCH_PORT) -> bytes:
    udp = struct.pack("!HHHH", source, destination, 8 + len(payload), 0) + payload
    ip = struct.pack(
        "!BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), 0, 0, 64, 17, 0, bytes([10, 0, 0, 1]), bytes([10, 0, 0, 2])
    )
    ethernet = bytes(12) + b"\x08\x00" if link_type == LINKTYPE_ETHERNET else b""
    return ethernet + ip + udp


def write_pcap(path: Path, frames: Sequence[bytes], link_type: int = LINKTYPE_RAW, snap_bytes: int = 65535) -> Path:
    with path.open("wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, snap_bytes, link_type))
        for number, frame in enumerate(frames):
            kept = frame[:snap_bytes]
            file.write(struct.pack("<IIII", number, 0, len(kept), len(frame)) + kept)
    return path


def run_tshark(path: Path, *options: str) -> list[dict[str, Any]]:
    """The layers of every frame as tshark prints them, with "netfold" if the dissector accepted it."""
    command = ["tshark", "-X", f"lua_script:{SCRIPT}", "-r", str(path), "-T", "json", "--no-duplicate-keys", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "Lua" not in done.stderr, done.stderr
    return [frame["_source"]["layers"] for frame in json.loads(done.stdout)]


def dissect(tmp_path: Path, packets: Sequence[Packet], *options: str, **capture: int) -> list[dict[str, Any]]:
    frames = [udp_frame(packet.bytes_on_wire(), capture.get("link_type", LINKTYPE_RAW)) for packet in packets]
    return run_tshark(write_pcap(tmp_path / "packets.pcap", frames, **capture), *options)


def dissect_at_port(tmp_path: Path, packets: Sequence[Packet], *options: str, **capture: int) -> list[dict[str, Any]]:
    return dissect(tmp_path, packets, "-o", f"netfold.port:{SWITCH_PORT}", *options, **capture)


def find_all(tree: object, name: str) -> list[str]:
    """Every value of a field in order, at any place in the tree."""
    found: list[str] = []
    if isinstance(tree, dict):
        for key, value in tree.items():
            if key == name:
                found += value if isinstance(value, list) else [value]
            else:
                found += find_all(value, name)
    elif isinstance(tree, list):
        for item in tree:
            found += find_all(item, name)
    return found


def floats_of(layers: dict[str, Any]) -> list[float]:
    return [float(value) for value in find_all(layers["netfold"], "netfold.element")]


def problems_of(layers: dict[str, Any]) -> set[str]:
    names: set[str] = set()

    def walk(tree: object) -> None:
        if isinstance(tree, dict):
            names.update(key for key in tree if key.startswith(("netfold.malformed", "netfold.shape")))
        for item in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ():
            walk(item)

    walk(layers["netfold"])
    return names


def hexadecimal(data: bytes) -> str:
    return data.hex(":")


VALUES = (1.0, -2.5, 0.0, 65504.0, 2.0**-14, 2.0**-24)
WELL_FORMED = {
    "contribution-fp32": Packet(format="fp32", count=6, payload=struct.pack("<6f", *VALUES)),
    "contribution-fp16": Packet(format="fp16", count=6, payload=struct.pack("<6e", *VALUES), last=True),
    "contribution-bf16": Packet(format="bf16", count=3, payload=struct.pack("<3H", 0x3F80, 0xC020, 0x0001)),
    "contribution-int32": Packet(format="int32", count=3, payload=struct.pack("<3i", 1, -2, 2**31 - 1)),
    "contribution-bfp": Packet(format="bfp", count=20, payload=bfp_payload([(127, range(-8, 8)), (0, [0] * 16)], 7)),
    "contribution-partial": Packet(format="bfp", count=3, payload=struct.pack("<3f", 1.0, 2.0, -3.5), other_flags=8),
    "result-fp32": Packet(
        "result", "fp32", 2, struct.pack("<2f", 1.5, -1.5), worker=NO_WORKER, last=True, average=True, tag=TAG
    ),
    "result-fp16": Packet("result", "fp16", 1, struct.pack("<e", 7.0), worker=NO_WORKER),
    "result-bf16": Packet("result", "bf16", 1, struct.pack("<H", 0x4000), worker=NO_WORKER, chunk=2**32 - 1),
    "result-int32": Packet("result", "int32", 1, struct.pack("<i", -1), worker=NO_WORKER, tag=TAG),
    "result-bfp": Packet("result", "bfp", 16, bfp_payload([(130, [127, -127] * 8)], 7), worker=NO_WORKER, tag=TAG),
    "probe": Packet("probe"),
    "probe-of-several": Packet("probe", count=17),
    "echo": Packet("echo", tag=TAG),
    "echo-with-the-switchs-time": Packet("echo", count=4711),
    "missing": Packet("missing", worker=0, chunk=0),
    "waiting": Packet("waiting", worker=65534, tag=TAG),
    "waiting-between-switches": Packet("waiting", worker=4, count=6),
    "await": Packet("await", worker=NO_WORKER),
    "complete": Packet("complete", worker=NO_WORKER, tag=TAG),
    "scatter": Packet("scatter", "fp32", 2, struct.pack("<2f", 1.5, -1.5), slot=777, average=True),
    "scatter-partial": Packet("scatter", "bf16", 1, struct.pack("<f", 1.5), slot=777, other_flags=8),
    "copy-of-the-owner": Packet("copy", count=5, payload=b"bytes", slot=3, last=True, tag=TAG),
    "copy-of-another": Packet("copy", count=5, slot=777),
    "copy-barrier": Packet("copy", slot=0xFFFF, last=True),
    "copied": Packet("copied", count=5, payload=b"bytes", worker=NO_WORKER, last=True, tag=TAG),
    "done": Packet("done", worker=NO_WORKER),
}
ELEMENTS = {
    "contribution-fp32": list(VALUES),
    "contribution-fp16": list(VALUES),
    "contribution-bf16": [1.0, -2.5, 2.0**-133],
    "contribution-bfp": [q / 64 for q in range(-8, 8)],  # 2^(127 - 127 - 6)
    "contribution-partial": [1.0, 2.0, -3.5],
    "result-fp32": [1.5, -1.5],
    "scatter": [1.5, -1.5],
    "scatter-partial": [1.5],
    "result-fp16": [7.0],
    "result-bf16": [2.0],
    "result-bfp": [127 / 8, -127 / 8] * 8,  # 2^(130 - 127 - 6)
}


@pytest.fixture(scope="module")
def well_formed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    # Only the heuristic must recognize each of them, so every packet has a conversation of its own.
    frames = [
        udp_frame(packet.bytes_on_wire(), LINKTYPE_ETHERNET, source=50000 + number)
        for number, packet in enumerate(WELL_FORMED.values())
    ]
    path = write_pcap(tmp_path_factory.mktemp("pcap") / "all.pcap", frames, LINKTYPE_ETHERNET)
    return dict(zip(WELL_FORMED, run_tshark(path), strict=True))


@pytest.mark.parametrize("name", WELL_FORMED)
def test_every_field_of_every_kind_and_format(well_formed: dict[str, dict[str, Any]], name: str) -> None:
    packet, layers = WELL_FORMED[name], well_formed[name]
    assert "netfold" in layers, "the heuristic did not take it"
    tree = layers["netfold"]
    kind, format_, flags, slot = packet.numbers()
    expected = {
        "version": 1,
        "kind": kind,
        "format": format_,
        "job": packet.job,
        "epoch": packet.epoch,
        "worker": packet.worker,
        "owner" if packet.kind in ("scatter", "copy") else "slot": slot,
        "count": packet.count,
        "chunk": packet.chunk,
    }
    assert {field: int(find_all(tree, f"netfold.{field}")[0]) for field in expected} == expected
    assert int(tree["netfold.flags"], 16) == flags
    assert find_all(tree, "netfold.flags.tagged") == ["1" if packet.tag else "0"]
    assert find_all(tree, "netfold.flags.last") == ["1" if packet.last else "0"]
    assert find_all(tree, "netfold.flags.average") == ["1" if packet.average else "0"]
    assert find_all(tree, "netfold.payload") == ([hexadecimal(packet.payload)] if packet.payload else [])
    assert find_all(tree, "netfold.tag") == ([hexadecimal(packet.tag)] if packet.tag else [])
    assert problems_of(layers) == set()


@pytest.mark.parametrize("name", ELEMENTS)
def test_elements_are_shown_as_numbers(well_formed: dict[str, dict[str, Any]], name: str) -> None:
    assert floats_of(well_formed[name]) == pytest.approx(ELEMENTS[name], rel=1e-6, abs=0)


def test_int32_elements_are_exact(well_formed: dict[str, dict[str, Any]]) -> None:
    shown = find_all(well_formed["contribution-int32"]["netfold"], "netfold.element.int32")
    assert [int(value) for value in shown] == [1, -2, 2**31 - 1]


def test_blocks_show_exponents_and_mantissas(well_formed: dict[str, dict[str, Any]]) -> None:
    tree = well_formed["contribution-bfp"]["netfold"]
    assert find_all(tree, "netfold.block.exponent") == ["127", "0"]
    assert [int(q) for q in find_all(tree, "netfold.block.mantissa")] == list(range(-8, 8))


def test_infinities_and_nans_are_shown(tmp_path: Path) -> None:
    half = struct.pack("<4H", 0x7C00, 0xFC00, 0x7E00, 0x8000)
    brain = struct.pack("<3H", 0x7F80, 0xFF80, 0x7FC0)
    packets = [
        Packet(format="fp16", count=4, payload=half),
        Packet(format="bf16", count=3, payload=brain),
        Packet(format="bfp", count=16, payload=bfp_payload([(255, [0] * 16)], 7)),
    ]
    shown = [floats_of(layers) for layers in dissect(tmp_path, packets)]
    assert shown[0][:2] == [math.inf, -math.inf] and math.isnan(shown[0][2]) and math.copysign(1, shown[0][3]) == -1
    assert shown[1][:2] == [math.inf, -math.inf] and math.isnan(shown[1][2])
    assert len(shown[2]) == 16 and all(math.isnan(value) for value in shown[2])


@pytest.mark.parametrize("mantissa", range(2, 8))
@pytest.mark.parametrize("block", [8, 128])
def test_bfp_shapes_by_preference(tmp_path: Path, block: int, mantissa: int) -> None:
    largest = 2**mantissa - 1
    values = [(i * 5) % (2 * largest + 1) - largest for i in range(block)]
    packet = Packet(format="bfp", count=block, payload=bfp_payload([(127, values)], mantissa))
    options = ("-o", f"netfold.block:{block}", "-o", f"netfold.mantissa:{mantissa}", "-o", "netfold.elements:1000")
    (layers,) = dissect(tmp_path, [packet], *options)
    assert [int(q) for q in find_all(layers["netfold"], "netfold.block.mantissa")] == values
    assert floats_of(layers) == [q * 2.0 ** (1 - mantissa) for q in values]
    assert problems_of(layers) == set()


def test_a_bfp_shape_that_the_preferences_miss_is_guessed_and_said(tmp_path: Path) -> None:
    packet = Packet(format="bfp", count=32, payload=bfp_payload([(127, range(-16, 16))], 5))
    (layers,) = dissect(tmp_path, [packet])
    assert floats_of(layers) == [q / 16 for q in range(-16, 0)]
    assert problems_of(layers) == {"netfold.shape"}


def test_the_number_of_elements_shown_is_a_preference(tmp_path: Path) -> None:
    packet = Packet(format="fp32", count=364, payload=struct.pack("<364f", *range(364)))
    (few,) = dissect(tmp_path, [packet], "-o", "netfold.elements:3")
    (all_,) = dissect(tmp_path, [packet], "-o", "netfold.elements:65535")
    assert floats_of(few) == [0.0, 1.0, 2.0]
    assert floats_of(all_) == [float(i) for i in range(364)]


MALFORMED = {
    "version": Packet("probe", version=2),
    "kind": Packet(kind=12),
    "format": Packet(format=6, count=1, payload=bytes(4)),
    "flags": Packet("probe", other_flags=8),
    "length": Packet(format="fp32", count=2, payload=bytes(7)),
    "slot": Packet("probe", chunk=0x00012345, slot=7),
    "worker": Packet("result", "fp32", 1, bytes(4), worker=0),
    "exponent": Packet(format="bfp", count=16, payload=bfp_payload([(6, [0] * 16)], 7)),
}
MALFORMED_TOO = {
    "elements without a format": (Packet(count=1, payload=bytes(4)), "format"),
    "a format without elements": (Packet("missing", "fp32"), "format"),
    "a last probe": (Packet("probe", last=True), "flags"),
    "a probe to average": (Packet("probe", average=True), "flags"),
    "no elements": (Packet(format="fp32"), "length"),
    "a notice that counts": (Packet("missing", count=1), "length"),
    "a copy cut short": (Packet("copy", count=5, payload=b"byte"), "length"),
    "nothing copied": (Packet("copied", count=5, worker=NO_WORKER), "length"),
    "a copy to average": (Packet("copy", count=1, payload=b"x", average=True), "flags"),
    "a probe with a payload": (Packet("probe", payload=b"x"), "length"),
    "a length that no bfp shape has": (Packet(format="bfp", count=16, payload=bytes(2)), "length"),
    "no room for the tag it promises": (Packet("probe", other_flags=1), "short"),
    "a tag cut short": (Packet("probe", tag=TAG[:-1]), "short"),
}


def test_malformed_packets_say_what_is_wrong(tmp_path: Path) -> None:
    cases = {**{name: (packet, name) for name, packet in MALFORMED.items()}, **MALFORMED_TOO}
    dissected = dissect_at_port(tmp_path, [packet for packet, _ in cases.values()])
    shown = {name: problems_of(layers) for name, layers in zip(cases, dissected, strict=True)}
    assert shown == {name: {f"netfold.malformed.{reason}"} for name, (_, reason) in cases.items()}


@pytest.mark.parametrize("size_bytes", [0, 1, 15])
def test_less_than_a_header_is_malformed(tmp_path: Path, size_bytes: int) -> None:
    path = write_pcap(tmp_path / "short.pcap", [udp_frame(bytes(size_bytes), LINKTYPE_RAW)])
    (layers,) = run_tshark(path, "-o", f"netfold.port:{SWITCH_PORT}")
    if size_bytes:  # tshark calls no dissector for an empty datagram
        assert problems_of(layers) == {"netfold.malformed.short"}


def test_the_heuristic_leaves_others_packets_alone(tmp_path: Path) -> None:
    malformed_header = {name: packet for name, packet in MALFORMED.items() if name != "exponent"}
    payloads = [packet.bytes_on_wire() for packet in malformed_header.values()] + [
        b"",
        b"hello",
        bytes(64),
        b"\x10" * 40,
    ]
    frames = [udp_frame(payload, LINKTYPE_RAW, source=50000 + i) for i, payload in enumerate(payloads)]
    dissected = run_tshark(write_pcap(tmp_path / "others.pcap", frames))
    assert [i for i, layers in enumerate(dissected) if "netfold" in layers] == []


def test_a_known_conversation_shows_its_malformed_packets(tmp_path: Path) -> None:
    dissected = dissect(tmp_path, [Packet("probe"), Packet("probe", version=3)])
    assert [problems_of(layers) for layers in dissected] == [set(), {"netfold.malformed.version"}]


def test_slots_of_the_preferences_are_held(tmp_path: Path) -> None:
    packets = [Packet("probe", chunk=700, slot=188), Packet("probe", chunk=700, slot=60)]
    assert [problems_of(layers) for layers in dissect_at_port(tmp_path, packets)] == [set(), set()]
    dissected = dissect_at_port(tmp_path, packets, "-o", "netfold.slots:512")
    assert [problems_of(layers) for layers in dissected] == [set(), {"netfold.malformed.slot"}]


def test_a_capture_cut_short_shows_what_is_there(tmp_path: Path) -> None:
    packets = [
        Packet(format="fp32", count=4, payload=struct.pack("<4f", 1, 2, 3, 4)),
        Packet(format="bfp", count=16, payload=bfp_payload([(127, range(16))], 7), tag=TAG),
    ]
    dissected = dissect(tmp_path, packets, snap_bytes=20 + 8 + 16 + 9)
    assert floats_of(dissected[0]) == [1.0, 2.0]
    assert floats_of(dissected[1]) == []
    assert [problems_of(layers) for layers in dissected] == [set(), set()]


def test_the_packet_list_reads_like_a_sentence(tmp_path: Path) -> None:
    packets = [
        Packet(format="fp32", count=1, payload=bytes(4), last=True, tag=TAG, chunk=9),
        Packet("result", worker=1),
    ]
    frames = [udp_frame(packet.bytes_on_wire(), LINKTYPE_RAW) for packet in packets]
    path = write_pcap(tmp_path / "list.pcap", frames)
    command = ["tshark", "-X", f"lua_script:{SCRIPT}", "-r", str(path)]
    lines = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout.splitlines()
    assert "Netfold" in lines[0]
    assert "contribution chunk 9, job 258 epoch 772, worker 3, 1 fp32, last, tagged" in lines[0]
    assert "malformed (format): result chunk" in lines[1]


@pytest.mark.parametrize("format_", ["fp32", "bfp"])
def test_a_capture_of_a_real_worker(tmp_path: Path, nothing_left_behind: None, format_: str) -> None:
    from netfold import _core

    world, count = 2, 3000
    inputs = [np.full(count, 0.5 + rank, dtype=np.float32) for rank in range(world)]
    outputs = [np.zeros(count, dtype=np.float32) for _ in range(world)]
    switch = _core.Switch("127.0.0.1:0")

    def work(rank: int) -> None:
        path = str(tmp_path / f"{rank}.pcap")
        client = _core.SwitchGroup(switch.address, "capture", world, rank, secret="s", timeout_s=20.0, pcap=path)
        ticket = client.all_reduce(inputs[rank].ctypes.data, outputs[rank].ctypes.data, count, "fp32", format_)
        client.wait(ticket)
        client.close()

    with ThreadPoolExecutor(world) as pool:
        list(pool.map(work, range(world)))
    switch.close()
    assert all((output == 2.0).all() for output in outputs)

    captured = run_tshark(tmp_path / "0.pcap", "-o", "netfold.elements:65535")
    dissected = [layers for layers in captured if "netfold.path.number" not in layers.get("netfold", {})]
    assert len(dissected) < len(captured), "the worker has looked for the MTU of its path"
    assert [i for i, layers in enumerate(dissected) if "netfold" not in layers or problems_of(layers)] == []
    for kind, element in (("contribution", 0.5), ("result", 2.0)):
        of_kind = [layers for layers in dissected if int(layers["netfold"]["netfold.kind"]) == KINDS[kind]]
        shown = {
            int(layers["netfold"]["netfold.chunk"]): floats_of(layers) for layers in of_kind
        }  # by chunk: once each
        assert [value for chunk in sorted(shown) for value in shown[chunk]] == [element] * count
        last = [layers for layers in of_kind if find_all(layers["netfold"], "netfold.flags.last") == ["1"]]
        assert {int(layers["netfold"]["netfold.chunk"]) for layers in last} == {max(shown)}
