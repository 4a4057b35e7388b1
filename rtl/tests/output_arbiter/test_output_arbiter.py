"""The Output Stage of one port: frames of all sources leave whole, in the order of their source, and once. If every
source always has a frame, sums get half of the turns."""

from __future__ import annotations

from collections import deque
from itertools import takewhile
from typing import Any

import cocotb
from cocotb.triggers import RisingEdge

from benches import CYCLES_MAX, PAUSES, chance, number, simulate, start

PORTS, FRAMES = 4, 25
BEAT_BITS, ERROR, LAST = 69, 1 << 68, 1 << 67
SOURCES = ["queue"] * PORTS + ["sum"] * PORTS + ["notice", "pause"]
Waiting = list[deque[int]]


def beat(source: int, frame: int, index: int, last: bool) -> int:
    """A beat_t that contains its source. The last beat has one to eight bytes."""
    return int(last) << 67 | ((5 * frame + index) % 8 if last else 7) << 64 | source << 32 | frame << 16 | index


def departure(sent: list[int], kind: str) -> int:
    """The departure_t of a frame of these beats."""
    size = 8 * (len(sent) - 1) + (sent[-1] >> 64 & 7) + 1
    return 1 << 14 | size << 3 | (kind == "sum") << 2 | (kind == "notice") << 1 | (kind == "pause")


async def offer(dut: Any, rng: Any, idle: float, waiting: Waiting, offered: list[int | None]) -> None:
    """Drive all sources: each offers a beat until it is accepted, and is idle only between beats."""
    while True:
        for source, beats in enumerate(waiting):
            if offered[source] is None and beats and rng.random() >= idle:
                offered[source] = beats.popleft()
        ready = []
        for name in dict.fromkeys(SOURCES):
            mine = [i for i, kind in enumerate(SOURCES) if kind == name]
            getattr(dut, f"{name}_valid_i").value = sum((offered[i] is not None) << at for at, i in enumerate(mine))
            getattr(dut, f"{name}_beat_i").value = sum((offered[i] or 0) << BEAT_BITS * at for at, i in enumerate(mine))
            ready += [(getattr(dut, f"{name}_ready_o"), at, i) for at, i in enumerate(mine)]
        await RisingEdge(dut.clk_i)
        for signal, at, i in ready:
            if offered[i] is not None and number(signal) >> at & 1:
                offered[i] = None


@cocotb.test()
@cocotb.parametrize((("idle", "stall"), PAUSES))
async def sends_whole_frames(dut: Any, idle: float, stall: float) -> None:
    """Frames of one to nine beats."""
    rng = chance()
    await start(dut, queue_valid_i=0, sum_valid_i=0, notice_valid_i=0, pause_valid_i=0, sums_end_i=0, m_ready_i=0)
    frames = [[rng.randrange(1, 10) for _ in range(FRAMES)] for _ in SOURCES]
    waiting = [
        deque(beat(source, at, i, i == size - 1) for at, size in enumerate(sizes) for i in range(size))
        for source, sizes in enumerate(frames)
    ]
    total = sum(map(len, waiting))
    cocotb.start_soon(offer(dut, rng, idle, waiting, [None] * len(SOURCES)))
    taken: list[int] = []
    departures: list[int] = []
    for _ in range(CYCLES_MAX):
        dut.m_ready_i.value = int(rng.random() >= stall)
        await RisingEdge(dut.clk_i)
        if number(dut.departure_o) >> 14 & 1:
            departures.append(number(dut.departure_o))
        if dut.m_valid_o.value and dut.m_ready_i.value:
            taken.append(number(dut.m_beat_o))
        if len(taken) == total:
            break
    order: list[tuple[int, int]] = []
    left: list[int] = []
    at = 0
    while at < len(taken):
        source, frame = taken[at] >> 32 & 0xFF, taken[at] >> 16 & 0xFFFF
        size = frames[source][frame]
        assert taken[at : at + size] == [beat(source, frame, i, i == size - 1) for i in range(size)]
        order.append((source, frame))
        left.append(departure(taken[at : at + size], SOURCES[source]))
        at += size
    assert len(order) == FRAMES * len(SOURCES)
    assert departures == left
    for source in range(len(SOURCES)):
        assert [frame for one, frame in order if one == source] == list(range(FRAMES))
    if (
        idle == 0.0
    ):  # if every source has a frame: no two pauses in a row, sums every second turn, and each source in turn
        kinds = [SOURCES[source] for source, _ in order if SOURCES[source] != "pause"][: 2 * FRAMES]
        assert kinds[::2] == ["sum"] * FRAMES or kinds[1::2] == ["sum"] * FRAMES
        firsts = [SOURCES[source] for source, _ in order][: 2 * FRAMES]
        assert firsts[::2] == ["pause"] * FRAMES
        others = [source for source, _ in order if SOURCES[source] in ("queue", "notice")][: 2 * (PORTS + 1)]
        assert others[: PORTS + 1] == others[PORTS + 1 :] and len(set(others)) == PORTS + 1


