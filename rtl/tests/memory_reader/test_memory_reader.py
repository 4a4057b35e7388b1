"""The input FIFO: chunks of host memory come out as beats, with zeros after their end, at any pace of the host."""

from __future__ import annotations

from typing import Any

import cocotb
from cocotb.triggers import RisingEdge

from benches import PAUSES, Bursts, chance, give, number, simulate, start, take, wait_for

LANES, BURST_BEATS, FIFO_DEPTH = 8, 4, 16
BEAT = 4 * LANES  # bytes
CHUNKS = 25
# chunk_t, from the lowest bit: flag, beats, elements, address.
BEATS_BIT, ELEMENTS_BIT, ADDRESS_BIT = 1, 17, 33


def chunk_of(rng: Any) -> dict[str, int]:
    """A chunk: whole units of 16 elements, some of which, but never all, are padding; most begin at a random
    address."""
    beats = 2 * rng.randrange(1, 20)
    elements = rng.choice([beats * LANES, rng.randrange(1, beats * LANES + 1)])
    return {"address": 4 * rng.randrange(1 << 20), "elements": elements, "beats": beats, "folds": rng.randrange(2)}


def word_of(chunk: dict[str, int]) -> int:
    """The chunk as chunk_t."""
    fields = chunk["beats"] << BEATS_BIT | chunk["elements"] << ELEMENTS_BIT | chunk["address"] << ADDRESS_BIT
    return fields | chunk["folds"]


def beat_of(words: list[int]) -> int:
    """Concatenated words."""
    return sum(word << 32 * i for i, word in enumerate(words))


class Host:
    """Host memory: every word of it is a hash of its address."""

    def __init__(self, dut: Any, rng: Any, idle: float, stall: float) -> None:
        self.dut, self.rng, self.idle, self.bursts = dut, rng, idle, Bursts(dut, rng, stall, "command")

    @staticmethod
    def words(address: int, count: int) -> list[int]:
        """`count` words from an address."""
        return [(address // 4 + i) * 2654435761 % (1 << 32) for i in range(count)]

    def beats(self, address: int, count: int) -> list[int]:
        """The data of a command: the last beat continues with the memory after the burst."""
        words = self.words(address, count) + [self.rng.getrandbits(32) for _ in range(-count % LANES)]
        return [
            sum(word << 32 * i for i, word in enumerate(words[at : at + LANES])) for at in range(0, len(words), LANES)
        ]

    async def answer(self) -> None:
        """Provide all data in order, at any pace. The module must always accept them."""
        dut = self.dut
        while True:
            if not self.bursts.taken or self.rng.random() < self.idle:
                dut.s_tvalid_i.value = 0
                await RisingEdge(dut.clk_i)
                continue
            address, size = self.bursts.taken.pop(0)
            assert 0 < size <= BURST_BEATS * BEAT
            for beat in self.beats(address, size // 4):
                dut.s_tvalid_i.value = 1
                dut.s_tdata_i.value = beat
                await RisingEdge(dut.clk_i)
                assert dut.s_tready_o.value, "the module requested more data than it can hold"


async def begin(dut: Any, rng: Any, idle: float, stall: float) -> Host:
    """Clock, reset, and a host."""
    await start(dut, drain_i=0, chunk_valid_i=0, command_ready_i=0, s_tvalid_i=0, m_tready_i=0)
    host = Host(dut, rng, idle, stall)
    cocotb.start_soon(host.bursts.collect())
    cocotb.start_soon(host.answer())
    return host


@cocotb.test()
@cocotb.parametrize((("idle", "stall"), PAUSES))
async def reads(dut: Any, idle: float, stall: float) -> None:
    """Every element once, in order, and zeros to the end of the chunk."""
    rng = chance()
    host = await begin(dut, rng, idle, stall)
    chunks = [chunk_of(rng) for _ in range(CHUNKS)]
    words = [{"chunk_i": word_of(chunk)} for chunk in chunks]
    cocotb.start_soon(give(dut, rng, idle, words, "chunk_valid_i", "chunk_ready_o"))
    wanted = []
    for chunk in chunks:
        values = host.words(chunk["address"], chunk["elements"])
        values += [0] * (chunk["beats"] * LANES - chunk["elements"])
        for beat in range(chunk["beats"]):
            data = values[LANES * beat : LANES * (beat + 1)]
            wanted.append((beat_of(data), chunk["folds"], int(beat == chunk["beats"] - 1)))
    read = lambda: (number(dut.m_tdata_o), int(dut.m_tfolds_o.value), int(dut.m_tlast_o.value))  # noqa: E731
    assert await take(dut, rng, stall, len(wanted), "m_tvalid_o", "m_tready_i", read) == wanted
    assert dut.idle_o.value


@cocotb.test()
async def drains(dut: Any) -> None:
    """After a failure there are no more requests, and the data of open requests are accepted and dropped."""
    rng = chance()
    await begin(dut, rng, 0.5, 0.3)
    chunk = {"address": 64, "elements": 30 * LANES, "beats": 30, "folds": 0}
    await give(dut, rng, 0.0, [{"chunk_i": word_of(chunk)}] * 2, "chunk_valid_i", "chunk_ready_o")
    await wait_for(dut, lambda: not dut.idle_o.value)
    dut.drain_i.value = 1
    await RisingEdge(dut.clk_i)
    for _ in range(300):
        await RisingEdge(dut.clk_i)
        assert not dut.command_valid_o.value
    assert dut.idle_o.value


def test_memory_reader() -> None:
    """A FIFO of a few bursts, so that it is always full."""
    simulate("memory_reader", __file__, Lanes=LANES, FifoDepth=FIFO_DEPTH, BurstBeats=BURST_BEATS)
