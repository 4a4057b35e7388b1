"""The reader splits payloads of block floating point: six elements per cycle, with their exponents."""

from __future__ import annotations

import random
from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge

from benches import chance, number, simulate

RANKS, READ_LATENCY, PAIRS = 2, 3, 3
GAP = 4  # cycles from one payload's last pairs to the next one's first
BLOCK_BYTES = 17
STEP_CYCLES = READ_LATENCY + 2  # from control to output; without a reset


class Payloads:
    """The buffers that it reads, and the expected pairs."""

    def __init__(self, dut: Any, rng: random.Random, lengths: list[int]) -> None:
        self.dut = dut
        self.bytes = [[rng.randbytes(4 * words + 1024) for _ in range(RANKS)] for words in lengths]
        self.wanted = [
            (payload[rank][BLOCK_BYTES * block], payload[rank][BLOCK_BYTES * block + 1 + element])
            for words, payload in zip(lengths, self.bytes, strict=True)
            for block in range(4 * words // BLOCK_BYTES)
            for element in range(16)
            for rank in range(RANKS)
        ]
        self.ends = [4 * words // BLOCK_BYTES * 8 for words in lengths]  # pairs of each
        self.found: list[tuple[int, int]] = []
        self.cycles: list[tuple[int, bool, int]] = []  # of pairs: when, whether the last, how many

    def pairs(self) -> tuple[int, bool]:
        """The number of pairs in this cycle, and whether they are the last."""
        step = number(self.dut.m_step_o)
        old, begins, is_last = step >> 3 & 3, step >> 2 & 1, step & 1
        return (PAIRS if begins else old) if step >> 5 else 0, bool(is_last)

    def take(self, cycle: int) -> None:
        """The pairs that come out in this cycle."""
        pairs, is_last = self.pairs()
        exponents, mantissas = number(self.dut.m_exponent_o), number(self.dut.m_mantissa_o)
        for element in range(2 * pairs):
            for rank in range(RANKS):
                exponent = exponents >> 8 * (PAIRS * rank + element // 2) & 0xFF
                self.found.append((exponent, mantissas >> 8 * (2 * PAIRS * rank + element) & 0xFF))
        if pairs:
            self.cycles.append((cycle, is_last, pairs))

    def counts(self) -> list[int]:
        """Pairs by payload, in order."""
        counts = [0]
        for _, is_last, pairs in self.cycles:
            counts[-1] += pairs
            if is_last:
                counts.append(0)
        return counts[:-1]


@cocotb.test()
async def reads(dut: Any) -> None:
    """Consecutive payloads of many lengths; a payload shorter than a block gives no pair."""
    rng = chance()
    lengths = [256, 256, 4, 5, 256, 251, 3, 9, 13, *(rng.randrange(1, 257) for _ in range(30))]
    payloads = Payloads(dut, rng, lengths)
    dut.rst_ni.value = dut.start_i.value = 0
    cocotb.start_soon(Clock(dut.clk_i, 10, "ns").start())
    for _ in range(STEP_CYCLES):  # the random steps of power-on leave; bfp_writer ignores them
        await FallingEdge(dut.clk_i)
    dut.rst_ni.value = 1
    asked: list[tuple[int, int] | None] = [None] * READ_LATENCY
    begun = 0
    for cycle in range(200 * len(lengths)):
        await FallingEdge(dut.clk_i)
        payloads.take(cycle)
        asked.append((begun - 1, number(dut.beat_o)) if dut.read_o.value else None)
        due = asked.pop(0)
        beats = [rng.getrandbits(64)] * RANKS
        if due is not None:
            which, beat = due
            beats = [int.from_bytes(one[8 * beat : 8 * beat + 8], "little") for one in payloads.bytes[which]]
        dut.beats_i.value = sum(beat << 64 * rank for rank, beat in enumerate(beats))
        starts = begun < len(lengths) and bool(dut.ready_o.value)
        dut.start_i.value = int(starts)
        if starts:
            dut.words_i.value = lengths[begun]
            begun += 1
    assert payloads.found == payloads.wanted
    for (cycle, _, _), (before, was_last, _) in zip(payloads.cycles[1:], payloads.cycles, strict=False):
        assert cycle > before + GAP if was_last else cycle == before + 1
    assert payloads.counts() == [pairs for pairs in payloads.ends if pairs]


def test_bfp_reader() -> None:
    """Two ranks."""
    simulate("bfp_reader", __file__, Ranks=RANKS, ReadLatency=READ_LATENCY)
