"""Tests both halves of the link with frames built byte by byte: checksums, numbers, replay, pause, and every reason to
drop."""

from __future__ import annotations

import os
import struct
import zlib
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from benches import chance, give, number, simulate, start, take

BEAT = 32  # bytes
PAYLOAD_BEATS = 44
OWN, RIGHT, LEFT = (bytes([2, 0, 0, 0, 0, last]) for last in (1, 2, 3))
RING, EPOCH = 0x1234, 0x56
DEPTH, ACK_EVERY, ACK_DELAY, ACK_PERIOD = 1024, 8, 300, 1200
DATA, ACK = 1, 2
IDENTITY = int.from_bytes(OWN + bytes([EPOCH]) + struct.pack("<H", RING), "little")
NEIGHBOURS = int.from_bytes(LEFT + RIGHT, "little")
RECEIVER = {"Depth": DEPTH, "AckEvery": ACK_EVERY, "AckDelay": ACK_DELAY, "AckPeriod": ACK_PERIOD}
# Events of link_receive, from the lowest bit.
EVENTS = ("received", "foreign", "length", "crc", "duplicate", "gap", "full", "acknowledged")


@dataclass
class Frame:
    """A frame of the link; see docs/reference/nic-link.md."""

    kind: int
    number: int
    payload: bytes = b""
    flags: int = 0
    limit: int = 0
    to: bytes = OWN
    ring: int = RING
    epoch: int = EPOCH

    def bytes(self) -> bytes:
        """The frame with its checksum over the payload and then bytes 12 to 27 of the header."""
        beats = len(self.payload) // BEAT
        covered = struct.pack(
            "<2sBBHBBII", b"\x88\xb5", self.kind, self.flags, self.ring, self.epoch, beats, self.number, self.limit
        )
        crc = zlib.crc32(covered, zlib.crc32(self.payload))
        return self.to + LEFT + covered + struct.pack("<I", crc) + self.payload


def parsed(data: bytes) -> Frame:
    """Parse a sent frame. Fails if it differs from `bytes`, except in the sender's address."""
    ether, kind, flags, ring, epoch, beats, sequence, limit = struct.unpack("<2sBBHBBII", data[12:28])
    frame = Frame(kind, sequence, data[BEAT:], flags, limit, data[:6], ring, epoch)
    assert ether == b"\x88\xb5" and len(frame.payload) == beats * BEAT
    assert data[6:12] == OWN and data[28:32] == frame.bytes()[28:32]
    return frame


async def receive(dut: Any, data: bytes, is_damaged: bool = False) -> None:
    """Frames arrive without a pause, and never wait. The MAC marks the last beat of a damaged one."""
    for at in range(0, len(data), BEAT):
        dut.s_tvalid_i.value = 1
        dut.s_tdata_i.value = int.from_bytes(data[at : at + BEAT].ljust(BEAT, b"\0"), "little")
        dut.s_tlast_i.value = int(at + BEAT >= len(data))
        dut.s_tuser_i.value = int(is_damaged and at + BEAT >= len(data))
        await RisingEdge(dut.clk_i)
    dut.s_tvalid_i.value = 0


@cocotb.test(skip=os.environ.get("DEVICE") != "receive")
async def receives(dut: Any) -> None:
    """Frames in order become beats; each other frame is dropped for its expected reason."""
    rng = chance()
    await start(dut, identity_i=IDENTITY, s_tvalid_i=0, s_tuser_i=0, m_tready_i=1, say_ready_i=1)
    counted = dict.fromkeys(EVENTS, 0)
    beats: list[bytes] = []
    said: list[int] = []

    async def watch() -> None:
        while True:
            await RisingEdge(dut.clk_i)
            for bit, name in enumerate(EVENTS):
                counted[name] += number(dut.events_o) >> bit & 1
            if dut.m_tvalid_o.value:
                beats.append(number(dut.m_tdata_o).to_bytes(BEAT, "little"))
            if dut.say_valid_o.value:
                said.append(number(dut.say_o))  # gap, expected, limit

    cocotb.start_soon(watch())
    expected, wanted, sent = 0, dict.fromkeys(EVENTS, 0), []
    for _ in range(120):
        payload = rng.randbytes(BEAT * rng.randrange(1, PAYLOAD_BEATS + 1))
        good = Frame(DATA, expected, payload, rng.randrange(2))
        reason, is_damaged = rng.choice(EVENTS), False
        data = good.bytes()
        if reason == "received":
            expected, sent = expected + 1, [*sent, payload]
        elif reason == "foreign":
            data = Frame(DATA, expected, payload, **rng.choice([{"ring": 7}, {"epoch": 7}, {"to": RIGHT}])).bytes()
        elif reason == "length" and len(payload) > BEAT:
            data = data[:-BEAT]
        elif reason == "crc" and rng.random() < 0.4:
            is_damaged = True  # the FCS was wrong, and all that is checked here is right
        elif reason == "crc":
            at = rng.choice([*range(19, 32), *range(32, len(data))])
            data = data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
            reason = "length" if at == 19 and data[19] > len(payload) // BEAT else "crc"
        elif reason == "duplicate" and expected > 0:
            data = Frame(DATA, rng.randrange(expected), payload).bytes()
        elif reason == "gap":
            data = Frame(DATA, expected + rng.randrange(1, 9), payload).bytes()
        elif reason == "acknowledged":
            data = Frame(ACK, 5, limit=9).bytes()
        else:
            continue
        wanted[reason] += 1
        await receive(dut, data, is_damaged)
        for _ in range(rng.choice([0, 0, 3])):
            await RisingEdge(dut.clk_i)
    for _ in range(100):
        await RisingEdge(dut.clk_i)
    assert counted == wanted
    assert b"".join(beats) == b"".join(sent)
    assert said[-1] >> 32 & 0xFFFFFFFF <= expected


