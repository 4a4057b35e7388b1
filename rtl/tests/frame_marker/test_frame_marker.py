"""The marks of thousands of frames, of both versions, with tags, and too short for their headers."""

from __future__ import annotations

from typing import Any

import cocotb
from cocotb.triggers import RisingEdge

from benches import chance, number, simulate, start
from ethernet import beats_of
from marks import IP, LATER, NONE, OTHER, OURS, OVERTAGGED, RUNT, TAG, headers_of, marks_of, types_of


@cocotb.test()
@cocotb.parametrize(("idle", [0.0, 0.3]))
async def marks(dut: Any, idle: float) -> None:
    """Frames back to back, or with idle cycles in them."""
    rng = chance()
    await start(dut, take_i=0, beat_i=0, types_i=0)
    seen: set[int] = set()
    for _ in range(2000):
        headers = rng.randbytes(12) + headers_of(rng)
        size = rng.choice([100, 200, rng.randrange(1, 120), rng.randrange(14, 24)])
        frame = (headers + rng.randbytes(200))[:size]
        told: list[int] = []
        for data, keep, last, _ in beats_of(frame, False):
            while rng.random() < idle:
                dut.take_i.value, dut.beat_i.value, dut.types_i.value = 0, rng.getrandbits(69), rng.getrandbits(6)
                await RisingEdge(dut.clk_i)
            extra = keep.bit_count() - 1 if last else 7
            dut.take_i.value, dut.beat_i.value = 1, last << 67 | extra << 64 | data
            dut.types_i.value = types_of(data)
            await RisingEdge(dut.clk_i)
            told.append(number(dut.mark_o))
        wanted = marks_of(frame)
        assert told[: len(wanted)] == wanted, frame.hex()
        seen |= set(wanted)
    assert seen == {NONE, TAG, LATER, IP, OTHER, RUNT, OVERTAGGED, OURS}


def test_frame_marker() -> None:
    """Without parameters."""
    simulate("frame_marker", __file__)
