"""The Output Stage of one port: frames of all sources leave whole, in the order of their source, and once. If every
source always has a frame, sums get half of the turns."""

from __future__ import annotations

from collections import deque
from typing import Any

import cocotb
from cocotb.triggers import RisingEdge

from benches import CYCLES_MAX, PAUSES, chance, number, simulate, start

PORTS, FRAMES = 4, 25
BEAT_BITS = 69
SOURCES = ["queue"] * PORTS + ["sum"] * PORTS + ["notice", "pause"]
Waiting = list[deque[int]]


def beat(source: int, frame: int, index: int, last: bool) -> int:
    """A beat_t that contains its source."""
    return int(last) << 67 | 7 << 64 | source << 32 | frame << 16 | index


async def offer(dut: Any, rng: Any, idle: float, waiting: Waiting) -> None:
    """Drive all sources: each offers a beat until it is accepted, and is idle only between beats."""
    offered: list[int | None] = [None] * len(SOURCES)
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
    cocotb.start_soon(offer(dut, rng, idle, waiting))
    taken: list[int] = []
    ended = 0
    for _ in range(CYCLES_MAX):
        dut.m_ready_i.value = int(rng.random() >= stall)
        await RisingEdge(dut.clk_i)
        ended += number(dut.departure_o) >> 14 & 1
        if dut.m_valid_o.value and dut.m_ready_i.value:
            taken.append(number(dut.m_beat_o))
        if len(taken) == total:
            break
    order: list[tuple[int, int]] = []
    at = 0
    while at < len(taken):
        source, frame = taken[at] >> 32 & 0xFF, taken[at] >> 16 & 0xFFFF
        size = frames[source][frame]
        assert taken[at : at + size] == [beat(source, frame, i, i == size - 1) for i in range(size)]
        order.append((source, frame))
        at += size
    assert len(order) == ended == FRAMES * len(SOURCES)
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


def test_output_arbiter() -> None:
    """Four ports."""
    simulate("output_arbiter", __file__, Ports=PORTS)
