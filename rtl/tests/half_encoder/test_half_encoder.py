"""Compares sums rounded to 16-bit floats with the software's: ties, subnormal numbers, overflow, infinities, NaN."""

from __future__ import annotations

from typing import Any

import cocotb
import numpy as np
from cocotb.triggers import Timer

from benches import chance, number, simulate
from halves import LANES, rounded, scaled

HALVES, BEATS = 4, 8000
INFINITE, NAN = 0x7F800000, 0x7FC00000
SPECIAL = [0, 1 << 31, INFINITE, INFINITE | 1 << 31, NAN]
# Around where a format becomes infinite, and the largest sums of fp16: 65504, 65520 (a tie), 65536.
EDGES = [0x477FE000, 0x477FEFFF, 0x477FF000, 0x47800000, 0x7F7F7FFF, 0x7F7F8000, 0x7F7FFFFF, 0x38800000, 0x387FC000]


def of_bf16(values: np.random.Generator) -> np.ndarray:
    """Sums of any bits; a third lies at a tie or beside it."""
    bits = values.integers(0, 1 << 32, HALVES, np.uint32)
    near = bits & 0xFFFF0000 | values.choice([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], HALVES).astype(np.uint32)
    return np.where(values.random(HALVES) < 0.3, near, bits)


def of_fp16(values: np.random.Generator) -> np.ndarray:
    """Multiples of 2^-24, of any exponent up to far above the largest of fp16; a third lies at or near a tie."""
    exponent = values.integers(103, 150, HALVES).astype(np.uint32)
    fraction = values.integers(0, 1 << 23, HALVES, np.uint32)
    near = fraction & 0x7FE000 | values.choice([0, 1, 0xFFF, 0x1000, 0x1001, 0x1FFF], HALVES).astype(np.uint32)
    fraction = np.where(values.random(HALVES) < 0.3, near, fraction)
    below = np.maximum(126 - exponent.astype(int), 0)  # bits of the fraction that would be below 2^-24
    fraction = fraction >> below << below
    return (values.integers(0, 2, HALVES) << 31 | exponent << 23 | fraction).astype(np.uint32)


def draw(values: np.random.Generator, wire: str) -> np.ndarray:
    """Four sums, some of them special."""
    some = of_fp16(values) if wire == "fp16" else of_bf16(values)
    edge = values.choice(EDGES, HALVES) | values.integers(0, 2, HALVES) << 31
    some = np.where(values.random(HALVES) < 0.05, edge, some)
    some = np.where(values.random(HALVES) < 0.05, values.choice(SPECIAL, HALVES), some).astype(np.uint32)
    return np.where((some & 0x7FFFFFFF) > INFINITE, np.uint32(NAN), some)  # as the adders give it


@cocotb.test()
async def rounds(dut: Any) -> None:
    """Beats of either format, and words."""
    values = np.random.default_rng(chance().randrange(1 << 30))
    for _ in range(BEATS):
        wire = str(values.choice(["fp16", "bf16", "words"]))
        sums = draw(values, wire)
        given = sums if wire == "words" else scaled(sums.view(np.float32), wire)
        in_lanes = [0] * HALVES
        for half, bits in enumerate(given.tolist()):
            in_lanes[LANES[half]] = bits
        beat = in_lanes[1] << 32 | in_lanes[0]
        if wire != "words":
            beat = int.from_bytes(rounded(sums.view(np.float32), wire).tobytes(), "little")
        dut.sums_i.value = sum(bits << 32 * lane for lane, bits in enumerate(in_lanes))
        dut.is_half_i.value, dut.is_fp16_i.value = int(wire != "words"), int(wire == "fp16")
        await Timer(1, "ns")
        assert number(dut.beat_o) == beat, f"{wire} {[f'{bits:08x}' for bits in sums]}: {number(dut.beat_o):016x}"


def test_half_encoder() -> None:
    """It has no parameters."""
    simulate("half_encoder", __file__)
