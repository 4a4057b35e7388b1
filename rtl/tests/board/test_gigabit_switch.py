"""The switch of a board, from the pins of its PHYs: frames go in, and frames and sums come out."""

from __future__ import annotations

from typing import Any

import cocotb
import numpy as np
from cocotb.triggers import RisingEdge
from rgmii import ERROR, PREAMBLE, Phys, with_fcs
from scapy.layers.l2 import ARP, Ether
from scapy.packet import Raw

import netfold
import registers
from benches import chance, number, simulate
from roce_frames import SUMMED_LABEL, Connection, aggregation_header, elements_of, mac, read

PACKETS = 8  # of the longest message
WORLD = 2
COUNT = (PACKETS * 1024 - 20) // 4
registers.SPI_HALF_NS = 100  # SCLK is at most an eighth of 50 MHz


def plain(source: int, size: int, seed: int = 0) -> bytes:
    """A frame of `size` bytes to the other worker, without FCS."""
    return bytes(
        Ether(src=mac(source), dst=mac(1 - source), type=0x88B6)
        / Raw(bytes((seed + i) % 251 for i in range(size - 14)))
    )


async def begin(dut: Any) -> Phys:
    """A switch that has learned both workers."""
    phys = Phys(dut)
    await phys.start()
    for port in range(WORLD):
        phys.give(port, bytes(Ether(src=mac(port), dst="ff:ff:ff:ff:ff:ff") / ARP()))
    await phys.idle()
    for port in range(WORLD):
        (sent,) = phys.taken(port)
        assert not sent.is_damaged
    return phys


@cocotb.test()
async def forwards_frames_of_all_lengths(dut: Any) -> None:
    """The shortest and the longest frames, and what lies between, back to back both ways, with clocks that differ."""
    phys, rng = await begin(dut), chance()
    sizes = [60, 61, 1514, 1526, *range(62, 70), *[rng.randrange(60, 400) for _ in range(10)], 60, 60, 60]
    given = [[plain(port, size, port + size) for size in sizes] for port in range(WORLD)]
    for port, frames in enumerate(given):
        for frame in frames:
            phys.give(port, frame)
    await phys.idle()
    for port in range(WORLD):
        sent = phys.taken(port)
        assert [one.frame for one in sent] == given[1 - port]
        assert not any(one.is_damaged for one in sent)
        assert max(one.gap for one in sent[1:]) < 25  # the sender is kept busy


@cocotb.test()
async def damaged_frames_leave_damaged_or_not_at_all(dut: Any) -> None:
    """A wrong FCS, an error of the PHY, a runt, and bytes without a delimiter: no neighbour takes any of them, and the
    next frame is whole."""
    phys = await begin(dut)
    good = plain(0, 100)
    wrong = bytearray(PREAMBLE + with_fcs(good))
    wrong[40] ^= 1
    phys.give_bytes(0, bytes(wrong))
    marked: list[int] = list(PREAMBLE + with_fcs(good))
    marked[50] |= ERROR
    phys.give_bytes(0, marked)
    phys.give_bytes(0, PREAMBLE + with_fcs(good)[:63])
    whole = with_fcs(plain(0, 60))
    short = whole[:30]
    phys.give_bytes(0, PREAMBLE + short)
    phys.give_bytes(0, PREAMBLE[:4])
    phys.give_bytes(0, PREAMBLE + b"\x01\x02\x03")
    phys.give_bytes(0, b"\x55\x54" + PREAMBLE + with_fcs(good))
    phys.give(0, good)
    await phys.idle()
    sent = phys.taken(1)
    assert [one.is_damaged for one in sent] == [True, True, True, True, False]
    assert sent[-1].frame == good
    assert phys.taken(0) == []


async def lit(dut: Any, cycles: int) -> dict[str, int]:
    """The lights of which ports are on at some moment of so many cycles, by kind."""
    found = {"in": 0, "damaged": 0, "out": 0}
    for _ in range(cycles):
        await RisingEdge(dut.clk_i)
        for kind in found:
            found[kind] |= ~number(getattr(dut, f"led_{kind}_no")) & (1 << WORLD) - 1
    return found


@cocotb.test()
async def lights_tell_what_moves(dut: Any) -> None:
    """Of a frame that comes in whole, that leaves, or that is damaged; and none without frames, or before its end."""
    phys = await begin(dut)
    assert await registers.spi(dut, "SHAPE") == 1 << 8 | WORLD  # no block floating point
    assert await lit(dut, 50) == {"in": 0, "damaged": 0, "out": 0}
    phys.give(0, plain(0, 1000))
    assert (await lit(dut, 300))["in"] == 0  # it takes 420 of these cycles
    assert await lit(dut, 400) == {"in": 0b01, "damaged": 0, "out": 0b10}
    await phys.idle()
    wrong = bytearray(PREAMBLE + with_fcs(plain(1, 60)))
    wrong[30] ^= 1
    phys.give_bytes(1, bytes(wrong))
    found = await lit(dut, 200)
    assert (found["in"], found["damaged"]) == (0b10, 0b10)