@cocotb.test(skip=os.environ.get("DEVICE") != "receive")
async def hears(dut: Any) -> None:
    """Acknowledgements of the neighbour, among other frames, go to the sending half as they are."""
    rng = chance()
    await start(dut, identity_i=IDENTITY, m_tready_i=1, say_ready_i=1)
    wanted: list[int] = []
    heard: list[int] = []

    async def watch() -> None:
        while True:
            await RisingEdge(dut.clk_i)
            if dut.heard_valid_o.value:
                heard.append(number(dut.heard_o))

    cocotb.start_soon(watch())
    for _ in range(60):
        gap, expected, limit = rng.randrange(2), rng.getrandbits(32), rng.getrandbits(32)
        kind, is_damaged = rng.choice([ACK, ACK, DATA]), rng.random() < 0.2
        payload = rng.randbytes(BEAT) if kind == DATA else b""
        await receive(dut, Frame(kind, expected, payload, gap, limit).bytes(), is_damaged)
        if kind == ACK and not is_damaged:
            wanted.append(gap << 64 | expected << 32 | limit)
        for _ in range(rng.choice([0, 0, 3])):
            await RisingEdge(dut.clk_i)
    for _ in range(5):
        await RisingEdge(dut.clk_i)
    assert heard == wanted


@cocotb.test(skip=os.environ.get("DEVICE") != "receive")
async def keeps_a_gap_in_mind(dut: Any) -> None:
    """While it may not say anything, it remembers a gap. It reports the gap once."""
    await start(dut, identity_i=IDENTITY, m_tready_i=1)
    await receive(dut, Frame(DATA, 2, b"x" * BEAT).bytes())
    for _ in range(20):
        await RisingEdge(dut.clk_i)
    assert dut.say_valid_o.value
    assert number(dut.say_o) >> 32 == 1 << 32
    dut.say_ready_i.value = 1
    await RisingEdge(dut.clk_i)
    for _ in range(ACK_PERIOD + 30):
        await RisingEdge(dut.clk_i)
        if dut.say_valid_o.value:
            assert number(dut.say_o) >> 32 == 0
            return
    raise AssertionError("nothing was said in a period")


