"""A light stays on for its time after the last event, and is off without one."""

from __future__ import annotations

from typing import Any

import cocotb
from cocotb.triggers import FallingEdge, RisingEdge

from benches import chance, simulate, start

BITS = 3
LIT = (1 << BITS) - 1  # cycles after an event


@cocotb.test()
async def shines_after_events(dut: Any) -> None:
    """Single events, and events while it shines; from the second cycle after an event on."""
    rng = chance()
    await start(dut)
    left = is_lit = 0
    for cycle in range(3000):
        await FallingEdge(dut.clk_i)
        assert dut.led_no.value == int(not is_lit), cycle
        dut.event_i.value = event = int(rng.random() < rng.choice((0.02, 0.3)))
        await RisingEdge(dut.clk_i)
        is_lit = left > 0
        left = LIT if event else max(0, left - 1)


@cocotb.test()
async def is_dark_in_reset(dut: Any) -> None:
    """A reset ends the light at once."""
    await start(dut)
    dut.event_i.value = 1
    for _ in range(4):
        await FallingEdge(dut.clk_i)
    assert dut.led_no.value == 0
    dut.event_i.value = dut.rst_ni.value = 0
    await FallingEdge(dut.clk_i)
    assert dut.led_no.value == 1
    dut.rst_ni.value = 1
    for _ in range(2 * LIT):
        await FallingEdge(dut.clk_i)
        assert dut.led_no.value == 1


def test_led_pulse() -> None:
    """A short one."""
    simulate("led_pulse", __file__, Bits=BITS)
