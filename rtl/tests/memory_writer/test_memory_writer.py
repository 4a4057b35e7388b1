"""The output FIFO: beats become chunks of host memory without their padding; a request ends when all its data are
written."""

from __future__ import annotations

from typing import Any

import cocotb
from cocotb.triggers import RisingEdge

from benches import PAUSES, Bursts, chance, give, number, simulate, start, wait_for

LANES, BURST_BEATS, FIFO_DEPTH = 8, 4, 16
BEAT = 4 * LANES  # bytes
UNCONFIRMED_MAX = 128  # bursts
REQUESTS, CHUNKS = 6, 4  # chunks of a request at most
# chunk_t, from the lowest bit: flag, beats, elements, address.
BEATS_BIT, ELEMENTS_BIT, ADDRESS_BIT = 1, 17, 33
END = {"chunk_i": 1}  # no chunk: the request ends here


class Host:
    """Host memory behind the writer's ports: bytes by address, and confirmations after a while."""

    def __init__(self, dut: Any, rng: Any, idle: float, stall: float) -> None:
        self.dut, self.rng, self.idle, self.stall = dut, rng, idle, stall
        self.memory: dict[int, int] = {}
        self.bursts = Bursts(dut, rng, stall, "command")
        self.data: list[bytes] = []  # of bursts whose commands are not accepted yet
        self.whole = 0  # bursts that have arrived
        self.ended: list[int] = []  # for each request that ended: bursts that were confirmed

    async def take(self) -> None:
        """Accept the data of bursts. The writer must not pause within a burst."""
        dut, data, inside = self.dut, b"", False
        while True:
            dut.m_tready_i.value = int(self.rng.random() >= self.stall)
            await RisingEdge(dut.clk_i)
            assert dut.m_tvalid_o.value or not inside
            if dut.m_tvalid_o.value and dut.m_tready_i.value:
                kept = number(dut.m_tkeep_o).bit_count()
                assert number(dut.m_tkeep_o) == (1 << kept) - 1
                data += number(dut.m_tdata_o).to_bytes(BEAT, "little")[:kept]
                inside = not dut.m_tlast_o.value
                if not inside:
                    self.data.append(data)
                    data = b""
            while self.data and self.bursts.taken:  # either may come first
                self.store(*self.bursts.taken.pop(0), self.data.pop(0))

    def store(self, address: int, size: int, data: bytes) -> None:
        """A burst."""
        assert len(data) == size <= BURST_BEATS * BEAT
        assert not any(address + i in self.memory for i in range(size)), "written twice"
        self.memory |= {address + i: byte for i, byte in enumerate(data)}
        self.whole += 1

    async def confirm(self) -> None:
        """A pulse for each burst, with a delay."""
        confirmed = 0
        while True:
            goes = confirmed < self.whole and self.rng.random() >= self.idle
            self.dut.written_i.value = int(goes)
            await RisingEdge(self.dut.clk_i)
            if self.dut.ended_o.value:
                self.ended.append(confirmed)
            confirmed += goes


async def begin(dut: Any, rng: Any, idle: float, stall: float) -> Host:
    """Clock, reset, and a host."""
    await start(dut, drain_i=0, chunk_valid_i=0, command_ready_i=0, s_tvalid_i=0, m_tready_i=0, written_i=0)
    host = Host(dut, rng, idle, stall)
    for task in (host.bursts.collect(), host.take(), host.confirm()):
        cocotb.start_soon(task)
    return host


