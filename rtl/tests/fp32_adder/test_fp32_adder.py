"""Compares the adder array with numpy: random and corner operands, with and without subnormals."""

from __future__ import annotations

import os
from typing import Any

import cocotb
import numpy as np
import pytest

from benches import PAUSES, chance, give, number, simulate, start, take

LANES = 4
BEATS = 200
CORNERS = [0, 1, 0x007FFFFF, 0x00800000, 0x00800001, 0x3F800000, 0x3F7FFFFF, 0x7F7FFFFF, 0x7F800000, 0x7FC00000]


def flushed(values: np.ndarray) -> np.ndarray:
    """Replace subnormals by zeros with their sign (uint32 in, uint32 out)."""
    return np.where((values >> 23) & 0xFF == 0, values & 0x80000000, values).astype(np.uint32)


def expected(a: np.ndarray, b: np.ndarray, subnormals: bool) -> np.ndarray:
    """Bits of the sums; every NaN in the adder's form."""
    if not subnormals:
        a, b = flushed(a), flushed(b)
    with np.errstate(all="ignore"):
        total = (a.view(np.float32) + b.view(np.float32)).astype(np.float32)
    bits = np.where(np.isnan(total), np.uint32(0x7FC00000), total.view(np.uint32)).astype(np.uint32)
    return bits if subnormals else flushed(bits)


def operands(rng: Any) -> tuple[np.ndarray, np.ndarray]:
    """Pairs: corner cases with either sign, neighbours, opposites, random bits."""
    pairs = []
    for _ in range(BEATS * LANES):
        a = rng.choice(CORNERS) | rng.getrandbits(1) << 31 if rng.random() < 0.3 else rng.getrandbits(32)
        near = (a & 0xFF800000) + (rng.randrange(-3, 4) << 23) & 0x7F800000
        b = rng.choice([rng.getrandbits(32), near | rng.getrandbits(23) | rng.getrandbits(1) << 31, a ^ 1 << 31])
        pairs.append((a, b if rng.random() < 0.8 else rng.choice(CORNERS)))
    for _ in range(BEATS * LANES // 3):  # halves of the last place, and one bit more or less far below
        exponent, distance = rng.randrange(60, 250), rng.choice([24, 24, 25, rng.randrange(20, 34)])
        a = rng.getrandbits(1) << 31 | exponent << 23 | rng.choice([0, 1, 0x7FFFFF, 2, 3])
        b = rng.getrandbits(1) << 31 | exponent - distance << 23 | rng.choice([0, 1 << rng.randrange(23)])
        pairs[rng.randrange(len(pairs))] = (a, b) if rng.random() < 0.5 else (b, a)
    both = np.array(pairs, dtype=np.uint64).astype(np.uint32)
    return both[:, 0].copy(), both[:, 1].copy()


def beats(values: np.ndarray, name: str) -> list[dict[str, int]]:
    """A beat for each `LANES` numbers."""
    return [{name: int.from_bytes(part.tobytes(), "little")} for part in values.reshape(-1, LANES)]


@cocotb.test()
@cocotb.parametrize((("idle", "stall"), PAUSES))
async def adds(dut: Any, idle: float, stall: float) -> None:
    """Bit for bit."""
    rng = chance()
    await start(dut, a_tvalid_i=0, b_tvalid_i=0, m_tready_i=0)
    a, b = operands(rng)
    cocotb.start_soon(give(dut, rng, idle, beats(a, "a_tdata_i"), "a_tvalid_i", "a_tready_o"))
    cocotb.start_soon(give(dut, rng, idle, beats(b, "b_tdata_i"), "b_tvalid_i", "b_tready_o"))
    read = lambda: number(dut.m_tdata_o).to_bytes(4 * LANES, "little")  # noqa: E731
    taken = await take(dut, rng, stall, BEATS, "m_tvalid_o", "m_tready_i", read)
    found = np.frombuffer(b"".join(taken), dtype=np.uint32)
    wrong = np.flatnonzero(found != expected(a, b, os.environ["SUBNORMALS"] == "1"))
    assert wrong.size == 0, f"{a[wrong[0]]:08x} + {b[wrong[0]]:08x} gave {found[wrong[0]]:08x}"


@pytest.mark.parametrize("subnormals", [0])
def test_adder(subnormals: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every pair of PAUSES; campaigns run the one with subnormals."""
    monkeypatch.setenv("SUBNORMALS", str(subnormals))
    simulate("fp32_adder_array", __file__, Lanes=LANES, Subnormals=subnormals)
