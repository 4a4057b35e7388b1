"""Compares the memory with a dictionary: writes and reads in any cycle, often of one place at once."""

from __future__ import annotations

import os
from typing import Any

import cocotb
import pytest
from cocotb.clock import Clock
from cocotb.triggers import RisingEdge

from benches import chance, number, simulate

WIDTH, DEPTH, CYCLES = 16, 8, 2000


@cocotb.test()
async def is_a_memory(dut: Any) -> None:
    """Data come after the latency, and stay until the next read; a read beside a write of the place gives the old
    value."""
    rng, latency = chance(), int(os.environ["LATENCY"])
    cocotb.start_soon(Clock(dut.clk_i, 10, "ns").start())
    memory: dict[int, int] = {}
    shown: list[int | None] = [None] * latency  # by the output, the latest first; None: a place that was never written
    for _ in range(CYCLES):
        writes, reads = rng.random() < 0.5, rng.random() < 0.6
        put, get, value = rng.randrange(DEPTH), rng.randrange(DEPTH), rng.getrandbits(WIDTH)
        dut.write_i.value, dut.write_address_i.value, dut.write_data_i.value = int(writes), put, value
        dut.read_i.value, dut.read_address_i.value = int(reads), get
        await RisingEdge(dut.clk_i)
        assert shown[-1] in (None, number(dut.read_data_o))
        shown = [memory.get(get) if reads else shown[0], *shown[:-1]]
        if writes:
            memory[put] = value
    assert len(memory) == DEPTH


@pytest.mark.parametrize("latency", [1, 2])
def test_simple_dual_port_ram(latency: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both forms: with a register behind the memory's own, and without."""
    monkeypatch.setenv("LATENCY", str(latency))
    simulate("simple_dual_port_ram", __file__, Width=WIDTH, Depth=DEPTH, Latency=latency)
