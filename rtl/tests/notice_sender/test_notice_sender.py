"""Notices to workers: whole Ethernet frames, one after the other, of those that were asked for while none waited."""

from __future__ import annotations

import struct
from typing import Any

import cocotb
from cocotb.triggers import RisingEdge

from benches import PAUSES, chance, number, packed, simulate, start

SWITCH = bytes.fromhex("024e46000001")
KIND_BITS = 2
BEATS = 8


@cocotb.test()
@cocotb.parametrize((("idle", "stall"), PAUSES))
async def sends_notices(dut: Any, idle: float, stall: float) -> None:
    """Any notice to any address, and a reset in the middle."""
    rng = chance()
    await start(dut)
    expected: list[bytes] = []
    frames: list[bytes] = []
    partial, sends = b"", 0  # sends: beats that are still to come
    for cycle in range(2500):
        if cycle % 500 == 490:
            dut.rst_ni.value = dut.valid_i.value = 0
            await RisingEdge(dut.clk_i)
            dut.rst_ni.value = 1
            expected, partial, sends = expected[: len(frames)], b"", 0
        kind, job, epoch, rank = rng.getrandbits(KIND_BITS), *(rng.getrandbits(16) for _ in range(3))
        packet, message, to = rng.getrandbits(7), rng.getrandbits(32), rng.getrandbits(48)
        dut.notice_i.value = packed([(kind, KIND_BITS), (job, 16), (epoch, 16), (rank, 16), (packet, 7), (message, 32)])
        dut.to_i.value = to
        asks = rng.random() >= idle
        dut.valid_i.value, dut.m_ready_i.value = int(asks), int(rng.random() >= stall)
        await RisingEdge(dut.clk_i)
        assert bool(dut.m_valid_o.value) == (sends > 0)
        if sends == 0:
            sends = BEATS * asks
            if asks:
                head = (
                    to.to_bytes(6, "big")
                    + SWITCH
                    + b"\x88\xb5"
                    + struct.pack("!HBBHHH", 0x4E46, 1 << 4 | kind, 0, job, epoch, rank)
                )
                expected.append((head + struct.pack("!HI", packet, message)).ljust(60, b"\0"))
        elif dut.m_ready_i.value:
            beat = number(dut.m_beat_o)
            sends -= 1
            last, extra = beat >> 67 & 1, beat >> 64 & 7
            assert beat >> 68 == 0 and last == (sends == 0) and (last or extra == BEATS - 1)
            partial += (beat & (1 << 64) - 1).to_bytes(8, "little")[: extra + 1]
            if last:
                frames.append(partial)
                partial = b""
    assert frames == expected[: len(frames)] and len(expected) - len(frames) <= 1 and len(frames) > 50


def test_notice_sender() -> None:
    """The device has no parameters."""
    simulate("notice_sender", __file__)
