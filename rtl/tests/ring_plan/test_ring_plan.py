"""Compares the control FSM with netfold.schedule: the same segments in the same order, for any place, ring and
count."""

from __future__ import annotations

from typing import Any

import cocotb

import netfold
from benches import chance, give, number, simulate, start, take

UNIT = 16  # elements; segments are multiples of it
LANES = 8
CHUNK_BEATS = 64
CHUNK = CHUNK_BEATS * LANES
REQUESTS = 25
STEPS = ["send", "fold", "finish", "gather", "last", "end"]
SOURCE, DESTINATION = 1 << 40, 1 << 41


def segments(world: int, count: int) -> list[tuple[int, int]]:
    """(first unit, units) of each segment: the first ones are longer if units cannot be divided evenly."""
    each, longer = divmod(-(-count // UNIT), world)
    return [(i * each + min(i, longer), each + (i < longer)) for i in range(world)]


def pieces(longest: int) -> list[tuple[int, int]]:
    """(offset, units) of the pieces of the longest segment: full chunks, and the rest in two halves."""
    most, found, offset = CHUNK // UNIT, [], 0
    while offset < longest:
        left = longest - offset
        size = left if left <= most else -(-left // 2) if left < 2 * most else most
        found.append((offset, size))
        offset += size
    return found


def expected(world: int, rank: int, count: int) -> list[tuple[str, int, int, int]]:
    """(step, first element, elements, beats) of all operations."""
    kinds = ["send", *["fold"] * (world - 2), "finish", *["gather"] * (world - 2), "last"]
    cut = segments(world, count)
    found = []
    for offset, size in pieces(max(units for _, units in cut)):
        for step, kind in enumerate(kinds):
            first, units = cut[(rank - 1 - step) % world]
            part = min(size, units - offset)
            if part > 0:
                at = (first + offset) * UNIT
                found.append((kind, at, min(part * UNIT, count - at), part * UNIT // LANES))
    return [*found, ("end", 0, 0, 0)]


def worked_on(world: int, rank: int, count: int) -> list[tuple[int, int]]:
    """(offset, count) of the segments that the software's schedule works on, step by step."""
    steps = netfold.schedule("ring", world, rank, count, align=UNIT)
    transfers = [transfer for step in steps for transfer in step]
    sent = [(offset, size) for action, _, offset, size in transfers if action == "send"]
    came = [(offset, size) for action, _, offset, size in transfers if action != "send"]
    first = segments(world, count)[(rank - 1) % world]
    return (sent[:1] if first[1] else []) + came


@cocotb.test()
@cocotb.parametrize(stall=[0.0, 0.5])
async def plans(dut: Any, stall: float) -> None:
    """Every element once per step, in chunks that fit."""
    rng = chance()
    await start(dut, request_valid_i=0, operation_ready_i=0, ring_i=0)
    for _ in range(REQUESTS):
        world = rng.randrange(2, 33)
        rank = rng.randrange(world)
        count = rng.choice([0, 1, rng.randrange(world), rng.randrange(1000), rng.randrange(40 * CHUNK)])
        dut.ring_i.value = rank << 7 | world << 1  # position, size, bfp
        request = {"request_i": SOURCE << 96 | DESTINATION << 32 | count}
        cocotb.start_soon(give(dut, rng, 0.0, [request], "request_valid_i", "request_ready_o"))
        await check(dut, rng, stall, world, rank, count)


async def check(dut: Any, rng: Any, stall: float, world: int, rank: int, count: int) -> None:
    """Accept the operations of one request; with one piece per segment they equal the software's schedule."""
    wanted = expected(world, rank, count)
    words = await take(
        dut, rng, stall, len(wanted), "operation_valid_o", "operation_ready_i", lambda: number(dut.operation_o)
    )
    found = []
    for word in words:
        step, elements, beats = STEPS[word >> 160], word >> 16 & 0xFFFF, word & 0xFFFF
        offset = ((word >> 96 & (1 << 64) - 1) - SOURCE) // 4
        if step == "end":
            offset = 0
        else:
            assert (word >> 32 & (1 << 64) - 1) - DESTINATION == 4 * offset
        found.append((step, offset, elements, beats))
    assert found == wanted, (world, rank, count)
    if count <= CHUNK:
        assert [(at, elements) for _, at, elements, _ in found[:-1]] == worked_on(world, rank, count)


def test_ring_plan() -> None:
    """With and without pauses of the receiver."""
    simulate("ring_plan", __file__, Lanes=LANES, ChunkBeats=CHUNK_BEATS)
