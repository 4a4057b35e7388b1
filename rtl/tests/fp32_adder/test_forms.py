"""The other forms of the adder: with subnormals, and the plain one, which has neither subnormals nor NaN; in nine
stages and in five."""

from __future__ import annotations

import os
from typing import Any

import cocotb
import numpy as np
import pytest
from cocotb.clock import Clock
from cocotb.triggers import RisingEdge
from test_fp32_adder import expected, operands

from benches import chance, number, simulate

SMALLEST, INFINITE = 0x00800000, 0x7F800000


def plain(bits: np.ndarray) -> np.ndarray:
    """The nearest number that the plain form takes: a multiple of the smallest normal one, or an infinity."""
    sign, size = bits & 0x80000000, bits & 0x7FFFFFFF
    exponent = size >> 23
    # Below exponent 24 the lowest bits are worth less than the smallest normal number.
    fraction_bits = np.clip(exponent.astype(np.int64) - 1, 0, 23)
    mask = (~((np.uint64(1) << (23 - fraction_bits).astype(np.uint64)) - np.uint64(1))).astype(np.uint32)
    size = np.where(exponent == 0, 0, np.where(exponent == 255, INFINITE, size & mask))
    return (sign | size).astype(np.uint32)


@cocotb.test()
async def adds(dut: Any) -> None:
    """Bit for bit, a sum a cycle; some cycles stand still."""
    rng = chance()
    a, b = operands(rng)
    is_plain, stages = os.environ["PLAIN"] == "1", int(os.environ["STAGES"])
    if is_plain:
        a, b = plain(a), plain(b)
    right = expected(a, b, subnormals=True)
    if is_plain:  # what would be NaN is infinite, of either sign
        right = np.where(right == 0x7FC00000, INFINITE, right)
    cocotb.start_soon(Clock(dut.clk_i, 10, "ns").start())
    at = 0
    while at < a.size + stages:
        if at < a.size:
            dut.a_i.value, dut.b_i.value = int(a[at]), int(b[at])
        dut.en_i.value = int(rng.random() < 0.8)
        await RisingEdge(dut.clk_i)
        if not dut.en_i.value:
            continue
        if at >= stages:
            found, want = number(dut.sum_o), int(right[at - stages])
            if is_plain and want & INFINITE == INFINITE:
                found, want = found & INFINITE, INFINITE
            assert found == want, f"{a[at - stages]:08x} + {b[at - stages]:08x} gave {found:08x}, not {want:08x}"
        at += 1


@pytest.mark.parametrize("stages", [9, 5])
@pytest.mark.parametrize("is_plain", [0, 1])
def test_form(is_plain: int, stages: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With subnormals, and plain; for a fast clock and for a slow one."""
    monkeypatch.setenv("PLAIN", str(is_plain))
    monkeypatch.setenv("STAGES", str(stages))
    simulate("fp32_adder", __file__, Plain=is_plain, Stages=stages)
