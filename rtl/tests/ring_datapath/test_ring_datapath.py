"""The NIC's datapath by itself: own numbers are sent with their signs, and summed with those that arrive, whichever
come first; chunks of a wrong length are reported."""

from __future__ import annotations

import struct
from typing import Any

import cocotb
import numpy as np
from cocotb.triggers import RisingEdge

import netfold
from benches import CYCLES_MAX, chance, number, packed, simulate, start

LANES = 8
BEAT = 4 * LANES
SEND, FOLD, LAST = 0, 1, 4


def operation(step: int, elements: int, beats: int) -> int:
    """`operation_t`."""
    return packed([(step, 3), (0x1000, 64), (0x2000, 64), (elements, 16), (beats, 16)])


async def begin(dut: Any, bfp: int) -> None:
    """Neighbours and a host that accept everything at once."""
    await start(
        dut, drain_i=0, bfp_i=bfp, operation_valid_i=0, read_command_ready_i=1, read_tvalid_i=0,
        write_command_ready_i=1, write_tready_i=1, written_i=0, left_tvalid_i=0, left_tlast_i=0, right_tready_i=1,
    )  # fmt: skip
    await RisingEdge(dut.clk_i)


async def tell(dut: Any, value: int) -> None:
    """One operation."""
    dut.operation_i.value, dut.operation_valid_i.value = value, 1
    await RisingEdge(dut.clk_i)
    while not dut.operation_ready_o.value:
        await RisingEdge(dut.clk_i)
    dut.operation_valid_i.value = 0


@cocotb.test()
async def keeps_the_signs_of_zeros(dut: Any) -> None:
    """Numbers that are only sent leave with the bits that they had in host memory."""
    rng = chance()
    await begin(dut, bfp=0)
    beats = 4
    words = [rng.choice([0x80000000, 0, 0x3F800000, 0xBF800000, rng.getrandbits(30)]) for _ in range(LANES * beats)]
    words[:2] = [0x80000000, 0]
    data = struct.pack(f"<{len(words)}I", *words)
    await tell(dut, operation(SEND, len(words), beats))
    at, sent = 0, b""
    for _ in range(300):
        dut.read_tvalid_i.value = int(at < len(data))
        dut.read_tdata_i.value = int.from_bytes(data[at : at + BEAT], "little")
        await RisingEdge(dut.clk_i)
        if at < len(data) and dut.read_tready_o.value:
            at += BEAT
        if dut.right_tvalid_o.value:
            sent += number(dut.right_tdata_o).to_bytes(BEAT, "little")
            if dut.right_tlast_o.value:
                break
    assert sent == data


@cocotb.test()
@cocotb.parametrize((("late", ["own", "arriving", "both"])), (("stall", [0.0, 0.5])))
async def sums_what_comes_in_any_order(dut: Any, late: str, stall: float) -> None:
    """Chunks of own numbers, and sums. Either side comes late, and the right neighbour does not always accept."""
    rng = chance()
    await begin(dut, bfp=0)
    steps = [rng.choice([SEND, FOLD, FOLD]) for _ in range(12)]
    draw = np.random.default_rng(rng.getrandbits(32))
    beats = [rng.randrange(1, 7) for _ in steps]
    own = [draw.integers(-1000, 1000, LANES * count).astype(np.float32) for count in beats]
    arriving = [draw.integers(-1000, 1000, LANES * count).astype(np.float32) for count in beats]
    wanted = b"".join(
        (mine if step == SEND else mine + other).tobytes()
        for step, mine, other in zip(steps, own, arriving, strict=True)
    )

    async def plan() -> None:
        for step, count in zip(steps, beats, strict=True):
            await tell(dut, operation(step, LANES * count, count))

    left = [
        (other.tobytes()[at * BEAT :][:BEAT], at == count - 1)
        for step, other, count in zip(steps, arriving, beats, strict=True)
        if step == FOLD
        for at in range(count)
    ]
    memory = b"".join(mine.tobytes() for mine in own)
    asked = read = 0
    sent = b""
    cocotb.start_soon(plan())
    offers_left = False
    for _ in range(CYCLES_MAX):
        offers_left = bool(left) and (offers_left or late == "own" or rng.random() < 0.3)
        offers_own = read < asked and (late == "arriving" or rng.random() < 0.3)
        dut.left_tvalid_i.value, dut.read_tvalid_i.value = int(offers_left), int(offers_own)
        if offers_left:
            dut.left_tdata_i.value, dut.left_tlast_i.value = int.from_bytes(left[0][0], "little"), int(left[0][1])
        if offers_own:
            dut.read_tdata_i.value = int.from_bytes(memory[read : read + BEAT], "little")
        dut.right_tready_i.value = int(rng.random() >= stall)
        await RisingEdge(dut.clk_i)
        if dut.read_command_valid_o.value:
            asked += number(dut.read_command_bytes_o)
        if offers_left and dut.left_tready_o.value:
            left.pop(0)
            offers_left = False
        if offers_own and dut.read_tready_o.value:
            read += BEAT
        if dut.right_tvalid_o.value and dut.right_tready_i.value:
            sent += number(dut.right_tdata_o).to_bytes(BEAT, "little")
        if len(sent) == len(wanted):
            break
    assert sent == wanted


@cocotb.test()
@cocotb.parametrize((("bfp", [0, 1])), (("change", [-1, 0, 1])))
async def reports_chunks_of_a_wrong_length(dut: Any, bfp: int, change: int) -> None:
    """A chunk that is stored, a beat shorter or longer than the operation says, or right."""
    await begin(dut, bfp)
    beats = 32
    count = LANES * beats
    numbers = np.arange(count, dtype=np.float32)
    wire = bytes(netfold.encode(numbers, 16, 7)) if bfp else numbers.tobytes()
    size = -(-len(wire) // BEAT) + change
    await tell(dut, operation(LAST, count, beats))
    reports = 0
    for index in range(size + 200):
        part = wire[index * BEAT :][:BEAT].ljust(BEAT, b"\0")
        dut.left_tvalid_i.value, dut.left_tlast_i.value = int(index < size), int(index == size - 1)
        dut.left_tdata_i.value = int.from_bytes(part, "little")
        for _ in range(200):
            await RisingEdge(dut.clk_i)
            reports += int(dut.mismatch_o.value)
            if index >= size or dut.left_tready_o.value:
                break
    assert (reports > 0) == (change != 0)


def test_ring_datapath() -> None:
    """Eight lanes, blocks of sixteen."""
    simulate("ring_datapath", __file__, Lanes=LANES, FifoDepth=64)
