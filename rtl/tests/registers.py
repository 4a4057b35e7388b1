"""A host that accesses the switch's registers, over AXI-Lite and over SPI."""

from __future__ import annotations

from typing import Any

from cocotb.triggers import FallingEdge, RisingEdge, Timer

from netfold_lab.rtl.registers import SWITCH, read

MAP = {register.name: register for register in read(SWITCH).registers}
OKAY, SLAVE_ERROR = 0, 2
SPI_HALF_NS = 25
WAIT_MAX = 100  # cycles


def offset(name: str, port: int = 0) -> int:
    """Of a register, or of a port's counter."""
    register = MAP[name]
    return register.offset + SWITCH.port_stride * port * register.is_counter


async def _until(dut: Any, signal: Any) -> None:
    for _ in range(WAIT_MAX):
        await FallingEdge(dut.clk_i)
        if signal.value:
            return
    raise AssertionError("no answer")


async def write(dut: Any, name: str, value: int, base: int = 0) -> int:
    """The response. `base`: the address of a slice's registers."""
    await FallingEdge(dut.clk_i)
    assert not dut.s_axil_bvalid_o.value  # nothing is written
    dut.s_axil_awaddr_i.value, dut.s_axil_wdata_i.value = base + offset(name), value
    dut.s_axil_awvalid_i.value = dut.s_axil_wvalid_i.value = 1
    await _until(dut, dut.s_axil_awready_o)
    await FallingEdge(dut.clk_i)
    dut.s_axil_awvalid_i.value = dut.s_axil_wvalid_i.value = 0
    assert dut.s_axil_bvalid_o.value
    return int(dut.s_axil_bresp_o.value)


async def read_at(dut: Any, address: int) -> int:
    """Read a word."""
    await FallingEdge(dut.clk_i)
    dut.s_axil_araddr_i.value, dut.s_axil_arvalid_i.value = address, 1
    await _until(dut, dut.s_axil_arready_o)
    await FallingEdge(dut.clk_i)
    dut.s_axil_arvalid_i.value = 0
    assert dut.s_axil_rvalid_o.value and dut.s_axil_rresp_o.value == OKAY
    return int(dut.s_axil_rdata_o.value)


async def value_of(dut: Any, name: str, port: int = 0, base: int = 0) -> int:
    """Of a register, or of a port's counter with its upper bits."""
    low = await read_at(dut, base + offset(name, port))
    return low | (await read_at(dut, base + offset("COUNTER_HIGH")) << 32 if MAP[name].is_counter else 0)


async def spi(dut: Any, name: str, value: int | None = None) -> int:
    """Write `value`, or read."""
    is_write = value is not None
    word = int(is_write) << 15 | offset(name)
    bits = [word >> i & 1 for i in reversed(range(16))]
    bits += [value >> i & 1 for i in reversed(range(32))] if value is not None else [0] * 40
    answer = 0
    dut.spi_cs_ni.value = 0
    for bit in bits:
        dut.spi_mosi_i.value = bit
        await Timer(SPI_HALF_NS, "ns")
        answer = (answer << 1 | int(dut.spi_miso_o.value)) & 0xFFFFFFFF  # sampled when SCLK rises
        dut.spi_sclk_i.value = 1
        await Timer(SPI_HALF_NS, "ns")
        dut.spi_sclk_i.value = 0
    await Timer(SPI_HALF_NS, "ns")
    dut.spi_cs_ni.value = 1
    for _ in range(10):
        await RisingEdge(dut.clk_i)
    return answer
