"""Skid buffer, FIFOs and queue: order, no loss, full speed. The frame FIFO removes rolled-back frames."""

from __future__ import annotations

from typing import Any

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from benches import PAUSES, chance, give, number, simulate, start, take

BEATS = 300


@cocotb.test()
@cocotb.parametrize((("idle", "stall"), PAUSES))
async def keeps_order(dut: Any, idle: float, stall: float) -> None:
    """The output equals the input, in order. Without pauses it takes only a few cycles more than there are beats."""
    rng = chance()
    has_commit = hasattr(dut, "commit_i")
    extra = {"commit_i": 0, "rollback_i": 0} if has_commit else {}
    await start(dut, s_valid_i=0, m_ready_i=0, s_data_i=0, **extra)
    if has_commit:
        return await frames(dut, rng, idle, stall)
    values = [rng.getrandbits(32) for _ in range(BEATS)]
    cocotb.start_soon(give(dut, rng, idle, [{"s_data_i": value} for value in values], "s_valid_i", "s_ready_o"))
    taken = await take(dut, rng, stall, BEATS, "m_valid_o", "m_ready_i", lambda: number(dut.m_data_o))
    assert taken == values
    return None


async def frames(dut: Any, rng: Any, idle: float, stall: float) -> None:
    """Frames of a few beats; some are rolled back and never come out."""
    kept: list[int] = []
    collected: list[int] = []

    async def collect() -> None:
        while True:
            dut.m_ready_i.value = int(rng.random() >= stall)
            await RisingEdge(dut.clk_i)
            if dut.m_valid_o.value and dut.m_ready_i.value:
                collected.append(number(dut.m_data_o))

    cocotb.start_soon(collect())
    for _ in range(BEATS // 4):
        frame = [rng.getrandbits(32) for _ in range(rng.randrange(1, 9))]
        await give(dut, rng, idle, [{"s_data_i": value} for value in frame], "s_valid_i", "s_ready_o")
        is_good = rng.random() < 0.6
        kept += frame if is_good else []
        ending = dut.commit_i if is_good else dut.rollback_i
        ending.value = 1
        await RisingEdge(dut.clk_i)
        ending.value = 0
    for _ in range(200):
        await RisingEdge(dut.clk_i)
    assert collected == kept
    assert number(dut.free_o) == 16


@pytest.mark.parametrize("top", ["stream_skid", "stream_fifo", "stream_queue", "frame_fifo"])
def test_stream(top: str) -> None:
    """Every pair of PAUSES with every module."""
    simulate(top, __file__, Width=32, **({} if top == "stream_skid" else {"Depth": 16}))