@cocotb.test()
@cocotb.parametrize(stall=[0.0, 0.4])
async def ends_sums_of_a_reset(dut: Any, stall: float) -> None:
    """When the aggregation stage is reset, a sum or notice that has begun ends at once, damaged. Other frames leave
    whole."""
    rng = chance()
    await start(dut)
    waiting: Waiting = [deque() for _ in SOURCES]
    offered: list[int | None] = [None] * len(SOURCES)
    cocotb.start_soon(offer(dut, rng, 0.1, waiting, offered))
    ends = [i for i, kind in enumerate(SOURCES) if kind in ("sum", "notice")]
    frames, damaged, whole = [0] * len(SOURCES), 0, 0
    partial: list[int] = []
    departures: list[int] = []
    left: list[int] = []  # the same, as the beats say

    async def cycle(is_reset: bool = False) -> None:
        nonlocal partial, damaged, whole
        dut.m_ready_i.value, dut.sums_end_i.value = int(rng.random() >= stall), int(is_reset)
        await RisingEdge(dut.clk_i)
        if number(dut.departure_o) >> 14 & 1:
            departures.append(number(dut.departure_o))
        if not (dut.m_valid_o.value and dut.m_ready_i.value):
            return
        partial.append(one := number(dut.m_beat_o))
        if not one & LAST:
            return
        of_frame = partial[:-1] if one & ERROR else partial
        source = of_frame[0] >> 32 & 0xFF if of_frame else None
        assert all((got >> 32 & 0xFF, got & 0xFFFF) == (source, at) for at, got in enumerate(of_frame))
        assert len({got >> 16 & 0xFFFF for got in of_frame}) <= 1  # one frame
        if one & ERROR:
            damaged += 1
            assert source is None or source in ends
            kinds = [SOURCES[source]] if source is not None else ["sum", "notice"]
            left.append(next((d for kind in kinds if (d := departure(partial, kind)) == departures[-1]), -1))
        else:
            whole += 1
            assert source is not None
            left.append(departure(partial, SOURCES[source]))
        partial = []

    for _ in takewhile(lambda resets: resets < 60 or damaged <= 10 or whole <= 100, range(1000)):
        for source, beats in enumerate(waiting):
            while len(beats) < 40:
                size = rng.randrange(2, 10)
                beats.extend(beat(source, frames[source] % 256, i, i == size - 1) for i in range(size))
                frames[source] += 1
        for _ in range(rng.randrange(10, 40)):
            await cycle()
        in_progress = list(partial)
        await cycle(is_reset=True)
        for source in ends:
            waiting[source].clear()
            offered[source] = None
        if in_progress and partial[: len(in_progress)] == in_progress and partial[0] >> 32 & 0xFF in ends:
            before = damaged
            while damaged == before:
                assert len(partial) <= len(in_progress) + 1  # the cycle of the reset still takes a beat
                await cycle()
    assert damaged > 10 and whole > 100
    assert departures == left


def test_output_arbiter() -> None:
    """Four ports."""
    simulate("output_arbiter", __file__, Ports=PORTS)
