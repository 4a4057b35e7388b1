"""The sending half of the gigabit MAC: preamble, padding, FCS and gap of every frame, also damaged and late ones."""

from __future__ import annotations

import zlib
from typing import Any

import cocotb
from cocotb.triggers import FallingEdge, Timer

from benches import chance, number, simulate, start
from ethernet import beats_of

PREAMBLE = b"\x55" * 7 + b"\xd5"
GAP_BYTES, FRAME_MIN, LONGEST = 12, 60, 200


async def sent_of(dut: Any, offered: list[list[Any]], cycles: int) -> list[tuple[bytes, int]]:
    """Offer beats (None: none for a cycle) and return what was sent in so many cycles: the bytes with all around them,
    and the cycles of silence before them. A frame's last beat is followed by that of the next."""
    waiting = [beat for beats in offered for beat in beats]
    found: list[tuple[bytes, int]] = []
    now, silence = bytearray(), 0
    await FallingEdge(dut.clk_i)
    for _ in range(cycles):
        beat = waiting[0] if waiting else None
        dut.s_tvalid_i.value = int(beat is not None)
        if beat is not None:
            for name, value in zip(("tdata", "tkeep", "tlast", "tuser"), beat, strict=True):
                getattr(dut, f"s_{name}_i").value = value
        await Timer(1, "ns")
        if waiting and (beat is None or dut.s_tready_o.value):
            waiting.pop(0)
        await FallingEdge(dut.clk_i)
        if dut.valid_o.value:
            now.append(number(dut.data_o))
            continue
        if now:
            found.append((bytes(now), silence))
            now, silence = bytearray(), 0
        silence += 1
    assert not waiting
    return found


def whole(frame: bytes, is_damaged: bool = False) -> bytes:
    """The bytes that a PHY gets for a frame."""
    padded = frame.ljust(FRAME_MIN, b"\0")
    fcs = zlib.crc32(padded) ^ (0xFFFFFFFF if is_damaged else 0)
    return PREAMBLE + padded + fcs.to_bytes(4, "little")


@cocotb.test()
async def sends_frames_back_to_back(dut: Any) -> None:
    """Frames of all lengths, some of them to be sent damaged, with the shortest gap between them."""
    await start(dut, s_tvalid_i=0)
    rng = chance()
    frames = [rng.randbytes(size) for size in [*range(1, 80), *[rng.randrange(1, LONGEST) for _ in range(20)]]]
    damaged = [rng.random() < 0.3 for _ in frames]
    beats: list[list[Any]] = [list(beats_of(*each)) for each in zip(frames, damaged, strict=True)]
    found = await sent_of(dut, beats, 100 * (LONGEST + 30))
    assert [each for each, _ in found] == [whole(*each) for each in zip(frames, damaged, strict=True)]
    assert {silence for _, silence in found[1:]} == {GAP_BYTES}


@cocotb.test()
async def breaks_off_a_frame_that_is_late(dut: Any) -> None:
    """A frame whose next beat is missing ends there with a wrong FCS, and what is left of it is dropped. Frames before
    and after it are whole."""
    await start(dut, s_tvalid_i=0)
    rng = chance()
    offered: list[list[Any]] = []
    expected = []
    for _ in range(30):
        frame = rng.randbytes(rng.randrange(9, LONGEST))
        beats: list[Any] = list(beats_of(frame))
        if rng.random() < 0.5:
            there = rng.randrange(1, len(beats))
            # The preamble and the beats that are there last so long; then one cycle finds nothing.
            beats[there:there] = [None] * rng.randrange(8 * there + 12, 8 * there + 60)
            expected.append(whole(frame[: 8 * there], is_damaged=True))
        else:
            expected.append(whole(frame))
        offered.append(beats)
    found = await sent_of(dut, offered, 30 * (3 * LONGEST + 200))
    assert [each for each, _ in found] == expected
    assert min(silence for _, silence in found[1:]) >= GAP_BYTES


@cocotb.test()
async def drops_nothing_after_a_reset(dut: Any) -> None:
    """A reset comes while the rest of a late frame is dropped. The next frame is whole."""
    await start(dut, s_tvalid_i=0)
    await sent_of(dut, [list(beats_of(bytes(40)))[:1]], 100)
    dut.rst_ni.value = 0
    await FallingEdge(dut.clk_i)
    dut.rst_ni.value = 1
    frame = bytes(range(70))
    assert [each for each, _ in await sent_of(dut, [list(beats_of(frame))], 200)] == [whole(frame)]


def test_gmii_send() -> None:
    """One module."""
    simulate("gmii_send", __file__)