def work(rng: Any) -> tuple[list[dict[str, int]], list[dict[str, int]], dict[int, int], list[int]]:
    """Chunks of some requests, in memory order with gaps; their beats, the expected bytes, and the number of bursts up
    to each request's end."""
    chunks, beats, memory, ends, address, bursts = [], [], {}, [], 4096, 0
    for _ in range(REQUESTS):
        for _ in range(rng.randrange(CHUNKS + 1)):
            count = 2 * rng.randrange(1, 20)
            whole_beats = LANES * rng.randrange(1, count)  # padding begins where a beat ends
            elements = rng.choice([count * LANES, whole_beats, rng.randrange(1, count * LANES + 1)])
            chunks.append({"chunk_i": count << BEATS_BIT | elements << ELEMENTS_BIT | address << ADDRESS_BIT})
            data = rng.randbytes(count * BEAT)
            for i in range(count):
                part = data[BEAT * i : BEAT * (i + 1)]
                beats.append({"s_tdata_i": int.from_bytes(part, "little"), "s_tlast_i": int(i == count - 1)})
            memory |= {address + i: data[i] for i in range(4 * elements)}
            address += 4 * (elements + rng.randrange(8))
            bursts += -(-elements // (BURST_BEATS * LANES))
        chunks.append(END)
        ends.append(bursts)
    return chunks, beats, memory, ends


@cocotb.test()
@cocotb.parametrize((("idle", "stall"), PAUSES))
async def writes(dut: Any, idle: float, stall: float) -> None:
    """Every byte is written once, and no other byte; no request ends before its last byte is confirmed."""
    rng = chance()
    host = await begin(dut, rng, idle, stall)
    chunks, beats, memory, ends = work(rng)
    cocotb.start_soon(give(dut, rng, idle, chunks, "chunk_valid_i", "chunk_ready_o"))
    cocotb.start_soon(give(dut, rng, idle, beats, "s_tvalid_i", "s_tready_o"))
    await wait_for(dut, lambda: len(host.ended) == REQUESTS)
    assert host.memory == memory
    assert all(confirmed >= end for confirmed, end in zip(host.ended, ends, strict=True))
    assert dut.idle_o.value


@cocotb.test()
async def counts_unconfirmed_bursts(dut: Any) -> None:
    """A host that confirms late: at most half as many bursts as the counter counts are on their way, and the request
    ends after its last burst."""
    rng, bursts = chance(), UNCONFIRMED_MAX + 12
    host = await begin(dut, rng, 1.0, 0.0)
    count = bursts * BURST_BEATS
    chunks = [{"chunk_i": count << BEATS_BIT | count * LANES << ELEMENTS_BIT}, END]
    beats = [{"s_tdata_i": i, "s_tlast_i": int(i == count - 1)} for i in range(count)]
    cocotb.start_soon(give(dut, rng, 0.0, chunks, "chunk_valid_i", "chunk_ready_o"))
    cocotb.start_soon(give(dut, rng, 0.0, beats, "s_tvalid_i", "s_tready_o"))
    for _ in range(2 * count):
        await RisingEdge(dut.clk_i)
    assert host.whole == UNCONFIRMED_MAX and host.ended == [] and not dut.idle_o.value
    host.idle = 0.0
    await wait_for(dut, lambda: len(host.ended) == 1)
    assert host.whole == bursts and host.ended == [bursts]
    for _ in range(5):
        await RisingEdge(dut.clk_i)
    assert dut.idle_o.value and host.ended == [bursts]


@cocotb.test()
async def drains(dut: Any) -> None:
    """After a failure, bursts in progress end, and no other begins."""
    rng = chance()
    host = await begin(dut, rng, 0.5, 0.3)
    beats = [{"s_tdata_i": i, "s_tlast_i": 0} for i in range(30)]
    await give(
        dut, rng, 0.0, [{"chunk_i": 40 << BEATS_BIT | 40 * LANES << ELEMENTS_BIT}], "chunk_valid_i", "chunk_ready_o"
    )
    cocotb.start_soon(give(dut, rng, 0.0, beats, "s_tvalid_i", "s_tready_o"))
    await wait_for(dut, lambda: not dut.idle_o.value)
    dut.drain_i.value = 1
    await wait_for(dut, lambda: bool(dut.idle_o.value))
    begun = host.whole
    for _ in range(100):
        await RisingEdge(dut.clk_i)
        assert dut.idle_o.value
    assert 0 < begun == host.whole < 30 // BURST_BEATS and not host.bursts.taken


def test_memory_writer() -> None:
    """A FIFO of a few bursts, so that it is always full."""
    simulate("memory_writer", __file__, Lanes=LANES, FifoDepth=FIFO_DEPTH, BurstBeats=BURST_BEATS)
