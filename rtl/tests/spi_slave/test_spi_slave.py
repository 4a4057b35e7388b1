"""The registers over SPI: accesses in mode 0, at the fastest clock and slower, and accesses that end early."""

from __future__ import annotations

from typing import Any

import cocotb
from cocotb.triggers import ClockCycles, RisingEdge

from benches import chance, number, simulate, start

ACCESSES = 120
HEADER_BITS, PATIENCE_BITS, DATA_BITS = 16, 8, 32
FASTEST = 4  # cycles of half a period of SCLK
Access = tuple[int, int, int]  # write, address, data (of a read: 0)


class Registers:
    """The registers behind the device: they answer after a while, and keep every access."""

    def __init__(self, dut: Any, rng: Any) -> None:
        self.dut, self.rng = dut, rng
        self.accesses: list[Access] = []
        self.answers: list[int] = []  # to reads

    async def serve(self) -> None:
        """Run forever."""
        dut = self.dut
        while True:
            await RisingEdge(dut.clk_i)
            if not dut.valid_o.value:
                continue
            writes, address = int(dut.write_o.value), number(dut.address_o)
            # A write is done before the host can send another bit; a read within the bits of patience.
            for _ in range(self.rng.randrange(2 if writes else 2 * FASTEST * (PATIENCE_BITS - 2))):
                await RisingEdge(dut.clk_i)
                assert dut.valid_o.value
            self.accesses.append((writes, address, number(dut.wdata_o) if writes else 0))
            dut.done_i.value, dut.rdata_i.value = 1, self.rng.getrandbits(32)
            await RisingEdge(dut.clk_i)
            if not writes:
                self.answers.append(number(dut.rdata_i))
            dut.done_i.value = 0


async def transfer(dut: Any, bits: list[int], half: int) -> list[int]:
    """Send bits, each half a period before SCLK rises; returns MISO at these rising edges."""
    seen = []
    for bit in bits:
        dut.mosi_i.value = bit
        await ClockCycles(dut.clk_i, half)
        seen.append(int(dut.miso_o.value))
        dut.sclk_i.value = 1
        await ClockCycles(dut.clk_i, half)
        dut.sclk_i.value = 0
    return seen


def bits_of(value: int, count: int) -> list[int]:
    """The highest first."""
    return [value >> at & 1 for at in reversed(range(count))]


async def begin(dut: Any, rng: Any, cs: int) -> Registers:
    """Reset, with CS at this level, and registers behind the device."""
    await start(dut, cs_ni=cs)
    registers = Registers(dut, rng)
    cocotb.start_soon(registers.serve())
    return registers


@cocotb.test()
async def serves_a_host(dut: Any) -> None:
    """Reads and writes; some end before their last bit, and some go on after it. Without CS nothing happens."""
    rng = chance()
    registers = await begin(dut, rng, cs=1)
    await ClockCycles(dut.clk_i, 8)
    expected: list[Access] = []
    for _ in range(ACCESSES):
        half = rng.choice([FASTEST, FASTEST, FASTEST + 1, 9])
        writes, address, data = rng.randrange(2), rng.getrandbits(13), rng.getrandbits(32)
        header = bits_of(writes << 15 | address, HEADER_BITS)
        bits = header + (bits_of(data, DATA_BITS) if writes else [rng.randrange(2) for _ in range(40)])
        needed = HEADER_BITS + (DATA_BITS if writes else 0)
        ends = rng.random() < 0.3
        if ends:
            bits = bits[: rng.choice([1, HEADER_BITS - 1, HEADER_BITS, needed - 1, rng.randrange(1, len(bits))])]
        else:
            bits += [rng.randrange(2) for _ in range(rng.choice([0, 0, 40]))]
        selected = rng.random() < 0.9
        dut.cs_ni.value = int(not selected)
        await ClockCycles(dut.clk_i, 4)
        seen = await transfer(dut, bits, half)
        await ClockCycles(dut.clk_i, 4)
        dut.cs_ni.value = 1
        await ClockCycles(dut.clk_i, 2 * FASTEST * PATIENCE_BITS)
        if selected and len(bits) >= needed:
            expected.append((writes, address, data if writes else 0))
            if not writes and not ends:
                first = HEADER_BITS + PATIENCE_BITS
                assert seen[first : first + DATA_BITS] == bits_of(registers.answers[-1], DATA_BITS)
        assert registers.accesses == expected
    assert {one[0] for one in expected} == {0, 1}


@cocotb.test()
async def begins_anew_after_a_reset(dut: Any) -> None:
    """Bits of before a reset do not count."""
    registers = await begin(dut, chance(), cs=0)
    for before in range(1, HEADER_BITS):
        await transfer(dut, [1] * before, FASTEST)
        dut.rst_ni.value = 0
        await RisingEdge(dut.clk_i)
        dut.rst_ni.value = 1
        await ClockCycles(dut.clk_i, 4)
        await transfer(dut, bits_of(before, HEADER_BITS), FASTEST)
        await ClockCycles(dut.clk_i, 2 * FASTEST * PATIENCE_BITS)
        assert registers.accesses == [(0, before, 0)]
        registers.accesses.clear()
        dut.cs_ni.value = 1
        await ClockCycles(dut.clk_i, 4)
        dut.cs_ni.value = 0
        await ClockCycles(dut.clk_i, 4)


def test_spi_slave() -> None:
    """The device has no parameters."""
    simulate("spi_slave", __file__)
