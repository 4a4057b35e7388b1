"""The whole switch from port to port: it forwards frames of all kinds like a bridge, at line rate and within the time
limits."""

from __future__ import annotations

from typing import Any

import cocotb
from cocotb.triggers import RisingEdge
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import ARP, Dot1Q, Ether
from scapy.packet import Raw

from benches import chance, simulate
from ethernet import Bench
from roce_frames import ACKNOWLEDGE, FIRST, LAST, MIDDLE, Connection, mac

PORTS = 4
ADDRESSES = [mac(port) for port in range(PORTS)]
TABLE_CYCLES = 64 // 4 + 20  # until it is clear
FORWARD_NS_MAX = 250


async def begin(dut: Any) -> Bench:
    """A switch whose address table is clear."""
    bench = Bench(dut, PORTS, chance())
    await bench.start()
    for _ in range(TABLE_CYCLES):
        await RisingEdge(dut.clk_i)
    return bench


async def introduce(bench: Bench) -> None:
    """Every address sends one frame."""
    for port, address in enumerate(ADDRESSES):
        bench.give(port, bytes(Ether(src=address, dst="ff:ff:ff:ff:ff:ff") / ARP()))
    await bench.idle()
    for port in bench.ports:
        assert len(port.sent) == PORTS - 1 and port.underruns == 0
        port.sent.clear()
        port.began_ns.clear()


@cocotb.test()
async def learns_and_floods(dut: Any) -> None:
    """Frames to unknown and group addresses go to all other ports, to known addresses to their port. No frame goes back
    or to the bridge."""
    bench = await begin(dut)
    first = bytes(Ether(src=ADDRESSES[0], dst=ADDRESSES[1]) / Raw(b"hello"))
    bench.give(0, first)
    await bench.idle()
    assert [[sent.frame for sent in port.sent] for port in bench.ports] == [[], [first], [first], [first]]
    back = bytes(Ether(src=ADDRESSES[1], dst=ADDRESSES[0]) / Raw(b"hello yourself"))
    bench.give(1, back)
    await bench.idle()
    assert [len(port.sent) for port in bench.ports] == [1, 1, 1, 1]
    assert bench.ports[0].sent[0].frame == back
    for port in bench.ports:
        port.sent.clear()
    refused = [
        bytes(Ether(src=ADDRESSES[0], dst="01:80:c2:00:00:01", type=0x8808) / Raw(bytes(46))),
        bytes(Ether(src="03:00:00:00:00:01", dst=ADDRESSES[1]) / Raw(b"from a group")),
        bytes(Ether(src="00:00:00:00:00:00", dst=ADDRESSES[1]) / Raw(b"from nobody")),
        bytes(Ether(src=ADDRESSES[2], dst=ADDRESSES[0]) / Raw(b"to its own port")),
        first[:13],
        first[:8],
        first[:3],
    ]
    for frame in refused:
        bench.give(0, frame)
    await bench.idle()
    assert [len(port.sent) for port in bench.ports] == [0] * PORTS
    longest = bytes(Ether(src=ADDRESSES[0], dst=ADDRESSES[1]) / Raw(bytes(1526 - 14)))
    for size in (14, 15, 16, 60, 1526):
        bench.give(0, longest[:size])
    bench.give(0, longest + b"x")
    bench.give(0, longest[:100], error=True)
    await bench.idle()
    sent = bench.ports[1].sent
    assert [(len(one.frame), one.is_damaged) for one in sent] == [
        (14, False), (15, False), (16, False), (60, False), (1526, False), (1527, True), (100, True),
    ]  # fmt: skip
    assert len(bench.ports[2].sent) == 0
    for size in range(60, 1500, 50):  # the earliest cut-through: no lookup of the destination
        bench.give(3, bytes(Ether(src=ADDRESSES[3], dst="ff:ff:ff:ff:ff:ff") / Raw(bytes(size))))
    await bench.idle()
    assert all(port.underruns == 0 for port in bench.ports)


def draw(rng: Any, source: int, to: int) -> bytes:
    """A frame that is not for folding, of a random kind; some are RoCE v1."""
    addresses = ADDRESSES[source], ADDRESSES[to]
    connection = Connection(*addresses, queue_pair=rng.randrange(1 << 24))
    size = rng.choice([18, 46, 4 * rng.randrange(18, 256)])
    kind = rng.choice(["ip", "arp", "raw", "ack", "foreign", "stranger"])
    if kind == "ack":
        return connection.frame(ACKNOWLEDGE, rng.getrandbits(24), bytes(4))
    if kind == "foreign":
        return connection.frame(FIRST, rng.getrandbits(24), rng.randbytes(16 + size))
    if kind == "stranger":
        return connection.frame(rng.choice([MIDDLE, LAST]), rng.getrandbits(24), rng.randbytes(size))
    ether = Ether(src=addresses[0], dst=addresses[1])
    for _ in range(rng.choice([0, 0, 1, 2])):
        ether = ether / Dot1Q(vlan=5)
    layer = {"ip": IP() / UDP() / Raw(rng.randbytes(size)), "arp": ARP(), "raw": Raw(rng.randbytes(size))}[kind]
    return bytes(ether / layer)


@cocotb.test()
@cocotb.parametrize(("stalls", [0.0, 0.7]))
async def forwards_at_line_rate(dut: Any, stalls: float) -> None:
    """A permutation of ports at line rate: every frame arrives whole and in order, and within the time limit if its
    output port is free."""
    bench = await begin(dut)
    await introduce(bench)
    given = [[draw(bench.rng, port, (port + 1) % PORTS) for _ in range(60)] for port in range(PORTS)]
    for port, frames in enumerate(given):
        bench.ports[port].stalls = stalls
        for frame in frames:
            bench.give(port, frame)
    await bench.idle(200_000)
    for number, port in enumerate(bench.ports):
        before = (number - 1) % PORTS
        assert [sent.frame for sent in port.sent] == given[before]
        assert port.underruns == 0 and not any(sent.is_damaged for sent in port.sent)
        times = [sent.time_ns - began for sent, began in zip(port.sent, bench.ports[before].began_ns, strict=True)]
        dut._log.info("forwarding takes %.1f to %.1f ns", min(times), max(times))
        assert stalls > 0 or max(times) <= FORWARD_NS_MAX


@cocotb.test()
async def slow_ports_hold_nobody_up(dut: Any) -> None:
    """Two senders to one port, and a blocked port: frames for other ports are not delayed, and frames are whole."""
    bench = await begin(dut)
    await introduce(bench)
    bench.ports[3].stalls = 1.0
    for index in range(40):
        for port in (0, 1):
            for to in (2, 3):
                bench.give(port, bytes(Ether(src=ADDRESSES[port], dst=ADDRESSES[to]) / Raw(bytes([port, index]) * 200)))
    await bench.idle(60_000)
    assert len(bench.ports[2].sent) == 80
    for sender in (0, 1):
        mine = [sent.frame[15] for sent in bench.ports[2].sent if sent.frame[14] == sender]
        assert mine == list(range(40))
    assert bench.ports[3].sent == []
    bench.ports[3].stalls = 0.0
    await bench.idle(60_000)
    assert 0 < len(bench.ports[3].sent) < 80
    assert all(len(sent.frame) == 414 and not sent.is_damaged for sent in bench.ports[3].sent)


def test_netfold_switch() -> None:
    """Four ports."""
    simulate("netfold_switch", __file__, Ports=PORTS, AddressEntries=64)
