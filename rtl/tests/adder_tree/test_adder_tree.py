"""Compares the adder tree with the software's fold, bit for bit: any number of ranks, floats of any bits, integers that
wrap."""

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

LANES, BEATS = 2, 400
ADDER_STAGES = 5


def draw(values: np.random.Generator, is_float: bool) -> np.ndarray:
    """One number for each rank and lane of a beat: any bits, or similar numbers, zeros, subnormals, infinities, NaN."""
    shape = (int(os.environ["RANKS"]), LANES)
    bits = values.integers(0, 1 << 32, shape, np.uint32)
    if not is_float or values.random() < 0.3:
        return bits
    if values.random() < 0.1:
        return np.full(shape, 0x80000000, np.uint32)  # any other number that is added would show
    special = np.array([0, 0x80000000, 1, 0x80000001, 0x7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000], np.uint32)
    alike = values.standard_normal(shape).astype(np.float32).view(np.uint32)
    return np.where(values.random(shape) < 0.2, values.choice(special, shape), alike).astype(np.uint32)


def folded(numbers: np.ndarray, is_float: bool) -> np.ndarray:
    """The software's sum, with every NaN in the adder's form."""
    if not is_float:
        return netfold.fold(list(numbers.view(np.int32)), "int32").view(np.uint32)
    total = netfold.fold(list(numbers.view(np.float32)))
    return np.where(np.isnan(total), np.uint32(0x7FC00000), total.view(np.uint32))


@cocotb.test()
async def agrees_with_the_fold(dut: Any) -> None:
    """Floats and integers in any order, a beat per cycle; absent ranks have no effect."""
    ranks, most = int(os.environ["RANKS"]), int(os.environ["MOST"])
    values = np.random.default_rng(chance().randrange(1 << 30))
    cocotb.start_soon(Clock(dut.clk_i, 10, "ns").start())
    await RisingEdge(dut.clk_i)
    latency = ADDER_STAGES * (most - 1).bit_length()
    kinds = [bool(values.integers(2)) for _ in range(BEATS)]
    beats = [draw(values, kind) for kind in kinds]
    for at in range(BEATS + latency):
        if at < BEATS:
            absent = 0x80000000 if kinds[at] else 0
            whole = [*beats[at], *[[absent] * LANES] * (most - ranks)]
            dut.is_float_i.value = int(kinds[at])
            dut.numbers_i.value = sum(int(x) << 32 * i for i, x in enumerate(x for rank in whole for x in rank))
        await RisingEdge(dut.clk_i)
        if at >= latency:
            done = at - latency
            found = [number(dut.sum_o) >> 32 * lane & 0xFFFFFFFF for lane in range(LANES)]
            assert found == folded(beats[done], kinds[done]).tolist(), (beats[done], kinds[done])


@pytest.mark.parametrize(("ranks", "most"), [(3, 3), (5, 5), (2, 8), (5, 8), (6, 8), (7, 8), (8, 8)])
def test_adder_tree(ranks: int, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """`ranks` ranks in a tree for `most`."""
    monkeypatch.setenv("RANKS", str(ranks))
    monkeypatch.setenv("MOST", str(most))
    simulate("adder_tree", __file__, Ranks=most)
