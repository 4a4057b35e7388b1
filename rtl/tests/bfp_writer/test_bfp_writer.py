"""Sums from the adders, and the written payloads: they must equal the software's encoding."""

from __future__ import annotations

from typing import Any

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import RisingEdge

import netfold
from benches import chance, number, simulate

PAIRS, GAP = 3, 4
BLOCK_BYTES = 17
LENGTHS = [256, 256, 3, 256, 5, 4, 251, 9, 13, 1]


def draw(values: np.random.Generator, words: int) -> np.ndarray:
    """Numbers of whole blocks without subnormals: similar, far apart, zeros, ties, or not finite."""
    blocks = 4 * words // BLOCK_BYTES
    shape = (blocks, 16)
    middle = values.integers(1, 255, (blocks, 1))
    exponents = np.clip(middle + values.integers(-12, 5, shape), 1, 254).astype(np.uint32)
    fractions = values.integers(0, 1 << 23, shape, np.uint32)
    fractions = np.where(values.random(shape) < 0.3, fractions & 0x7F0000, fractions)  # ties are frequent
    bits = values.integers(0, 2, shape, np.uint32) << 31 | exponents << 23 | fractions
    bits[values.random(shape) < 0.1] = 0
    bits[values.random(blocks) < 0.1, 3] = 0x7F800000
    return bits.astype(np.uint32).ravel()


def pieces(numbers: np.ndarray) -> list[tuple[int, int]]:
    """(step, numbers) by cycle."""
    found = []
    pairs = numbers.size // 2
    for first in range(0, pairs, PAIRS):
        place = first % 8
        count = min(PAIRS, pairs - first)
        old = 0 if place == 0 else min(8 - place, PAIRS)
        begins, completes, is_last = count > old, place >= 5, first + count == pairs
        step = 1 << 5 | min(old, count) << 3 | begins << 2 | completes << 1 | is_last
        data = numbers[2 * first : 2 * (first + count)].tobytes() + b"\x5a" * 4 * 2 * (PAIRS - count)
        found.append((step, int.from_bytes(data, "little")))
    return found


@cocotb.test()
async def writes(dut: Any) -> None:
    """Input is as dense as the reader's output: a gap of four cycles between payloads, and no pairs of payloads without
    a block. A reader starts when a sum is announced, and reads a beat per cycle; every beat must be written by then."""
    rng = chance()
    values = np.random.default_rng(rng.randrange(1 << 30))
    lengths = [*LENGTHS, *(rng.randrange(1, 257) for _ in range(20))]
    dut.rst_ni.value = dut.start_i.value = dut.s_step_i.value = 0
    cocotb.start_soon(Clock(dut.clk_i, 10, "ns").start())
    for _ in range(3):
        await RisingEdge(dut.clk_i)
    dut.rst_ni.value = 1
    wanted, given = [], []
    for place, words in enumerate(lengths):
        numbers = draw(values, words)
        encoded = netfold.encode(numbers.view(np.float32)).tobytes() if numbers.size else b""
        payload = encoded.ljust(8 * -(-words // 2), b"\0")
        wanted += [(place, beat, payload[8 * beat : 8 * beat + 8]) for beat in range(len(payload) // 8)]
        given += [None] * GAP + [(place, words)] + pieces(numbers)  # type: ignore[list-item]
    found, told, written = [], {}, {}
    for cycle in range(len(given) + 40):
        now = given[cycle] if cycle < len(given) else None
        is_start = now is not None and now[0] < 32
        dut.start_i.value = int(is_start)
        dut.s_step_i.value = 0
        if is_start:
            dut.place_i.value, dut.words_i.value = now
        elif now is not None:
            dut.s_step_i.value, dut.s_data_i.value = now
        await RisingEdge(dut.clk_i)
        if dut.write_o.value:
            place, beat = divmod(number(dut.address_o), 128)
            found.append((place, beat, number(dut.data_o).to_bytes(8, "little")))
            written[place, beat] = cycle
            if dut.tells_o.value:
                told[place] = cycle
    assert found == wanted
    assert sorted(told) == list(range(len(lengths)))
    assert all(cycle < told[place] + 1 + beat for (place, beat), cycle in written.items())


def test_bfp_writer() -> None:
    """Thirty-two places."""
    simulate("bfp_writer", __file__, PlaceAddressWidth=5)