@cocotb.test(skip=os.environ.get("DEVICE") != "receive")
async def says_what_it_waits_for(dut: Any) -> None:
    """At once after AckEvery frames, AckDelay after fewer, every AckPeriod in silence. The limit never promises more
    than the memory holds."""
    rng = chance()
    await start(dut, identity_i=IDENTITY, s_tvalid_i=0, s_tuser_i=0, m_tready_i=0, say_ready_i=1)
    said: list[tuple[int, int, int, int]] = []  # cycle, gap, expected, limit
    cycle = full = 0

    async def watch() -> None:
        nonlocal cycle, full
        while True:
            await RisingEdge(dut.clk_i)
            cycle += 1
            full += number(dut.events_o) >> EVENTS.index("full") & 1
            if dut.say_valid_o.value:
                value = number(dut.say_o)
                said.append((cycle, value >> 64, value >> 32 & 0xFFFFFFFF, value & 0xFFFFFFFF))

    async def wait(cycles: int) -> None:
        for _ in range(cycles):
            await RisingEdge(dut.clk_i)

    cocotb.start_soon(watch())
    slots = DEPTH // 64
    await wait(3 * ACK_PERIOD + 30)
    assert [one[1:] for one in said] == [(0, 0, slots)] * 3
    assert all(0 <= b[0] - a[0] - ACK_PERIOD <= 4 for a, b in pairwise(said))

    said.clear()
    await receive(dut, Frame(DATA, 0, rng.randbytes(BEAT)).bytes())
    arrived = cycle
    await wait(ACK_DELAY + 8)
    assert [(gap, expected) for _, gap, expected, _ in said] == [(0, 1)]
    assert said[0][0] - arrived > ACK_DELAY // 3

    said.clear()
    for sequence in range(1, 1 + ACK_EVERY):
        await receive(dut, Frame(DATA, sequence, rng.randbytes(BEAT)).bytes())
    await wait(6)
    assert [(gap, expected) for _, gap, expected, _ in said] == [(0, 1 + ACK_EVERY)]

    # The longest frames up to the limit: none is dropped, and there is not room for more.
    sequence = 1 + ACK_EVERY
    for _ in range(2 * DEPTH // PAYLOAD_BEATS):
        limit = said[-1][3]
        if sequence == limit:
            await wait(ACK_PERIOD + 30)
            if said[-1][3] == limit:
                break
            continue
        await receive(dut, Frame(DATA, sequence, rng.randbytes(BEAT * PAYLOAD_BEATS)).bytes())
        sequence += 1
        await wait(6)
    used = 1 + ACK_EVERY + (sequence - 1 - ACK_EVERY) * PAYLOAD_BEATS
    assert full == 0 and said[-1][1:] == (0, sequence, sequence + (DEPTH - used) // 64)
    await receive(dut, Frame(DATA, sequence + 1, b"x" * BEAT).bytes())
    await wait(6)
    assert said[-1][1:3] == (1, sequence)
    await wait(ACK_PERIOD + 30)
    assert said[-1][1:3] == (0, sequence)  # a gap is reported once for each frame that shows it


async def tell(dut: Any, expected: int, limit: int, gap: int = 0) -> None:
    """News of the right neighbour, as link_receive says them."""
    dut.heard_i.value = gap << 64 | expected << 32 | limit
    dut.heard_valid_i.value = 1
    await RisingEdge(dut.clk_i)
    dut.heard_valid_i.value = 0


@cocotb.test(skip=os.environ.get("DEVICE") != "send")
async def sends(dut: Any) -> None:
    """Chunks become frames. After a reported gap, or a silence, frames are sent again. No frame is sent beyond the
    limit."""
    rng = chance()
    await start(
        dut, identity_i=IDENTITY, neighbours_i=NEIGHBOURS, timeout_i=3000, s_tvalid_i=0, heard_valid_i=0,
        say_valid_i=0, m_tready_i=1,
    )  # fmt: skip
    chunks = [rng.randbytes(BEAT * rng.randrange(1, 100)) for _ in range(6)]
    beats = [
        {"s_tdata_i": int.from_bytes(chunk[at : at + BEAT], "little"), "s_tlast_i": int(at + BEAT == len(chunk))}
        for chunk in chunks
        for at in range(0, len(chunk), BEAT)
    ]
    size = PAYLOAD_BEATS * BEAT
    frames = [
        Frame(DATA, 0, chunk[at : at + size], int(at + size >= len(chunk)), to=RIGHT)
        for chunk in chunks
        for at in range(0, len(chunk), size)
    ]
    for sequence, frame in enumerate(frames):
        frame.number = sequence
    cocotb.start_soon(give(dut, rng, 0.2, beats, "s_tvalid_i", "s_tready_o"))

    async def next_frame() -> Frame:
        data = b""
        while True:
            read = lambda: (number(dut.m_tdata_o).to_bytes(BEAT, "little"), int(dut.m_tlast_o.value))  # noqa: E731
            ((beat, last),) = await take(dut, rng, 0.2, 1, "m_tvalid_o", "m_tready_i", read)
            data += beat
            if last:
                return parsed(data)

    first = min(4, len(frames) - 1)  # FirstLimit
    assert [await next_frame() for _ in range(first)] == frames[:first]
    for _ in range(300):  # the limit is reached
        dut.m_tready_i.value = 1
        await RisingEdge(dut.clk_i)
        assert not dut.m_tvalid_o.value
    assert number(dut.events_o) >> 3 & 1  # paused
    await tell(dut, 1, first, gap=1)
    assert [await next_frame() for _ in range(first - 1)] == frames[1:first]
    assert [await next_frame() for _ in range(first - 1)] == frames[1:first]  # silence
    await tell(dut, first, 100)
    assert [await next_frame() for _ in frames[first:]] == frames[first:]
    dut.say_i.value = 1 << 64 | 77 << 32 | 99
    dut.say_valid_i.value = 1
    while not dut.say_ready_o.value:
        await RisingEdge(dut.clk_i)
    await RisingEdge(dut.clk_i)
    dut.say_valid_i.value = 0
    assert await next_frame() == Frame(ACK, 77, b"", 1, 99, LEFT)
    await tell(dut, len(frames), 100)
    for _ in range(5):
        await RisingEdge(dut.clk_i)
    assert dut.idle_o.value and not number(dut.events_o)

    # Old acknowledgements, and such of frames that were never sent, change nothing.
    dut.m_tready_i.value = 1
    for expected in (len(frames) - 1, 0, len(frames) + 1, len(frames) + 5):
        for gap in (0, 1):
            await tell(dut, expected, 1000, gap)
            for _ in range(5):
                await RisingEdge(dut.clk_i)
                assert dut.idle_o.value and not dut.m_tvalid_o.value, (expected, gap)
    more = Frame(DATA, len(frames), rng.randbytes(BEAT), 1, to=RIGHT)
    beat = {"s_tdata_i": int.from_bytes(more.payload, "little"), "s_tlast_i": 1}
    cocotb.start_soon(give(dut, rng, 0.0, [beat], "s_tvalid_i", "s_tready_o"))
    assert await next_frame() == more


@cocotb.test(skip=os.environ.get("DEVICE") != "send")
async def goes_back_once(dut: Any) -> None:
    """A gap is reported by every frame behind it: frames are sent again once for each number that is missing, and once
    more after a silence. News without a gap do not send frames again."""
    rng, timeout, frames = chance(), 400, 4
    await start(dut, identity_i=IDENTITY, neighbours_i=NEIGHBOURS, timeout_i=timeout, m_tready_i=1)
    await RisingEdge(dut.clk_i)
    assert dut.idle_o.value
    sent: list[int] = []
    starts, again, timeouts = True, 0, 0

    async def watch() -> None:
        nonlocal starts, again, timeouts
        while True:
            await RisingEdge(dut.clk_i)
            events = number(dut.events_o)
            again += events >> 1 & 1
            timeouts += events >> 4 & 1
            if dut.m_tvalid_o.value:
                if starts:
                    sent.append(int.from_bytes(number(dut.m_tdata_o).to_bytes(BEAT, "little")[20:24], "little"))
                starts = bool(dut.m_tlast_o.value)

    async def hear(expected: int, gap: int) -> list[int]:
        """Frames that it sends because of these news."""
        sent.clear()
        await tell(dut, expected, 100, gap)
        for _ in range(40):
            await RisingEdge(dut.clk_i)
        return list(sent)

    cocotb.start_soon(watch())
    beats = [{"s_tdata_i": rng.getrandbits(8 * BEAT), "s_tlast_i": 1} for _ in range(frames)]
    await give(dut, rng, 0.0, beats, "s_tvalid_i", "s_tready_o")
    for _ in range(40):
        await RisingEdge(dut.clk_i)
    assert sent == [0, 1, 2, 3] and again == 0
    assert await hear(1, 0) == []
    assert await hear(1, 1) == [1, 2, 3]
    assert await hear(1, 1) == []
    assert await hear(1, 0) == []
    assert await hear(2, 1) == [2, 3]
    assert await hear(2, 1) == []
    assert (again, timeouts) == (5, 0)
    while not timeouts:
        await RisingEdge(dut.clk_i)
    for _ in range(40):
        await RisingEdge(dut.clk_i)
    assert sent == [2, 3] and again == 7
    assert await hear(2, 1) == [2, 3]
    assert await hear(3, 0) == []
    assert not dut.idle_o.value
    assert await hear(4, 0) == []
    assert dut.idle_o.value and (again, timeouts) == (9, 1)


@cocotb.test(skip=os.environ.get("DEVICE") != "send")
async def skips_what_has_arrived(dut: Any) -> None:
    """While a frame is sent again, news come that all have arrived: the others are not sent again."""
    rng, frames = chance(), 4
    await start(dut, identity_i=IDENTITY, neighbours_i=NEIGHBOURS, timeout_i=4000, m_tready_i=1)
    beats = [{"s_tdata_i": rng.getrandbits(8 * BEAT), "s_tlast_i": int(at % 10 == 9)} for at in range(10 * frames)]
    await give(dut, rng, 0.0, beats, "s_tvalid_i", "s_tready_o")
    for _ in range(60):
        await RisingEdge(dut.clk_i)
    for expected, gap in ((1, 1), (frames, 0)):
        await tell(dut, expected, 100, gap)
        for _ in range(5):
            await RisingEdge(dut.clk_i)
        assert dut.m_tvalid_o.value  # the frame that is sent again
    resent = 0
    for _ in range(100):
        await RisingEdge(dut.clk_i)
        resent += number(dut.events_o) >> 1 & 1
    assert resent == 0 and dut.idle_o.value and not dut.m_tvalid_o.value


@pytest.mark.parametrize("device", ["receive", "send"])
def test_link(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each half by itself."""
    monkeypatch.setenv("DEVICE", device)
    extra = {"Slots": 16, "FirstLimit": 4} if device == "send" else RECEIVER
    simulate(f"link_{device}", __file__, DataWidth=8 * BEAT, PayloadBeats=PAYLOAD_BEATS, **extra)