async def all_reduce(phys: Phys, numbers: np.ndarray, epoch: int = 1) -> list[list[bytes]]:
    """Give both workers' messages at line rate; returns the bytes of the sums, by worker and message. `numbers`: by
    message and worker."""
    psn = [0xFFFFFD, 0x77]  # one wraps
    for message, parts in enumerate(numbers):
        for rank in range(WORLD):
            connection = Connection(mac(rank), mac(1 - rank), 0x200 + rank, rank + 1, rank + 2)
            header = aggregation_header(rank, message, parts[rank].nbytes, epoch=epoch)
            for frame in connection.message(psn[rank] + message * PACKETS & 0xFFFFFF, header, parts[rank].tobytes()):
                phys.give(rank, frame)
    await phys.idle(400_000)
    found: list[list[bytes]] = []
    for rank in range(WORLD):
        sent = phys.taken(1 - rank)
        assert not any(one.is_damaged for one in sent)
        frames = [read(one.frame) for one in sent]
        assert all(one.flow_label == SUMMED_LABEL for one in frames)
        assert [one.psn for one in frames] == [psn[rank] + i & 0xFFFFFF for i in range(len(numbers) * PACKETS)]
        found.append(
            [
                b"".join(elements_of(frames[message * PACKETS + i], i) for i in range(PACKETS))
                for message in range(len(numbers))
            ]
        )
    return found


@cocotb.test()
async def folds_floats(dut: Any) -> None:
    """Messages of both workers at line rate: every sum has the bits of the software's."""
    phys = await begin(dut)
    rng = np.random.default_rng(chance().randrange(1 << 30))
    numbers = rng.standard_normal((5, WORLD, COUNT), np.float32)
    numbers[0] *= 1e38  # some sums are infinite
    sums = await all_reduce(phys, numbers)
    for message, parts in enumerate(numbers):
        expected = netfold.fold(list(parts)).tobytes()
        assert [sums[rank][message] for rank in range(WORLD)] == [expected] * WORLD


@cocotb.test()
async def folds_integers_when_the_board_says_so(dut: Any) -> None:
    """The board's switch changes AGG_MODE; the next epoch follows it."""
    phys = await begin(dut)
    dut.is_float_i.value = 0
    for _ in range(20):
        await RisingEdge(dut.clk_i)
    assert await registers.spi(dut, "AGG_MODE") == 0
    rng = np.random.default_rng(chance().randrange(1 << 30))
    numbers = rng.integers(-(1 << 31), 1 << 31, (2, WORLD, COUNT), np.int64).astype(np.int32)
    sums = await all_reduce(phys, numbers)
    for message, parts in enumerate(numbers):
        expected = (parts[0].astype(np.int64) + parts[1]).astype(np.int32).tobytes()
        assert [sums[rank][message] for rank in range(WORLD)] == [expected] * WORLD


@cocotb.test()
async def a_damaged_contribution_is_not_folded(dut: Any) -> None:
    """A contribution with a wrong FCS changes nothing. Sent again, it gives the sum. Counters over SPI say so."""
    phys = await begin(dut)
    numbers = np.arange(2 * WORLD * 400, dtype=np.float32).reshape(WORLD, -1)
    messages = [
        Connection(mac(rank), mac(1 - rank), 0x200 + rank).message(
            9, aggregation_header(rank, 0, numbers[rank].nbytes), numbers[rank].tobytes()
        )
        for rank in range(WORLD)
    ]
    assert len(messages[0]) > 2
    wrong = bytearray(PREAMBLE + with_fcs(messages[0][0]))
    wrong[-1] ^= 0x80
    phys.give_bytes(0, bytes(wrong))
    phys.give(1, messages[1][0])
    await phys.idle()
    assert phys.taken(0) == phys.taken(1) == []
    for name, value in (("DROP_MALFORMED", 1), ("DAMAGED", 1), ("ROCE_KEPT", 0)):
        assert await registers.spi(dut, name) == value, name
    phys.give(0, messages[0][0])
    await phys.idle()
    for rank in range(WORLD):
        (sent,) = phys.taken(1 - rank)
        expected = netfold.fold(list(numbers)).tobytes()[: (1024 - 20)]
        assert elements_of(read(sent.frame), 0) == expected


@cocotb.test()
async def longer_messages_are_refused(dut: Any) -> None:
    """A message that the buffers cannot hold is dropped and counted, and harms no other."""
    phys = await begin(dut)
    count = COUNT + 1
    for rank in range(WORLD):
        header = aggregation_header(rank, 0, 4 * count)
        for frame in Connection(mac(rank), mac(1 - rank), 0x200 + rank).message(9, header, bytes(4 * count))[:1]:
            phys.give(rank, frame)
    await phys.idle()
    assert phys.taken(0) == phys.taken(1) == []
    assert await registers.spi(dut, "DROP_HEADER") == 1
    numbers = np.ones((1, WORLD, COUNT), np.float32)
    assert await all_reduce(phys, numbers) == [[bytes(np.full(COUNT, 2, np.float32))]] * WORLD


def test_gigabit_switch() -> None:
    """With the parameters of the bitstream, but lights that are short."""
    simulate("gigabit_switch", __file__, LedBits=4)
