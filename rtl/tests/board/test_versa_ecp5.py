"""The top of the board without its switch: the PLL's pins, the resets of the PHYs, the button, and the lights that are
not the switch's."""

from __future__ import annotations

from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import RisingEdge, Timer

from benches import inputs_of, simulate

START_BITS = 6
START = 1 << START_BITS  # cycles
SPARE = 8  # of the synchronisers


async def begin(dut: Any) -> None:
    """The clocks of the PLL, which is not simulated and has not locked."""
    for port in inputs_of(dut).values():
        port.value = 0
    dut.u_pll.LOCK.value = 0
    dut.rst_ni.value = 1
    await Timer(1, "ns")
    cocotb.start_soon(Clock(dut.u_pll.CLKOS, 20, "ns").start())
    cocotb.start_soon(Clock(dut.u_pll.CLKOP, 8, "ns").start())
    for _ in range(2 * START):
        await RisingEdge(dut.u_pll.CLKOS)


async def cycles_to_start(dut: Any) -> int:
    """Cycles until the PHYs leave their reset."""
    cycles = 0
    while int(dut.eth_rst_no.value) == 0:
        assert int(dut.led_no.value) >> 3 & 1, "the light says that it has started"
        await RisingEdge(dut.u_pll.CLKOS)
        cycles += 1
        assert cycles <= 2 * START
    assert int(dut.eth_rst_no.value) == 0b11 and not int(dut.led_no.value) >> 3 & 1
    return cycles


@cocotb.test()
async def starts_when_the_clock_is_steady(dut: Any) -> None:
    """After a wait behind the PLL's lock, and again behind the button; then for good."""
    await begin(dut)
    assert int(dut.eth_rst_no.value) == 0
    dut.u_pll.LOCK.value = 1
    assert START <= await cycles_to_start(dut) <= START + SPARE
    for _ in range(3 * START):
        await RisingEdge(dut.u_pll.CLKOS)
        assert int(dut.eth_rst_no.value) == 0b11
    dut.rst_ni.value = 0
    await RisingEdge(dut.u_pll.CLKOS)
    await RisingEdge(dut.u_pll.CLKOS)
    assert int(dut.eth_rst_no.value) == 0
    dut.rst_ni.value = 1
    assert START <= await cycles_to_start(dut) <= START + SPARE


@cocotb.test()
async def lets_the_pll_run(dut: Any) -> None:
    """Nothing resets or stops it; its outputs are always enabled."""
    await begin(dut)
    pins = [dut.u_pll.RST, dut.u_pll.STDBY, dut.u_pll.ENCLKOP, dut.u_pll.ENCLKOS]
    assert [int(pin.value) for pin in pins] == [0, 0, 0, 0]


@cocotb.test()
async def shows_the_numbers_it_sums(dut: Any) -> None:
    """A light follows the DIP switch."""
    await begin(dut)
    for is_float in (1, 0, 1):
        dut.is_float_i.value = is_float
        await RisingEdge(dut.u_pll.CLKOS)
        assert int(dut.led_no.value) >> 7 == 1 - is_float


def test_versa_ecp5() -> None:
    """With a short wait."""
    simulate("versa_ecp5", __file__, ["EHXPLLL"], StartBits=START_BITS)
