"""Compares sums of block floating point by lanes with the software's fold of the decoded numbers."""

from __future__ import annotations

import os
from typing import Any

import cocotb
import numpy as np
import pytest
from cocotb.clock import Clock
from cocotb.triggers import RisingEdge

import netfold
from benches import chance, number, simulate

PAIRS, BEATS = 2, 500
ADDER_STAGES = 5
INFINITE = 0xFF << 23


def draw(values: np.random.Generator, ranks: int) -> tuple[np.ndarray, np.ndarray]:
    """Exponents by rank and pair, similar or not, and mantissas."""
    middle, spread = values.integers(7, 255, PAIRS), values.choice([0, 3, 20, 40])
    exponents = np.clip(middle + values.integers(-spread, spread + 1, (ranks, PAIRS)), 7, 254)
    exponents[values.random(exponents.shape) < 0.05] = 0
    mantissas = values.integers(-127, 128, (ranks, PAIRS, 2)) >> values.integers(0, 8, (ranks, PAIRS, 2))
    return exponents, mantissas


def folded(exponents: np.ndarray, mantissas: np.ndarray) -> np.ndarray:
    """Bits of the software's sums."""
    scales = np.where(exponents == 0, 0.0, np.ldexp(1.0, exponents - 133))
    numbers = (mantissas * scales[:, :, None]).astype(np.float32)
    return netfold.fold([one.ravel() for one in numbers]).view(np.uint32)


@cocotb.test()
async def folds(dut: Any) -> None:
    """Two pairs of all ranks per cycle. A zero may have either sign: its block's mantissa is 0."""
    ranks = int(os.environ["RANKS"])
    values = np.random.default_rng(chance().randrange(1 << 30))
    cocotb.start_soon(Clock(dut.clk_i, 10, "ns").start())
    await RisingEdge(dut.clk_i)
    latency = ADDER_STAGES * (ranks - 1).bit_length() + 2
    given = [draw(values, ranks) for _ in range(BEATS)]
    for at in range(BEATS + latency):
        if at < BEATS:
            exponents, mantissas = given[at]
            dut.exponent_i.value = int.from_bytes(exponents.astype(np.uint8).tobytes(), "little")
            dut.mantissa_i.value = int.from_bytes(mantissas.astype(np.int8).tobytes(), "little")
        await RisingEdge(dut.clk_i)
        if at < latency:
            continue
        found = np.frombuffer(number(dut.sum_o).to_bytes(8 * PAIRS, "little"), np.uint32)
        right = folded(*given[at - latency])
        same = np.where(right & INFINITE == INFINITE, found & INFINITE == INFINITE, found == right)
        zeros = (right << 1 == 0) & (found << 1 == 0)
        assert (same | zeros).all(), (given[at - latency], found, right)


@pytest.mark.parametrize("ranks", [3, 8])
def test_bfp_lanes(ranks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """`ranks` ranks; with an odd number the last one has no partner at first."""
    monkeypatch.setenv("RANKS", str(ranks))
    simulate("bfp_lanes", __file__, Ranks=ranks, Pairs=PAIRS)
