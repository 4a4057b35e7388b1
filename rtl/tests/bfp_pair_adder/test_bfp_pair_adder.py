"""Compares the sum of two ranks' block floating point with numpy's sum of the decoded numbers, bit for bit."""

from __future__ import annotations

from typing import Any

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import RisingEdge

from benches import chance, number, simulate

ELEMENTS, BEATS, LATENCY = 2, 6000, 7
INFINITE = 0xFF << 23
MANTISSAS = [0, 1, -1, 2, 64, -64, 127, -127, -128]


def draw(values: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Exponents of two blocks, mostly near enough to change each other's sums, and mantissas by rank and element."""
    first = int(values.choice([0, 7, 254, *values.integers(7, 255, 9)]))
    near = int(np.clip(first + values.integers(-40, 41), 7, 254))
    second = int(values.choice([0, near, near, near, near, near, first, *values.integers(7, 255, 2)]))
    some = values.integers(-128, 128, (2, ELEMENTS))
    shape = some.shape
    small = some >> values.integers(0, 8, shape)
    mantissas = np.where(values.random(shape) < 0.3, values.choice(MANTISSAS, shape), small)
    return np.array([first, second]), mantissas


def added(exponents: np.ndarray, mantissas: np.ndarray) -> list[int]:
    """Bits of the sums; zeros are positive."""
    with np.errstate(over="ignore", invalid="ignore"):
        scales = np.where(exponents == 0, np.float64(0), np.ldexp(1.0, exponents - 133))
        numbers = (mantissas * scales[:, None]).astype(np.float32)
        return [int(bits) for bits in (numbers[0] + numbers[1] + np.float32(0)).view(np.uint32)]


def packed(mantissas: np.ndarray) -> int:
    """A byte per element, the first one lowest."""
    return int.from_bytes(mantissas.astype(np.int8).tobytes(), "little")


@cocotb.test()
async def adds(dut: Any) -> None:
    """A pair of blocks per cycle."""
    values = np.random.default_rng(chance().randrange(1 << 30))
    cocotb.start_soon(Clock(dut.clk_i, 10, "ns").start())
    await RisingEdge(dut.clk_i)
    given = [draw(values) for _ in range(BEATS)]
    for at in range(BEATS + LATENCY):
        if at < BEATS:
            exponents, mantissas = given[at]
            dut.a_exponent_i.value, dut.b_exponent_i.value = (int(one) for one in exponents)
            dut.a_i.value, dut.b_i.value = packed(mantissas[0]), packed(mantissas[1])
        await RisingEdge(dut.clk_i)
        if at < LATENCY:
            continue
        for element, right in enumerate(added(*given[at - LATENCY])):
            found = number(dut.sum_o) >> 32 * element & 0xFFFFFFFF
            # Infinities and NaN have the largest exponent.
            same = found & INFINITE == INFINITE if right & INFINITE == INFINITE else found == right
            assert same, f"{given[at - LATENCY]}: {found:08x}, not {right:08x}"


def test_bfp_pair_adder() -> None:
    """Two elements of a block."""
    simulate("bfp_pair_adder", __file__, Elements=ELEMENTS)
