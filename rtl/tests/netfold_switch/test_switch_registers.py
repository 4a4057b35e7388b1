"""The registers of the whole switch: settings, rejected writes, SPI and AXI-Lite, counters, pause frames, soft
reset."""

from __future__ import annotations

from typing import Any

import cocotb
from cocotb.triggers import RisingEdge
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Raw

from benches import chance, simulate
from ethernet import Bench
from registers import MAP, OKAY, SLAVE_ERROR, offset, read_at, spi, value_of, write
from roce_frames import Connection, aggregation_header, mac, read

PORTS = 4
ADDRESSES = [mac(port) for port in range(PORTS)]


async def begin(dut: Any) -> Bench:
    """A switch whose address table and counters are clear."""
    bench = Bench(dut, PORTS, chance())
    await bench.start()
    for _ in range(100):
        await RisingEdge(dut.clk_i)
    assert await value_of(dut, "STATUS") == 1
    return bench


async def begin_with_workers(dut: Any) -> Bench:
    """... and that knows every port's address, and is ready to fold."""
    bench = await begin(dut)
    for port in range(PORTS):
        bench.give(port, frame(port, (port + 1) % PORTS))
    await bench.idle()
    for _ in range(600):  # the aggregation stage clears its status
        await RisingEdge(dut.clk_i)
    for port in bench.ports:
        port.sent.clear()
    return bench


def frame(source: int, to: int, size: int = 60, tags: int = 0) -> bytes:
    """A frame from one port's address to another's."""
    ether = Ether(src=ADDRESSES[source], dst=ADDRESSES[to])
    for _ in range(tags):
        ether = ether / Dot1Q(vlan=1)
    return bytes(ether / Raw(bytes(size)))[:size]


@cocotb.test()
async def keeps_settings(dut: Any) -> None:
    """Values after reset; rejected writes; SPI and AXI-Lite see each other's writes."""
    await begin(dut)
    assert await value_of(dut, "ID") == 0x4E464C53
    assert await value_of(dut, "SHAPE") == 1 << 16 | 1 << 8 | PORTS
    everyone = PORTS << 27 | (1 << PORTS) - 1
    assert await value_of(dut, "AGG_PORT_CFG") == everyone
    for name in ("AGE_LIMIT", "ADDRESS_AGE_LIMIT", "AGG_MODE", "PAUSE"):
        assert await value_of(dut, name) == MAP[name].reset
    refused = [
        ("AGG_MODE", 2), ("AGG_PORT_CFG", 0), ("AGG_PORT_CFG", 3 << 27 | 3), ("AGG_PORT_CFG", 2 << 27 | 1 << 26 | 3),
        ("AGG_PORT_CFG", 1 << 27), ("ID", 1), ("COUNTER_HIGH", 1), ("FRAMES_IN", 1),
    ]  # fmt: skip
    for name, value in refused:
        assert await write(dut, name, value) == SLAVE_ERROR, (name, value)
    assert await value_of(dut, "AGG_PORT_CFG") == everyone and await value_of(dut, "AGG_MODE") == 0
    settings = {"AGG_MODE": 1, "AGG_PORT_CFG": 2 << 27 | 0b101, "AGE_LIMIT": 77, "PAUSE": 0b1000}
    settings |= {"EXCEPTION_2_PORTS": 0b0110, "EXCEPTION_2_JOB": 1 << 31 | 1 << 16 | 0x1234}
    for name, value in settings.items():
        assert await write(dut, name, value) == OKAY
    for name, value in settings.items():
        assert await value_of(dut, name) == value
        assert await spi(dut, name) == value
    await spi(dut, "AGG_PORT_CFG", 4 << 27 | 0b0111)  # refused
    assert await spi(dut, "AGG_PORT_CFG") == 2 << 27 | 0b101
    await spi(dut, "AGG_PORT_CFG", 3 << 27 | 0b0111)
    assert await value_of(dut, "AGG_PORT_CFG") == 3 << 27 | 0b0111
    assert await read_at(dut, 0xFFC) == 0 and await read_at(dut, offset("PAUSES_OUT") + 4) == 0


