"""The receiving half of the gigabit MAC: frames of any bytes behind any preamble, and damaged ones marked as such."""

from __future__ import annotations

import zlib
from typing import Any

import cocotb
from cocotb.triggers import FallingEdge

from benches import chance, number, simulate, start

PREAMBLE, DELIMITER = 0x55, 0xD5
FCS_BYTES, FRAME_MIN = 4, 60
ERROR = 0x100


async def received_of(dut: Any, values: list[int | None]) -> list[tuple[bytes, bool]]:
    """Give a byte a cycle (None: no valid one) and return the frames that came, with whether they are damaged."""
    found: list[tuple[bytes, bool]] = []
    partial = b""
    await FallingEdge(dut.clk_i)
    for value in [*values, *[None] * 8]:
        dut.valid_i.value = int(value is not None)
        dut.error_i.value = int(value is not None and value >= ERROR)
        dut.data_i.value = (value or 0) & 0xFF
        await FallingEdge(dut.clk_i)
        if not dut.m_tvalid_o.value:
            continue
        keep, last = number(dut.m_tkeep_o), bool(dut.m_tlast_o.value)
        count = keep.bit_count()
        assert keep == (1 << count) - 1 and (last or count == 8)
        partial += number(dut.m_tdata_o).to_bytes(8, "little")[:count]
        if last:
            found.append((partial, bool(dut.m_tuser_o.value)))
            partial = b""
        else:
            assert not dut.m_tuser_o.value
    assert partial == b""
    return found


def around(frame: bytes, preamble: int = 7) -> list[int]:
    """The bytes of a frame with its FCS, behind a preamble of this length."""
    return [*[PREAMBLE] * preamble, DELIMITER, *frame, *zlib.crc32(frame).to_bytes(FCS_BYTES, "little")]


@cocotb.test()
async def receives_frames_of_all_lengths(dut: Any) -> None:
    """From a single byte on, behind preambles of any length, with the shortest gap there is. Below 64 bytes with the
    FCS a frame is damaged. One without a byte before its FCS is left out."""
    await start(dut, valid_i=0)
    rng = chance()
    sizes = [*range(100), *[rng.randrange(60, 300) for _ in range(20)]]
    frames = [rng.randbytes(size) for size in sizes]
    values: list[int | None] = []
    for frame in frames:
        values += [*around(frame, rng.randrange(0, 9)), None]
    found = await received_of(dut, values)
    assert found == [(frame, len(frame) < FRAME_MIN) for frame in frames if frame]


@cocotb.test()
async def tells_what_is_damaged(dut: Any) -> None:
    """One wrong bit anywhere, an error of the PHY anywhere, and bytes without a frame."""
    await start(dut, valid_i=0)
    rng = chance()
    values: list[int | None] = [None]
    expected = []
    for _ in range(120):
        frame = rng.randbytes(rng.randrange(60, 90))
        given = around(frame)
        at = rng.randrange(8, len(given))
        kind = rng.choice(["good", "bit", "error", "noise", "false start", "wrong delimiter"])
        if kind == "bit":
            given[at] ^= 1 << rng.randrange(8)
        elif kind == "error":
            given[at] |= ERROR
        elif kind == "noise":
            given = [PREAMBLE] * rng.randrange(1, 9)
        elif kind == "false start":
            given = [PREAMBLE, rng.choice([0, 0x54, 0x5D]), *given]
        elif kind == "wrong delimiter":
            given[7] |= ERROR
        if kind in ("good", "bit", "error"):
            seen = bytes(value & 0xFF for value in given[8:-FCS_BYTES])
            expected.append((seen, kind != "good"))
        values += [*given, None]
    assert await received_of(dut, values) == expected


@cocotb.test()
async def ignores_what_is_under_way_at_reset(dut: Any) -> None:
    """A frame whose beginning was not seen is left out, whatever its bytes are."""
    dut.valid_i.value, dut.error_i.value, dut.data_i.value = 1, 0, DELIMITER
    await start(dut)
    frame = bytes(range(60))
    assert await received_of(dut, [*around(bytes(70)), None, *around(frame)]) == [(frame, False)]


def test_gmii_receive() -> None:
    """One module."""
    simulate("gmii_receive", __file__)
