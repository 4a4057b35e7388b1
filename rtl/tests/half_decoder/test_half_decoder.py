"""Compares 16-bit floats in FP32 with the software's: every value of both formats at every place of a beat."""

from __future__ import annotations

from typing import Any

import cocotb
import numpy as np
from cocotb.triggers import Timer

from benches import chance, number, simulate
from halves import LANES, scaled, widened

HALVES = 4


def same(found: int, right: int) -> bool:
    """A NaN may be any other."""
    is_nan = [bits & 0x7FFFFFFF > 0x7F800000 for bits in (found, right)]
    return found == right or all(is_nan)


async def numbers(dut: Any, beat: int, is_half: int, is_fp16: int) -> list[int]:
    """The four lanes."""
    dut.beat_i.value, dut.is_half_i.value, dut.is_fp16_i.value = beat, is_half, is_fp16
    await Timer(1, "ns")
    return [number(dut.numbers_o) >> 32 * lane & 0xFFFFFFFF for lane in range(HALVES)]


@cocotb.test()
@cocotb.parametrize(("wire", ["fp16", "bf16"]))
async def widens(dut: Any, wire: str) -> None:
    """Every value, beside any others."""
    values = np.random.default_rng(chance().randrange(1 << 30))
    order = np.array([values.permutation(1 << 16) for _ in range(HALVES)], np.uint16).T
    wide = scaled(widened(np.ascontiguousarray(order), wire), wire)
    for halves, right in zip(order.tolist(), wide.tolist(), strict=True):
        beat = sum(half << 16 * i for i, half in enumerate(halves))
        found = await numbers(dut, beat, 1, int(wire == "fp16"))
        for half in range(HALVES):
            assert same(found[LANES[half]], right[half]), f"{halves[half]:04x}: {found[LANES[half]]:08x}"


@cocotb.test()
async def passes_words(dut: Any) -> None:
    """Of another format the first two lanes are the beat's words."""
    rng = chance()
    for _ in range(200):
        beat = rng.getrandbits(64)
        assert (await numbers(dut, beat, 0, 0))[:2] == [beat & 0xFFFFFFFF, beat >> 32]


def test_half_decoder() -> None:
    """It has no parameters."""
    simulate("half_decoder", __file__)
