"""A reset begins without a clock, and ends at the second edge of the clock after the reset that it follows."""

from __future__ import annotations

from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, Timer

from benches import begin_reset, simulate

PERIOD_NS = 10


@cocotb.test()
async def begins_at_once_and_ends_with_the_clock(dut: Any) -> None:
    """Also where it is short, and where the clock has run for long."""
    dut.clk_i.value = 0
    await begin_reset(dut)
    await Timer(1, "ns")
    assert dut.rst_no.value == 0
    cocotb.start_soon(Clock(dut.clk_i, PERIOD_NS, "ns").start())
    for cycles in (0, 1, 2, 20):
        for _ in range(cycles):
            await FallingEdge(dut.clk_i)
            assert dut.rst_no.value == 0
        await FallingEdge(dut.clk_i)
        dut.rst_ni.value = 1
        await FallingEdge(dut.clk_i)
        assert dut.rst_no.value == 0
        for _ in range(20):
            await FallingEdge(dut.clk_i)
            assert dut.rst_no.value == 1
        dut.rst_ni.value = 0
        await Timer(1, "ns")
        assert dut.rst_no.value == 0


def test_reset_sync() -> None:
    """It has no parameters."""
    simulate("reset_sync", __file__)
