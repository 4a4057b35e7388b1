"""Frames of all kinds are split into the header and payload buffers; the bytes must agree with PROTOCOL.md."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import cocotb
from cocotb.triggers import RisingEdge

from benches import chance, number, packed, simulate, start
from roce_frames import with_ipv4_checksum

BEAT, META_BEAT = 8, 15
PLAIN, WITH_HEADER, IMMEDIATE = range(3)
HEADER_BYTES = {PLAIN: 66, WITH_HEADER: 102, IMMEDIATE: 70}
GRH_AT, FLAGS_AT, IMMEDIATE_AT, TAG = 14, 85, 66, 4
# Lengths in headers of v1, and of v2: of IPv4 and of UDP.
GRH_LENGTH_AT, LENGTHS_AT = 18, (16, 38)
# Of v2; its transport begins so many bytes earlier.
UDP_CHECK_AT, RESERVED_AT, EARLIER = 40, 50, 12


@dataclass
class Given:
    """A frame, and the handler's facts about it."""

    kind: int
    is_v2: bool
    has_tag: bool
    words: int
    place: int
    slot: int
    is_repeat: bool
    was_short: bool
    is_short: bool
    meta: int
    frame: bytes

    @property
    def header_bytes(self) -> int:
        """The frame up to the gradients."""
        return HEADER_BYTES[self.kind] + TAG * self.has_tag - EARLIER * self.is_v2

    def marked(self) -> bytes:
        """Its header as the header of a sum, with the lengths of the packet that leaves."""
        header, shift = bytearray(self.frame), TAG * self.has_tag
        more = 4 * (self.words - 1) * (self.was_short - self.is_short)
        for at in LENGTHS_AT if self.is_v2 else (GRH_LENGTH_AT,):
            length = int.from_bytes(header[at + shift : at + shift + 2], "big") + more
            header[at + shift : at + shift + 2] = length.to_bytes(2, "big")
        if self.is_v2:
            header[GRH_AT + shift :] = with_ipv4_checksum(bytes(header[GRH_AT + shift :]))
            header[UDP_CHECK_AT + shift : UDP_CHECK_AT + 2 + shift] = bytes(2)
            header[RESERVED_AT + shift] = header[RESERVED_AT + shift] & 0x80 | 0x4E
            shift -= EARLIER
        else:
            header[GRH_AT + 1 + shift] &= 0xF0
            header[GRH_AT + 2 + shift], header[GRH_AT + 3 + shift] = 0x4E, 0x46
        if self.kind == WITH_HEADER:
            header[FLAGS_AT + shift] |= 2
        if self.kind == IMMEDIATE:
            header[IMMEDIATE_AT + shift] |= 0x80
        return bytes(header[: self.header_bytes])


def draw(rng: random.Random) -> Given:
    """Any."""
    kind, is_v2, has_tag = rng.randrange(3), rng.random() < 0.5, rng.random() < 0.4
    words = rng.choice([1, 2, 251, 256, rng.randrange(1, 257)])
    generation, message = rng.getrandbits(10), rng.getrandbits(32)
    was_short, is_short = rng.random() < 0.4, rng.random() < 0.4
    meta = packed([(int(is_short), 1), (kind, 2), (int(is_v2), 1), (int(has_tag), 1), (generation, 10), (message, 32)])
    size = HEADER_BYTES[kind] + TAG * has_tag - EARLIER * is_v2 + (4 if was_short else 4 * words) + 4  # the ICRC
    frame = bytearray(rng.randbytes(size + rng.choice([0, 0, 7])))
    for at in LENGTHS_AT if is_v2 else (GRH_LENGTH_AT,):
        frame[at + TAG * has_tag : at + TAG * has_tag + 2] = rng.randrange(2000, 60000).to_bytes(2, "big")
    if is_v2:
        frame[GRH_AT + TAG * has_tag :] = with_ipv4_checksum(bytes(frame[GRH_AT + TAG * has_tag :]))
    return Given(
        kind, is_v2, has_tag, words, rng.randrange(512), rng.randrange(32), rng.random() < 0.3, was_short, is_short,
        meta, bytes(frame),
    )  # fmt: skip


