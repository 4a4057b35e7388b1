"""Compares the ICRC in beats with zlib: made and checked, of both versions, with and without a tag, for all ends, idle
cycles, and damage."""

from __future__ import annotations

import os
import struct
import zlib
from typing import Any

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from benches import chance, number, simulate, start

# Bits that count as ones, by byte of the packet: of v1, and of v2.
ONES = (
    {0: 0x0F, 1: 0xFF, 2: 0xFF, 3: 0xFF, 7: 0xFF, 44: 0xFF},
    {1: 0xFF, 8: 0xFF, 10: 0xFF, 11: 0xFF, 26: 0xFF, 27: 0xFF, 32: 0xFF},
)
VECTOR = bytes.fromhex(  # a RoCE v1 acknowledgement, as a NIC sent it
    "7cfe90753cd87cfe90753cd889156020000000141b4000000000000000000000ffff0f00000200000000000000000000ffff0f0000021140"
    "ffff0000010900a788c00000000525f0c038"
)


def icrc(packet: bytes, is_v2: bool = False) -> bytes:
    """The ICRC of a packet without its last four bytes."""
    masked = bytes(byte | ONES[is_v2].get(at, 0) for at, byte in enumerate(packet))
    return struct.pack("<I", zlib.crc32(b"\xff" * 8 + masked))


async def feed(dut: Any, rng: Any, frame: bytes, is_v2: bool, tagged: bool, ends: int) -> None:
    """A frame whose first `ends` bytes are covered, with random bytes after it and idle cycles in it."""
    whole = frame + rng.randbytes(8 + rng.randrange(40))
    for at in range(0, len(whole) // 8 * 8, 8):
        while rng.random() < 0.2:
            dut.valid_i.value = 0
            dut.data_i.value = rng.getrandbits(64)
            await RisingEdge(dut.clk_i)
        dut.valid_i.value = 1
        dut.first_i.value = int(at == 0)
        dut.is_v2_i.value = int(is_v2) if at else rng.randrange(2)
        dut.has_tag_i.value = int(tagged) if at else rng.randrange(2)
        dut.data_i.value = int.from_bytes(whole[at : at + 8], "little")
        dut.ends_i.value = int(at < ends <= at + 8)
        dut.ends_at_six_i.value = int(ends % 8 == 6)
        await RisingEdge(dut.clk_i)
    dut.valid_i.value = 0
    await RisingEdge(dut.clk_i)


@cocotb.test()
async def makes_and_checks(dut: Any) -> None:
    """The results for a frame builder and a frame analyzer."""
    rng = chance()
    await start(dut, valid_i=0, first_i=0, is_v2_i=0, has_tag_i=0, data_i=0, ends_i=0, ends_at_six_i=0)
    assert icrc(VECTOR[14:-4]) == VECTOR[-4:]
    for index in range(400):
        is_v2, tagged = rng.random() < 0.5, rng.random() < 0.5
        frame = rng.randbytes(18 if tagged else 14) + rng.randbytes(52 + 4 * rng.randrange(260))
        if index == 0:
            frame, is_v2, tagged = VECTOR[:-4], False, False
        right = icrc(frame[18 if tagged else 14 :], is_v2)
        await feed(dut, rng, frame, is_v2, tagged, len(frame))
        if os.environ["MAKES"] == "1":
            assert number(dut.icrc_o).to_bytes(4, "little") == right
        await feed(dut, rng, frame + right, is_v2, tagged, len(frame) + 4)
        assert dut.is_right_o.value == 1
        at = rng.randrange(18 if tagged else 14, len(frame) + 4)
        bit = 1 << rng.randrange(8)
        damaged = bytearray(frame + right)
        damaged[at] ^= bit
        await feed(dut, rng, bytes(damaged), is_v2, tagged, len(frame) + 4)
        is_masked = ONES[is_v2].get(at - (18 if tagged else 14), 0) & bit != 0
        assert dut.is_right_o.value == int(is_masked)


@pytest.mark.parametrize("makes", [0, 1])
def test_icrc(makes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four hundred frames, each made, if the module makes codes, checked and damaged."""
    monkeypatch.setenv("MAKES", str(makes))
    simulate("icrc", __file__, Makes=makes)
