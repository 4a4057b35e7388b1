"""The board's switch is written to AGG_MODE once at the start, and once whenever it has moved."""

from __future__ import annotations

from typing import Any

import cocotb
from cocotb.triggers import FallingEdge

from benches import chance, number, simulate, start
from registers import offset

SPARE = 6  # cycles until a pin is seen


async def written(dut: Any, cycles: int, ready: float = 0.3) -> list[int]:
    """The values that are written in so many cycles; the register is ready with this probability."""
    rng, values, held = chance(), [], None
    for _ in range(cycles):
        await FallingEdge(dut.clk_i)
        if dut.awvalid_o.value:
            assert number(dut.awaddr_o) == offset("AGG_MODE")
            assert held in (None, number(dut.wdata_o))  # it stands until it is taken
            held = number(dut.wdata_o)
        dut.awready_i.value = is_ready = int(rng.random() < ready)
        if held is not None and is_ready:
            values.append(held)
            held = None
    dut.awready_i.value = 0
    return values


@cocotb.test()
async def writes_what_has_changed(dut: Any) -> None:
    """At the start also where the value is that of a reset. Then only what is new, and the last of several values."""
    for first in (0, 1):
        await start(dut, is_float_i=first)
        assert await written(dut, 60) == [first]
        for value in (1 - first, first, 1 - first):
            dut.is_float_i.value = value
            assert await written(dut, 60) == [value]
        assert await written(dut, 60) == []


@cocotb.test()
async def writes_once_more_if_it_moves_meanwhile(dut: Any) -> None:
    """A value that is being written stands still; the next follows it."""
    await start(dut, is_float_i=1)
    assert await written(dut, 4 * SPARE, ready=0.0) == [] and dut.awvalid_o.value
    dut.is_float_i.value = 0
    assert await written(dut, 4 * SPARE, ready=0.0) == [] and number(dut.wdata_o) == 1
    assert await written(dut, 60) == [1, 0]


def test_start_settings() -> None:
    """It has no parameters."""
    simulate("start_settings", __file__)