@cocotb.test()
async def counts(dut: Any) -> None:
    """Every frame is in the counters of its port, by its result."""
    bench = await begin(dut)
    bench.give(0, frame(0, 1))
    await bench.idle()
    bench.give(1, frame(1, 0, 1000))
    await bench.idle()
    given = [
        frame(0, 1, 100), frame(0, 1, 61), frame(0, 0), frame(0, 3), frame(0, 1)[:13], frame(0, 1, 62, tags=1)[:16],
        frame(0, 1, tags=2), frame(0, 1, tags=3), b"\x02" * 6 + b"\x01" + frame(0, 1)[7:],
        b"\x01\x80\xc2\0\0\x0e" + frame(0, 1)[6:], frame(0, 1, 1600),
    ]  # fmt: skip
    for one in given:
        bench.give(0, one)
    bench.give(0, frame(0, 1), error=True)
    await bench.idle()
    wanted = {
        "FRAMES_IN": 13, "FORWARDED": 5, "FLOODED": 2, "FILTERED": 2, "DROP_RUNT": 2, "DROP_BAD_SOURCE": 1,
        "DROP_TOO_MANY_TAGS": 1, "OVERSIZE": 1, "DAMAGED": 1, "DROP_QUEUE_FULL": 0, "FRAMES_OUT": 1, "BYTES_OUT": 1000,
    }  # fmt: skip
    found = {name: await value_of(dut, name) for name in wanted}
    assert found == wanted
    others = 60 + sum(len(one) for one in given[:-1]) + 60
    assert await value_of(dut, "BYTES_IN") == others + 1536  # of the frame that is too long, 191 beats and the last
    assert await value_of(dut, "FRAMES_OUT", 1) == 2 + 5
    assert await value_of(dut, "FORWARDED", 1) == 1
    bench.ports[2].stalls = 1.0
    for _ in range(12):  # each of 188 beats: five fit in the queue to port 2, besides those that wait before it
        bench.give(0, b"\xff" * 6 + frame(0, 1, 1500)[6:])
    for _ in range(3000):
        await RisingEdge(dut.clk_i)
    dropped = await value_of(dut, "DROP_QUEUE_FULL")
    assert dropped in (6, 7) and await value_of(dut, "FLOODED") == 14
    bench.ports[2].stalls = 0.0
    await bench.idle(60_000)
    assert sum(len(sent.frame) == 1500 for sent in bench.ports[2].sent) == 12 - dropped
    assert await write(dut, "CONTROL", 1) == OKAY
    await bench.idle()
    assert await value_of(dut, "FLOODED") == 14
    bench.give(1, frame(1, 0))  # all addresses are removed
    await bench.idle()
    assert await value_of(dut, "FLOODED", 1) == 1


@cocotb.test()
async def pauses(dut: Any) -> None:
    """A sender is paused only while its own frames are blocked. No other sender is paused."""
    bench = await begin(dut)
    assert await write(dut, "PAUSE", 0b0001) == OKAY
    bench.give(2, frame(2, 0))
    await bench.idle()
    bench.ports[0].sent.clear()
    bench.ports[2].stalls = 1.0
    for _ in range(4):
        bench.give(0, frame(0, 2, 1500))
        bench.give(1, frame(1, 2, 1500))
    for _ in range(2000):
        await RisingEdge(dut.clk_i)
    pause = bytes(Ether(dst="01:80:c2:00:00:01", src="02:4e:46:00:00:01", type=0x8808)) + b"\0\1\xff\xff"
    assert [sent.frame for sent in bench.ports[0].sent] == [pause.ljust(60, b"\0")]
    assert bench.ports[1].sent == bench.ports[3].sent == [] or all(
        s.frame[:6] != pause[:6] for s in bench.ports[1].sent
    )
    bench.ports[2].stalls = 0.0
    await bench.idle(60_000)
    assert bench.ports[0].sent[-1].frame == (pause[:-2] + b"\0\0").ljust(60, b"\0")
    assert await value_of(dut, "PAUSES_OUT") == 2


@cocotb.test()
async def resets_amid_sums(dut: Any) -> None:
    """A soft reset at any moment: frames that leave are whole or marked as damaged, and the switch continues."""
    bench = await begin_with_workers(dut)
    for attempt in range(6):
        size = 4 * 1024 - 20
        for port in range(PORTS):
            connection = Connection(ADDRESSES[port], ADDRESSES[(port + 1) % PORTS], 0x200 + port)
            for one in connection.message(7, aggregation_header(port, 0, size, epoch=attempt), bytes(size)):
                bench.give(port, one)
        for _ in range(bench.rng.randrange(200, 900)):
            await RisingEdge(dut.clk_i)
        assert await write(dut, "CONTROL", 1) == OKAY
        await bench.idle(quiet=800)
        for port in bench.ports:
            assert not port.partial
            for sent in port.sent:
                if len(sent.frame) > 1000 and not sent.is_damaged:
                    read(sent.frame)  # checks lengths and ICRC
            port.sent.clear()
    last = frame(0, 1, 77)
    bench.give(0, last)
    await bench.idle()
    assert [sent.frame for sent in bench.ports[1].sent] == [last]


@cocotb.test()
async def a_stuck_worker_stops_no_forwarding(dut: Any) -> None:
    """One port is blocked while all fold: the frames of the others pass, each in time before the next."""
    bench = await begin_with_workers(dut)
    bench.ports[3].stalls = 1.0
    connections = [Connection(ADDRESSES[port], ADDRESSES[(port + 1) % PORTS], 0x200 + port) for port in range(PORTS)]
    messages, size = 3, 16 * 1024 - 20
    for message in range(messages):
        for port, connection in enumerate(connections):
            header = aggregation_header(port, message, size)
            for index, one in enumerate(connection.message(16 * message, header, bytes(size))):
                bench.give(port, one)
                if port < 2:
                    bench.give(port, frame(port, 1 - port, 200 + index))
    await bench.idle(100_000, quiet=1000)
    for port in (0, 1):
        plain = [sent for sent in bench.ports[port].sent if sent.frame[12:14] != b"\x89\x15"]
        assert [len(sent.frame) for sent in plain] == [200 + index for _ in range(messages) for index in range(16)]
    assert await value_of(dut, "DAMAGED", 0) == 0
    dut._log.info("sums that left: %s", [await value_of(dut, "SUMS_OUT", port) for port in range(PORTS)])


def test_switch_registers() -> None:
    """Four ports."""
    simulate("netfold_switch", __file__, Ports=PORTS, AddressEntries=64)
