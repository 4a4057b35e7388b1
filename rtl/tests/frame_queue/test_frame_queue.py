"""The queue of a port's frames: each comes out whole and in order, or is dropped at its first beat because the longest
frame has no room."""

from __future__ import annotations

from typing import Any

import cocotb
from cocotb.triggers import RisingEdge

from benches import chance, number, simulate, start

BEATS, LONGEST, FRAMES = 64, 10, 250
LAST = 1 << 67


def check_level(dut: Any, level: int) -> None:
    """Compare what the queue says about its level. A beat on its way out may count or not."""
    if level >= BEATS // 2 + 1:
        assert dut.is_filling_o.value
    if level < BEATS // 2 - 1:
        assert not dut.is_filling_o.value
    if level < BEATS // 4 - 1:
        assert dut.is_empty_o.value
    if level >= BEATS // 4 + 1:
        assert not dut.is_empty_o.value


@cocotb.test()
@cocotb.parametrize(stall=[0.0, 0.3, 0.7, 0.95])
async def keeps_whole_frames(dut: Any, stall: float) -> None:
    """Frames of one beat to the longest, with gaps and without; a reader of any pace, that also sleeps."""
    rng = chance()
    await start(dut)
    dut.s_valid_i.value = 1  # the rest of a frame whose first beat came before the reset
    for _ in range(4):
        await RisingEdge(dut.clk_i)
        assert not dut.m_valid_o.value
    dut.s_valid_i.value = 0
    await RisingEdge(dut.clk_i)
    waits: list[int] = []  # beats in the queue
    beats: list[int] = []  # still to come of the frame
    admits, had_room, sleeps, frames, dropped, levels = False, True, 0, 0, 0, set()
    while frames < FRAMES or waits:
        if rng.random() < 0.01:
            sleeps = rng.randrange(20, 150)
        sleeps = max(0, sleeps - 1)
        starts = not beats and frames < FRAMES and rng.random() < 0.7
        if starts:
            size = rng.choice([LONGEST, rng.randrange(1, LONGEST + 1)])
            beats = [frames << 8 | at | LAST * (at == size - 1) for at in range(size)]
            frames += 1
        offers = bool(beats) and (starts or rng.random() < 0.9)
        dut.s_valid_i.value, dut.s_first_i.value = int(offers), int(starts)
        dut.s_beat_i.value = beats[0] if offers else rng.getrandbits(69)
        dut.m_ready_i.value = int(not sleeps and rng.random() >= stall)
        await RisingEdge(dut.clk_i)
        if dut.m_valid_o.value and dut.m_ready_i.value:
            assert number(dut.m_beat_o) == waits.pop(0)
        # One beat may lie in the output register, outside of the memory.
        level = len(waits) - bool(dut.m_valid_o.value)
        levels.add(level)
        check_level(dut, level)
        if offers:
            if starts:
                admits = not dut.dropped_o.value
                dropped += not admits
                if level < BEATS - LONGEST - 2 and had_room:
                    assert admits
            else:
                assert not dut.dropped_o.value
            if admits:
                waits.append(beats[0])
                assert len(waits) <= BEATS + 1
            beats.pop(0)
        had_room = level < BEATS - LONGEST - 2
    assert dut.is_empty_o.value and not dut.is_filling_o.value
    assert dropped > 0 or stall < 0.7
    assert max(levels) > BEATS - LONGEST or stall < 0.7


@cocotb.test()
async def a_full_queue_is_no_empty_one(dut: Any) -> None:
    """Its longest frame begins just before the queue refuses frames, and takes all the room that is left."""
    await start(dut)
    await RisingEdge(dut.clk_i)
    outside = 1  # beats in the output register
    before = BEATS - LONGEST + outside
    sizes = [*[LONGEST] * (before // LONGEST), before % LONGEST, LONGEST]
    for size in sizes:
        for at in range(size):
            dut.s_valid_i.value, dut.s_first_i.value = 1, int(not at)
            dut.s_beat_i.value = LAST * (at == size - 1)
            await RisingEdge(dut.clk_i)
            assert not dut.dropped_o.value
    dut.s_valid_i.value = 0
    await RisingEdge(dut.clk_i)
    check_level(dut, BEATS)


def test_frame_queue() -> None:
    """A queue of a few frames."""
    simulate("frame_queue", __file__, Beats=BEATS, Longest=LONGEST)
