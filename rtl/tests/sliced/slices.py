"""Shared by the tests of fast ports: frames of every kind, the slice that each belongs to, and clocks."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import RisingEdge
from scapy.layers.inet import IP, TCP, UDP, IPOption_Router_Alert
from scapy.layers.l2 import ARP, Ether
from scapy.packet import Raw

from benches import CYCLES_BEFORE_RESET
from ethernet import FRAME_MAX, FRAME_MIN
from roce_frames import ACKNOWLEDGE, MIDDLE, Connection, mac

CORE_PS = 5000
MAC_PS = {64: 2560, 128: 5120, 512: 3104}  # by width: 25G, 25G, 100G
TAGS = (b"\x81\x00", b"\x88\xa8")
ROCE_PORT = 4791


def slice_of(frame: bytes, slices: int) -> int:
    """The slice of a frame: the rule of PROTOCOL.md, "Queue pairs". Bytes behind its end count as zeros."""
    header = frame.ljust(66, b"\0")
    tag = 4 if header[12:14] in TAGS else 0
    kind, packet = header[12 + tag : 14 + tag], header[14 + tag :]
    pair = None
    if kind == b"\x89\x15":
        pair = packet[47]
    elif kind == b"\x08\x00" and packet[0] == 0x45 and packet[9] == 17:
        is_fragment = int.from_bytes(packet[6:8], "big") & 0x3FFF
        if not is_fragment and int.from_bytes(packet[22:24], "big") == ROCE_PORT:
            pair = packet[35]
    if pair is not None:
        return pair // 2 % slices
    mixed = 0
    for byte in header[:12]:
        mixed ^= byte
    chosen = 0
    while mixed:
        chosen ^= mixed % slices
        mixed //= slices
    return chosen


KINDS = (
    "v1", "v2", "tagged v1", "tagged v2", "outer v1", "two tags", "other port", "options", "fragment", "last fragment",
    "tcp", "raw", "arp", "ack",
)  # fmt: skip


def packet(rng: random.Random, kind: str) -> bytes:
    """A frame of this kind between two of 40 hosts, of any length."""
    source, to = rng.sample(range(40), 2)
    version = 2 if kind in ("v2", "tagged v2", "two tags", "other port", "options") else 1
    version = rng.choice([1, 2]) if kind == "ack" else version
    connection = Connection(mac(source), mac(to), rng.getrandbits(24), rng.getrandbits(128), version=version)
    body = rng.randbytes(1440)
    frame = connection.frame(ACKNOWLEDGE if kind == "ack" else MIDDLE, rng.getrandbits(24), body)
    tagged = frame[:12] + bytes.fromhex("8100") + rng.randbytes(2) + frame[12:]
    ether = Ether(src=mac(source), dst="ff:ff:ff:ff:ff:ff" if kind == "arp" else mac(to))
    ip = IP(src="10.0.0.1", dst="10.0.0.2")
    udp = UDP(sport=0xC000, dport=ROCE_PORT, chksum=0) / Raw(body)
    made: dict[str, Any] = {
        "tagged v1": tagged,
        "tagged v2": tagged,
        "outer v1": frame[:12] + bytes.fromhex("88a8") + rng.randbytes(2) + frame[12:],
        "two tags": tagged[:16] + tagged[12:],
        "other port": frame[:36] + rng.choice([b"\x12\xb6", b"\x12\xb8", b"\xb7\x12"]) + frame[38:],
        "options": ether / IP(src="10.0.0.1", dst="10.0.0.2", options=[IPOption_Router_Alert()]) / udp,
        "fragment": ether / ip.copy() / udp,
        "last fragment": ether / ip.copy() / udp,
        "tcp": ether / ip / TCP(sport=9, dport=ROCE_PORT) / Raw(body),
        "raw": ether / Raw(body),
        "arp": ether / ARP() / Raw(body),
    }
    whole = bytearray(bytes(made.get(kind, frame)))
    if kind == "fragment":
        whole[20:22] = b"\x20\x00"
    if kind == "last fragment":
        whole[20:22] = rng.choice([b"\x00\x01", b"\x1f\xff", b"\x10\x00"])
    return bytes(whole)


def frames(rng: random.Random, sizes: list[int]) -> Iterator[tuple[bytes, bool]]:
    """Frames of these sizes and of random kinds, and whether each is damaged."""
    for size in sizes:
        whole = packet(rng, rng.choice(KINDS))
        yield whole[:size].ljust(size, b"\x5a"), rng.random() < 0.1


def sizes_of(rng: random.Random, every: bool, count: int) -> list[int]:
    """Every length of a frame, in a random order; or some, often the shortest and those at the ends of beats."""
    if every:
        return rng.sample(range(FRAME_MIN, FRAME_MAX + 1), FRAME_MAX + 1 - FRAME_MIN)
    ends = [64, 65, 66, 127, 128, 129, 512, 513, FRAME_MAX]
    return [rng.choice([FRAME_MIN, rng.choice(ends), rng.randrange(1, FRAME_MAX + 1)]) for _ in range(count)]


async def begin(dut: Any, width: int) -> None:
    """Both clocks, and a reset in the middle of random inputs; behind it inputs are 0."""
    rng = random.Random(f"{os.environ['SEED']} before the reset")
    clocks = ("clk_i", "mac_clk_i", "rst_ni", "mac_rst_ni")
    inputs = [one for one in dut if one._name.endswith("_i") and one._name not in clocks]
    dut.rst_ni.value = dut.mac_rst_ni.value = 1
    cocotb.start_soon(Clock(dut.clk_i, CORE_PS, "ps").start())
    cocotb.start_soon(Clock(dut.mac_clk_i, MAC_PS[width], "ps").start())
    for _ in range(CYCLES_BEFORE_RESET):
        for one in inputs:
            one.value = rng.getrandbits(len(one)) if hasattr(one, "__len__") else rng.getrandbits(1)
        await RisingEdge(dut.mac_clk_i)
    for one in inputs:
        one.value = 0
    dut.rst_ni.value = dut.mac_rst_ni.value = 0
    for _ in range(6):
        await RisingEdge(dut.clk_i)
    dut.rst_ni.value = 1
    await RisingEdge(dut.mac_clk_i)
    dut.mac_rst_ni.value = 1
    for _ in range(6):
        await RisingEdge(dut.clk_i)
