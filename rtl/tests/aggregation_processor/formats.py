"""Folds of every format follow one another through the same adders, and a packet takes a beat a cycle."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import cocotb
import numpy as np
from test_aggregation_processor import COLUMNS, FOLDED, KEPT, PLACE, PLACES, PORTS, Bench, ready

import netfold
from benches import chance, packed
from halves import folded

HOW = {"int32": 0, "fp32": 1, "bfp": 2, "fp16": 4, "bf16": 5}
MESSAGE, PACKET_WORDS, BEAT = 4, 256, 8
BLOCK_BYTES, BLOCK = 17, 16
SIGNS = 0x8000_8000_8000_8000
AHEAD = 10  # cycles between a sum that is told and its first beat, at most
ARRIVES_CYCLES = 179  # of a full packet at 10 Gbit/s
WAITING_MAX, FOLD_CYCLES = 4, 400
RANKS = PORTS + 1  # at most, as many as ports: the last one does not fold
GIVERS: tuple[int | None, ...] = (None, None, 0, 1)  # ranks, by column: their bytes are taken for integers


def packet(place: int, words: int, wire: str) -> int:
    """`packet_t` of job 0 in its first epoch."""
    return packed([(0, 4), (0, 10), (place, 9), (MESSAGE, 32), (words - 1, 8), (HOW[wire], 3)])


def give_blocks(bench: Bench, place: int, rng: Any) -> None:
    """The place's payloads become well-formed blocks."""
    for port in range(PORTS):
        data = bytearray(rng.randbytes(4 * PACKET_WORDS))
        data[::BLOCK_BYTES] = bytes(rng.choice([0, 100, 120, 127]) for _ in data[::BLOCK_BYTES])
        for beat in range(PACKET_WORDS // 2):
            part = data[BEAT * beat : BEAT * (beat + 1)]
            bench.payload[port, place * 128 + beat] = int.from_bytes(part, "little")


def sums(payloads: list[bytes], wire: str) -> bytes:
    """The software's sum, with every NaN as the adders make it."""
    if wire == "int32":
        return netfold.fold([np.frombuffer(one, np.int32) for one in payloads], wire).tobytes()
    if wire == "fp32":
        whole = netfold.fold([np.frombuffer(one, np.float32) for one in payloads])
        return np.where(np.isnan(whole), np.uint32(0x7FC00000), whole.view(np.uint32)).tobytes()
    if wire == "bfp":
        blocks = len(payloads[0]) // BLOCK_BYTES
        whole = [np.frombuffer(one[: blocks * BLOCK_BYTES], np.uint8) for one in payloads]
        numbers = [netfold.decode(one, blocks * BLOCK) for one in whole]
        return bytes(netfold.encode(netfold.fold(numbers))).ljust(len(payloads[0]), b"\0")
    return folded([np.frombuffer(one, np.uint16) for one in payloads], wire).tobytes()


def is_right(bench: Bench, place: int, words: int, wire: str, giver: int | None = None) -> bool:
    """Whether the written results are the sums of the place's payloads, or the giver's."""
    beats = range(place * 128, place * 128 + (words + 1) // 2)
    payloads = [
        b"".join(bench.payload[port, at].to_bytes(BEAT, "little") for at in beats)[: 4 * words] for port in range(PORTS)
    ]
    found = b"".join(bench.results[at].to_bytes(BEAT, "little") for at in beats)
    return found[: 4 * words] == (sums(payloads, wire) if giver is None else payloads[giver])


async def begin(dut: Any) -> Bench:
    """A bench whose last port does not fold."""
    bench = await ready(dut)
    dut.ports_i.value = dut.has_rank_i.value = (1 << PORTS) - 1
    dut.port_of_rank_i.value = 1 << 2  # rank 1 at port 1
    dut.adds_i.value = (1 << COLUMNS * RANKS) - 1
    return bench


async def complete(bench: Bench, bits: int) -> None:
    """All contributions to a place arrive."""
    assert await bench.ask(0, bits) == KEPT
    assert await bench.ask(1, bits) == FOLDED


async def wait(bench: Bench, cycles: int) -> None:
    """So many cycles, in which sums that are told are sent, at most one in ten cycles."""
    for cycle in range(cycles):
        is_sent = cycle % 10 == 0 and bench.made < len(bench.told)
        bench.dut.sum_taken_i.value = int(is_sent)
        if is_sent:
            bench.dut.sum_taken_packet_i.value = bench.told[bench.made]
            bench.made += 1
        await bench.cycle()
    bench.dut.sum_taken_i.value = 0


@cocotb.test()
async def formats_follow_each_other(dut: Any) -> None:
    """Packets of any format and length are folded one after the other, at once or with pauses."""
    bench, rng = await begin(dut), chance()
    for at in range(PLACES * 128):  # negative zeros, and numbers that are equal but for their sign
        if rng.random() < 0.05:
            bench.payload[0, at] = bench.payload[1, at] = SIGNS
        elif rng.random() < 0.05:
            bench.payload[1, at] = bench.payload[0, at] ^ SIGNS
    given: list[tuple[int, int, str]] = []
    for place in rng.sample(range(PLACES), 60):
        wire = rng.choice(list(HOW))
        words = rng.choice([1, 2, 5, 8, 251, 256, rng.randrange(1, 257)])
        if wire == "bfp":
            give_blocks(bench, place, rng)
        given.append((place, words, wire))
        await complete(bench, packet(place, words, wire))
        await wait(bench, rng.choice([0, 0, 20, 200]))
        while len(given) - bench.made > WAITING_MAX:
            await wait(bench, 10)
    await wait(bench, WAITING_MAX * FOLD_CYCLES)
    assert bench.told == [packet(*one) for one in given]
    assert [one for one in given if not is_right(bench, *one)] == []


@cocotb.test()
async def givers_bytes_are_copied(dut: Any) -> None:
    """A message's column says whose bytes are taken, beside messages of which all are added."""
    bench, rng = await begin(dut), chance()
    adds = [(1 << RANKS) - 1 if giver is None else 1 << giver for giver in GIVERS]
    dut.adds_i.value = sum(some << RANKS * column for column, some in enumerate(adds))
    given: list[tuple[int, int, str, int | None]] = []
    for place in rng.sample(range(PLACES), 60):
        giver, words = GIVERS[place >> 7], rng.choice([1, 2, 251, 256, rng.randrange(1, 257)])
        wire = rng.choice(list(HOW)) if giver is None else "int32"
        if wire == "bfp":
            give_blocks(bench, place, rng)
        given.append((place, words, wire, giver))
        await complete(bench, packet(place, words, wire))
        await wait(bench, rng.choice([0, 0, 20]))
        while len(given) - bench.made > WAITING_MAX:
            await wait(bench, 10)
    await wait(bench, WAITING_MAX * FOLD_CYCLES)
    assert [one for one in given if not is_right(bench, *one)] == []


@cocotb.test()
@cocotb.parametrize(("wire", ["fp32", "fp16", "bf16", "bfp"]))
async def a_packet_takes_less_than_it_needs_to_arrive(dut: Any, wire: str) -> None:
    """Full packets that have come are folded without a bubble; blocks need some cycles more."""
    bench, packets = await begin(dut), 6
    for place in range(PLACE, PLACE + packets):
        give_blocks(bench, place, chance())
    for place in range(PLACE, PLACE + packets):
        await complete(bench, packet(place, PACKET_WORDS, wire))
    for _ in range(packets * 200):
        await bench.cycle()
    firsts, lasts = ([bench.written_at[128 * (PLACE + i) + at] for i in range(packets)] for at in (0, 127))
    assert max(first - told for first, told in zip(firsts, bench.told_at, strict=True)) <= AHEAD
    each = [after - before for before, after in pairwise(lasts)]
    dut._log.info("cycles a packet of %s: %s", wire, each)
    assert all(one <= ARRIVES_CYCLES for one in each)
    assert wire == "bfp" or each == [128] * (packets - 1)