SAID_ONCE = (
    ("place_i", 9), ("slot_i", 5), ("is_repeat_i", 1), ("meta_i", 47), ("last_word_i", 8), ("was_short_i", 1),
)  # fmt: skip


class Buffers:
    """The written words, by address."""

    def __init__(self, dut: Any) -> None:
        self.dut = dut
        self.headers: dict[int, int] = {}
        self.repeats: dict[int, int] = {}
        self.payloads: dict[int, int] = {}

    def look(self) -> None:
        """Record writes after every clock edge."""
        dut = self.dut
        if dut.header_write_o.value:
            self.headers[number(dut.header_address_o)] = number(dut.header_data_o)
        if dut.repeat_write_o.value:
            self.repeats[number(dut.repeat_address_o)] = number(dut.header_data_o)
        if dut.payload_write_o.value:
            self.payloads[number(dut.payload_address_o)] = number(dut.payload_data_o)


async def split(dut: Any, given: Given, rng: random.Random) -> Buffers:
    """Send one frame, with pauses in it; waits for the place until the first gradients are written."""
    buffers = Buffers(dut)
    dut.start_i.value, dut.place_i.value, dut.slot_i.value = 1, given.place, given.slot
    dut.is_repeat_i.value, dut.meta_i.value = int(given.is_repeat), given.meta
    dut.last_word_i.value, dut.was_short_i.value = given.words - 1, int(given.was_short)
    dut.s_valid_i.value = 0

    async def edge(began: bool = True) -> None:
        had_payload = bool(buffers.payloads)
        await RisingEdge(dut.clk_i)
        buffers.look()
        assert bool(dut.is_awaited_o.value) == (began and not given.is_repeat and not had_payload)
        assert not dut.is_awaited_o.value or number(dut.awaited_place_o) == given.place

    await edge(began=False)
    dut.start_i.value, dut.s_valid_i.value = 0, 1
    for name, bits in SAID_ONCE:
        getattr(dut, name).value = rng.getrandbits(bits)  # it is valid only once
    for at in range(0, len(given.frame), BEAT):
        part = given.frame[at : at + BEAT]
        last = at + BEAT >= len(given.frame)
        while rng.random() < 0.1:  # the MAC's clock is slower than the switch's
            dut.s_valid_i.value, dut.s_beat_i.value = 0, rng.getrandbits(69)
            await edge()
        dut.s_valid_i.value = 1
        beat = [(0, 1), (int(last), 1), (len(part) - 1, 3), (int.from_bytes(part, "little"), 64)]
        dut.s_beat_i.value = packed(beat)
        await edge()
        assert dut.is_busy_o.value == 1
    dut.s_valid_i.value = 0
    await RisingEdge(dut.clk_i)
    assert dut.is_busy_o.value == 0
    return buffers


@cocotb.test()
async def keeps_headers_and_gradients(dut: Any) -> None:
    """Every kind of both versions, with a tag and without, of all lengths."""
    rng = chance()
    await start(dut, start_i=0, s_valid_i=0)
    for _ in range(400):
        given = draw(rng)
        found = await split(dut, given, rng)
        headers, base = (found.repeats, given.slot) if given.is_repeat else (found.headers, given.place)
        beats = given.header_bytes // BEAT + 1  # the last is shared with gradients
        assert set(headers) == {base << 4 | beat for beat in [*range(beats), META_BEAT]}
        assert not (found.headers if given.is_repeat else found.repeats)
        assert headers[base << 4 | META_BEAT] == given.meta
        whole = b"".join(headers[base << 4 | beat].to_bytes(BEAT, "little") for beat in range(beats))
        assert whole[: given.header_bytes] == given.marked()
        if given.is_repeat:
            assert not found.payloads
            continue
        words = 1 if given.was_short else given.words
        written = min((given.words + 1) // 2, -(-len(given.frame) // BEAT) - beats)  # what is behind a short one, too
        assert set(found.payloads) == {given.place << 7 | beat for beat in range(written)}
        gradients = b"".join(found.payloads[address].to_bytes(BEAT, "little") for address in sorted(found.payloads))
        assert gradients[: 4 * words] == given.frame[given.header_bytes :][: 4 * words]


def test_frame_splitter() -> None:
    """The module with 512 places."""
    simulate("frame_splitter", __file__)
