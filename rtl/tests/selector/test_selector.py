"""Compares a choice by number with an index, for numbers of words that are powers of two and others."""

from __future__ import annotations

from typing import Any

import cocotb
import pytest
from cocotb.triggers import Timer

from benches import chance, number, simulate

WIDTH = 37


@cocotb.test()
async def selects_by_number(dut: Any) -> None:
    """Every number, over random words. Behind the last word lie zeros."""
    rng = chance()
    inputs = len(dut.data_i) // WIDTH
    for _ in range(100):
        words = [rng.getrandbits(WIDTH) for _ in range(inputs)]
        dut.data_i.value = sum(word << WIDTH * at for at, word in enumerate(words))
        for index in range(1 << len(dut.index_i)):
            dut.index_i.value = index
            await Timer(1, "ns")
            assert number(dut.data_o) == (words[index] if index < inputs else 0)


@pytest.mark.parametrize("inputs", [2, 3, 8, 11])
def test_selector(inputs: int) -> None:
    """A hundred sets of words."""
    simulate("selector", __file__, Inputs=inputs, Width=WIDTH)
