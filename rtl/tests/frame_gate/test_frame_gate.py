"""Frames to a faster MAC: none has a hole, although three beats come while the MAC takes four, or, with Whole, although
their source pauses."""

from __future__ import annotations

import os
from typing import Any

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from benches import CYCLES_MAX, chance, number, simulate, start

WIDTH, FRAME_BEATS, FRAMES = 32, 45, 60
WHOLE = os.environ.get("WHOLE") == "1"


@cocotb.test()
@cocotb.parametrize(stall=[0.0, 0.4], gap=[0, 60])
async def has_no_holes(dut: Any, stall: float, gap: int) -> None:
    """Frames of all lengths, at once or with gaps; the MAC takes every beat at once, or waits now and then."""
    rng = chance()
    await start(dut)
    sizes = [rng.choice([1, 2, FRAME_BEATS, rng.randrange(1, FRAME_BEATS + 1)]) for _ in range(FRAMES)]
    beats = [(rng.getrandbits(WIDTH), int(i == size - 1)) for size in sizes for i in range(size)]

    async def give() -> None:
        phase = rng.randrange(4)
        for data, last in beats:
            dut.s_valid_i.value, dut.s_data_i.value, dut.s_last_i.value = 1, data, last
            await RisingEdge(dut.clk_i)
            while not dut.s_ready_o.value:
                await RisingEdge(dut.clk_i)
            dut.s_valid_i.value = 0
            phase += 1
            pause = rng.choice([0, 0, 0, 9]) if WHOLE else 0
            for _ in range((phase % 3 == 0) + pause + (rng.randrange(gap + 1) if last else 0)):
                await RisingEdge(dut.clk_i)

    cocotb.start_soon(give())
    taken: list[tuple[int, int]] = []
    for _ in range(CYCLES_MAX):
        dut.m_ready_i.value = int(rng.random() >= stall)
        await RisingEdge(dut.clk_i)
        inside = bool(taken) and not taken[-1][1]
        assert dut.m_valid_o.value or not inside, "a frame has a hole"
        if dut.m_valid_o.value and dut.m_ready_i.value:
            taken.append((number(dut.m_data_o), number(dut.m_last_o)))
        if len(taken) == len(beats):
            break
    assert taken == beats


@pytest.mark.parametrize("whole", [0, 1])
def test_frame_gate(whole: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames that begin early, and those that wait until they are whole."""
    monkeypatch.setenv("WHOLE", str(whole))
    simulate("frame_gate", __file__, Width=WIDTH, FrameBeats=FRAME_BEATS, Depth=64 if whole else 32, Whole=whole)
