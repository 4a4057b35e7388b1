"""Sums from the adders, and the written payloads: they must equal the software's encoding."""

from __future__ import annotations

import random
from typing import Any

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.triggers import RisingEdge

import netfold
from benches import chance, number, simulate

PAIRS, GAP = 3, 4
BLOCK_BYTES = 17
RESET_CYCLES = 15  # of a soft reset
LATENCY_MAX = 40  # cycles from the last numbers to the last beat
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


class Sums:
    """Sums in consecutive places, as beats to write and as the adders give them: (place, words) or (step, numbers)."""

    def __init__(self, rng: random.Random, lengths: list[int]) -> None:
        values = np.random.default_rng(rng.randrange(1 << 30))
        self.wanted: list[tuple[int, int, bytes]] = []  # place, beat, its bytes
        self.given: list[tuple[int, int] | None] = []  # by cycle
        for place, words in enumerate(lengths):
            numbers = draw(values, words)
            encoded = netfold.encode(numbers.view(np.float32)).tobytes() if numbers.size else b""
            payload = encoded.ljust(8 * -(-words // 2), b"\0")
            self.wanted += [(place, beat, payload[8 * beat : 8 * beat + 8]) for beat in range(len(payload) // 8)]
            self.given += [None] * GAP + [(place, words)] + pieces(numbers)


async def cycle(dut: Any, now: tuple[int, int] | None) -> tuple[int, int, bytes] | None:
    """Give the input of one cycle; returns the beat that is written."""
    is_start = now is not None and now[0] < 1 << 5
    dut.start_i.value = int(is_start)
    dut.s_step_i.value = 0
    if is_start:
        dut.place_i.value, dut.words_i.value = now
    elif now is not None:
        dut.s_step_i.value, dut.s_data_i.value = now
    await RisingEdge(dut.clk_i)
    if not dut.write_o.value:
        return None
    return *divmod(number(dut.address_o), 128), number(dut.data_o).to_bytes(8, "little")


async def begin(dut: Any) -> None:
    """Clock and reset, without input."""
    dut.rst_ni.value = dut.start_i.value = dut.s_step_i.value = 0
    cocotb.start_soon(Clock(dut.clk_i, 10, "ns").start())
    for _ in range(3):
        await RisingEdge(dut.clk_i)
    dut.rst_ni.value = 1


@cocotb.test()
async def writes(dut: Any) -> None:
    """Input is as dense as the reader's output: a gap of four cycles between payloads, and no pairs of payloads without
    a block, as the first is. A reader starts when a sum is announced, and reads a beat per cycle; every beat must be
    written by then."""
    rng = chance()
    lengths = [3, *LENGTHS, *(rng.randrange(1, 257) for _ in range(20))]
    sums = Sums(rng, lengths)
    await begin(dut)
    found, told, written = [], {}, {}
    for at, now in enumerate(sums.given + [None] * LATENCY_MAX):
        beat = await cycle(dut, now)
        if beat:
            found.append(beat)
            written[beat[:2]] = at
            if dut.tells_o.value:
                told[beat[0]] = at
    assert found == sums.wanted
    assert sorted(told) == list(range(len(lengths)))
    assert all(at < told[place] + 1 + beat for (place, beat), at in written.items())


@cocotb.test()
async def is_reset_amid_a_sum(dut: Any) -> None:
    """The reader and the adders have no reset: they still give numbers of the sum that a reset has ended. These change
    nothing in the next sum."""
    rng = chance()
    ended, after = Sums(rng, [256]), Sums(rng, [256, 4, 256])
    await begin(dut)
    first = rng.randrange(20, len(ended.given) - RESET_CYCLES - 20)  # so that numbers come before, amid and behind it
    for at, now in enumerate(ended.given + [None] * LATENCY_MAX):
        dut.rst_ni.value = int(not first <= at < first + RESET_CYCLES)
        beat = await cycle(dut, now)
        assert not (beat and at > first), "it writes a sum that has ended"
    found = [await cycle(dut, now) for now in after.given + [None] * LATENCY_MAX]
    assert [beat for beat in found if beat] == after.wanted


def test_bfp_writer() -> None:
    """Thirty-two places."""
    simulate("bfp_writer", __file__, PlaceAddressWidth=5)
