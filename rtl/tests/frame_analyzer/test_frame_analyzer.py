"""Table VI: each kind of frame takes its route, whole and in order, and the facts about frames that may be folded are
right."""

from __future__ import annotations

import dataclasses
import struct
from collections import deque
from typing import Any

import cocotb
from cocotb.triggers import RisingEdge

from benches import CYCLES_MAX, chance, number, simulate, start, wait_for
from ethernet import BEAT
from marks import marks_of
from roce_frames import (
    ACKNOWLEDGE,
    FIRST,
    LAST,
    LAST_IMMEDIATE,
    MIDDLE,
    ONLY,
    Connection,
    aggregation_header,
    with_ipv4_checksum,
)

PORTS = 4
NEAR_BEATS = 8  # from a frame's end: there it may be taken early
FORWARD, FOLD, DROP = range(3)
# frame_info_t, from the highest bit.
INFO = {
    "to": 48, "from": 48, "gids": 256, "is_v2": 1, "has_tag": 1, "opcode": 8, "queue_pair": 24, "psn": 24,
    "reth_length": 32,
    "length": 32, "message": 32, "mantissa": 8, "block": 8, "rank": 16, "epoch": 16, "job": 16, "flags": 8,
    "format": 4, "version": 4, "payload_bytes": 11, "is_malformed": 1, "icrc_is_right": 1,
    "has_bad_block": 1, "is_first": 1,
}  # fmt: skip
# Facts for counters, from the lowest bit.
PARSED = ("gave_way", "overtagged", "runt", "filtered", "flooded", "forwarded")
JOBS = 2
OURS = Connection("02:00:00:00:00:01", "02:00:00:00:00:02", queue_pair=0xABCDEF)
OURS_V2 = dataclasses.replace(OURS, queue_pair=0xEFABCD, version=2)


def bound(connection: Connection) -> int:
    """`connection_t`."""
    fields = int(connection.version == 2) << 72 | connection.queue_pair << 48
    return 1 << 73 | fields | int(connection.destination.replace(":", ""), 16)


BOUND = bound(OURS_V2) << 74 | bound(OURS)


@dataclasses.dataclass
class Given:
    """A frame, the ports of its address, and its expected route."""

    frame: bytes
    ports: int
    is_known: bool
    is_candidate: bool
    error: bool = False
    is_malformed: bool = False
    icrc_is_right: bool = True


def tagged(frame: bytes, tags: int) -> bytes:
    """The frame with a number of VLAN tags."""
    return frame[:12] + b"\x81\x00\x00\x07" * tags + frame[12:]


def changed(frame: bytes, at: int, value: bytes) -> bytes:
    """The frame with other bytes at a place."""
    return frame[:at] + value + frame[at + len(value) :]


def header_of(rng: Any, magic: bool = True) -> bytes:
    """The headers of a Write First: RETH and aggregation header."""
    header = aggregation_header(
        rng.randrange(1 << 16), rng.getrandbits(32), rng.getrandbits(32), job=rng.getrandbits(16)
    )
    if not magic:
        header = rng.choice([b"XX" + header[2:], header[:2] + b"\x20" + header[3:]])
    return struct.pack("!QII", rng.getrandbits(64), 5, rng.getrandbits(32)) + header


def draw(rng: Any, ends: bool = True) -> Given:
    """A random frame of a random kind; `may_end` allows frames that end in this module."""
    kinds = ["other", "ack", "only", "first", "first", "foreign", "later", "later", "stranger", "short", "no RoCE"]
    kind = rng.choice(kinds)
    ours = rng.choice([OURS, OURS_V2])
    psn, size = rng.getrandbits(24), 4 * rng.randrange(1, 40)
    tags = rng.choice([0, 0, 0, 1, 1, 2])
    is_candidate = kind in ("first", "later") and tags < 2
    later = rng.choice([MIDDLE, LAST, LAST_IMMEDIATE])
    other = {"version": 3 - ours.version}  # another job's
    changes = [{"queue_pair": 7}, {"destination": "02:00:00:00:00:03"}, other]
    stranger = dataclasses.replace(ours, **rng.choice(changes))
    body = rng.randbytes(size)
    if kind == "other":
        frame = OURS.frame(later, psn, body, ethernet=0x0800)[: rng.randrange(14, rng.choice([18, 100]))]
    elif kind == "ack":
        frame = ours.frame(ACKNOWLEDGE, psn, bytes(4))
    elif kind == "only":
        frame = ours.frame(ONLY, psn, body)
    elif kind in ("first", "foreign"):
        frame = ours.frame(FIRST, psn, header_of(rng, kind == "first") + body)
    elif kind == "later":
        frame = ours.frame(later, psn, body)
    elif kind == "stranger":
        frame = stranger.frame(later, psn, body)
    elif kind == "no RoCE":  # a length of UDP that is not IPv4's, another port
        frame = changed(OURS_V2.frame(later, psn, body), 14 + rng.choice([22, 23, 24, 25]), b"\x77")
    else:
        frame = ours.frame(later, psn, body)[: rng.randrange(14, 60 - 12 * (ours.version - 1))]
    given = Given(tagged(frame, tags), 0, rng.random() < 0.7, is_candidate, error=rng.random() < 0.05)
    given.ports = 1 << rng.randrange(PORTS) if given.is_known else (1 << PORTS) - 1
    if ends and rng.random() < 0.05:
        given.ports, given.is_known, given.is_candidate = 0, False, False
    given.is_malformed = given.error
    if is_candidate and rng.random() < 0.3:
        damage(rng, given, 14 + 4 * tags)
    return given


def damage(rng: Any, given: Given, at: int) -> None:
    """One error in a frame whose GRH or IPv4 header begins at `at`."""
    frame = bytearray(given.frame)
    is_v2 = frame[at] >> 4 == 4
    flaw = rng.choice(["crc", "crc", "length", "pad", "bth", *([] if is_v2 else ["version", "next"])])
    if flaw == "crc":
        frame[-rng.randrange(1, 8)] ^= 1 << rng.randrange(8)
        given.icrc_is_right = False
    elif is_v2 and flaw != "bth":
        total = int.from_bytes(frame[at + 2 : at + 4], "big") + rng.choice([1, 2, 3] if flaw == "pad" else [4, 8, 400])
        frame[at + 2 : at + 4], frame[at + 24 : at + 26] = total.to_bytes(2), (total - 20).to_bytes(2)
        frame[at:] = with_ipv4_checksum(bytes(frame[at:]))
    elif flaw == "length":
        frame[at + 4 : at + 6] = (int.from_bytes(frame[at + 4 : at + 6], "big") + rng.choice([4, 8, 400])).to_bytes(2)
    elif flaw == "pad":
        frame[at + 5] ^= rng.choice([1, 2, 3])
    else:
        where = {"version": 0, "next": 6, "bth": 29 if is_v2 else 41}
        frame[at + where[flaw]] ^= 0x10 if flaw == "version" else 1
    given.is_malformed |= flaw != "crc"
    given.frame = bytes(frame) + (bytes(rng.randrange(20)) if flaw == "crc" else b"")
    if flaw == "crc":  # padding of the Ethernet frame follows the ICRC, so the last bytes are not the packet's
        given.icrc_is_right = False


def expected_info(given: Given) -> dict[str, int]:
    """The facts that DEC_FSM must find."""
    has_tag = given.frame[12:14] == b"\x81\x00"
    frame = given.frame[:12] + given.frame[16:] if has_tag else given.frame
    is_v2 = frame[14] >> 4 == 4
    length, gids = int.from_bytes(frame[18:20], "big"), int.from_bytes(frame[22:54], "little")
    if is_v2:  # addresses, where v1 has parts of the GIDs
        length = int.from_bytes(frame[16:18], "big") - 28
        gids = int.from_bytes(frame[26:34], "little") << 128
        frame = frame[:14] + bytes(40) + frame[42:]
    big = lambda at, size: int.from_bytes(frame[at : at + size], "big")  # noqa: E731
    opcode = frame[54]
    extension = {FIRST: 16, LAST_IMMEDIATE: 4}.get(opcode, 0)
    found = {
        "to": big(0, 6), "from": big(6, 6), "gids": gids, "is_v2": int(is_v2), "has_tag": int(has_tag),
        "opcode": opcode, "queue_pair": big(59, 3), "psn": big(63, 3), "is_malformed": int(given.is_malformed),
        "is_first": int(opcode == FIRST),
    }  # fmt: skip
    if opcode == FIRST:
        found |= {
            "reth_length": big(78, 4), "version": frame[84] >> 4, "format": frame[84] & 15, "flags": frame[85],
            "job": big(86, 2), "epoch": big(88, 2), "rank": big(90, 2), "block": frame[92], "mantissa": frame[93],
            "message": big(94, 4), "length": big(98, 4),
        }  # fmt: skip
    if not given.is_malformed:
        payload_bytes = length - 16 - extension
        elements = frame[66 + extension : 66 + extension + payload_bytes][20 * (opcode == FIRST) :]
        exponents = elements[: len(elements) // 17 * 17 : 17]
        found |= {"payload_bytes": payload_bytes, "icrc_is_right": int(given.icrc_is_right)}
        found |= {"has_bad_block": int(any(0 < exponent < 7 for exponent in exponents))}
    return found


def read_info(value: int) -> dict[str, int]:
    """The fields of a frame_info_t."""
    found, at = {}, sum(INFO.values())
    for name, width in INFO.items():
        at -= width
        found[name] = value >> at & (1 << width) - 1
    return found


class Handler:
    """Replaces the Aggregation Frame Handler: it answers after a random delay, and keeps its input. It takes some
    frames early."""

    def __init__(self, dut: Any, rng: Any, delay: int) -> None:
        """`delay`: the largest number of cycles to an answer."""
        self.dut, self.rng, self.delay = dut, rng, delay
        self.judged: list[tuple[dict[str, int], int, bool]] = []  # information, route, taken early
        self.streams: list[bytes] = []  # frames; of those that were taken early and dropped, their heads at least

    async def run(self) -> None:
        """Run forever."""
        dut = self.dut
        while True:
            await RisingEdge(dut.clk_i)
            is_early = bool(dut.is_near_o.value) and not dut.info_valid_o.value and self.rng.random() < 0.7
            if is_early:
                await self._take_early()
            elif not dut.info_valid_o.value:
                continue
            told = read_info(number(dut.info_o))
            for _ in range(self.rng.randrange(self.delay + 1)):
                await RisingEdge(dut.clk_i)
                assert dut.info_valid_o.value and told == read_info(number(dut.info_o))
            routes = [FOLD, DROP] if is_early else [FORWARD, FOLD, DROP]
            route = DROP if told["is_malformed"] else self.rng.choice(routes)
            dut.route_valid_i.value, dut.route_i.value = 1, route
            self.judged.append((told, route, is_early))
            await RisingEdge(dut.clk_i)
            dut.route_valid_i.value = 0

    async def _take_early(self) -> None:
        """The same facts are told about a frame then, and at its end."""
        dut = self.dut
        early = read_info(number(dut.info_o))
        dut.early_i.value = 1
        await RisingEdge(dut.clk_i)
        dut.early_i.value = 0
        for _ in range(CYCLES_MAX):
            await RisingEdge(dut.clk_i)
            assert not dut.is_near_o.value
            if dut.info_valid_o.value:
                break
        told = read_info(number(dut.info_o))
        network = ("to", "from", "gids", "is_v2", "has_tag")
        for name in (*network, "opcode", "queue_pair", "psn", "payload_bytes", "is_first"):
            assert told[name] == early[name], name

    async def take(self) -> None:
        """Accept the frames to fold: those that were not taken early without a pause from the first beat on."""
        frame, dut = b"", self.dut
        is_early = is_open = False
        while True:
            await RisingEdge(dut.clk_i)
            assert dut.fold_valid_o.value or not frame or is_early
            if dut.fold_valid_o.value:
                frame, is_last, _ = append(frame, number(dut.fold_beat_o))
                is_open = not is_last
                if is_last:
                    self.streams.append(frame)
                    frame = b""
            if dut.early_i.value:
                is_early = is_open = True
            if dut.route_valid_i.value and is_early:
                if is_open and number(dut.route_i) == DROP:
                    self.streams.append(frame)
                    frame, is_open = b"", False
                is_early = False


def append(frame: bytes, beat: int) -> tuple[bytes, bool, bool]:
    """The frame with one beat_t more, whether that was the last, and whether it is marked as damaged."""
    last = bool(beat >> 67 & 1)
    size = (beat >> 64 & 7) + 1 if last else BEAT
    return frame + (beat & (1 << 64) - 1).to_bytes(BEAT, "little")[:size], last, bool(beat >> 68 & 1)


async def feed(dut: Any, rng: Any, idle: float, frames: list[Given]) -> None:
    """All frames, beat by beat. Behind the mark that decides about a frame, any others come."""
    for given in frames:
        marks = marks_of(given.frame)
        for at in range(0, len(given.frame), BEAT):
            while rng.random() < idle:
                dut.s_valid_i.value = 0
                await RisingEdge(dut.clk_i)
            part = given.frame[at : at + BEAT]
            last = at + BEAT >= len(given.frame)
            beat = int(last and given.error) << 68 | int(last) << 67 | (len(part) - 1 if last else 0) << 64
            dut.s_beat_i.value = beat | int.from_bytes(part, "little")
            dut.s_mark_i.value = marks[at // BEAT] if at // BEAT < len(marks) else rng.randrange(8)
            dut.s_is_known_i.value, dut.s_ports_i.value, dut.s_valid_i.value = int(given.is_known), given.ports, 1
            await RisingEdge(dut.clk_i)
            while not dut.s_ready_o.value:
                await RisingEdge(dut.clk_i)
    dut.s_valid_i.value = 0


@cocotb.test()
@cocotb.parametrize((("idle", "delay"), [(0.0, 0), (0.0, 40), (0.3, 10)]))
async def goes_its_way(dut: Any, idle: float, delay: int) -> None:
    """Random frames of all kinds."""
    rng = chance()
    await start(dut, s_valid_i=0, route_valid_i=0, fold_ready_i=1, abort_i=0, is_crowded_i=0, connections_i=BOUND)
    frames = [draw(rng) for _ in range(150)]
    handler = Handler(dut, rng, delay)
    sent: deque[tuple[bytes, int, bool]] = deque()
    counted = dict.fromkeys(PARSED, 0)

    async def collect() -> None:
        frame, ports = b"", 0
        while True:
            await RisingEdge(dut.clk_i)
            for bit, name in enumerate(PARSED):
                counted[name] += number(dut.parsed_o) >> bit & 1
            if dut.m_valid_o.value:
                assert bool(dut.m_first_o.value) == (frame == b"")
                assert not frame or ports == number(dut.m_ports_o)
                ports = number(dut.m_ports_o)
                frame, last, error = append(frame, number(dut.m_beat_o))
                if last:
                    if ports:
                        sent.append((frame, ports, error))
                    frame = b""

    for task in (handler.run(), handler.take(), collect()):
        cocotb.start_soon(task)
    await feed(dut, rng, idle, frames)
    candidates = [given for given in frames if given.is_candidate]
    for _ in range(CYCLES_MAX):
        await RisingEdge(dut.clk_i)
        if len(handler.judged) == len(candidates):
            break
    for _ in range(300):
        await RisingEdge(dut.clk_i)
    assert len(handler.judged) == len(candidates)
    forwarded, streams = [], []
    for given, (info, route, is_early) in zip(candidates, handler.judged, strict=True):
        assert info | expected_info(given) == info, given
        (forwarded if route == FORWARD else streams if route == FOLD or is_early else []).append(given)
    assert {FOLD, DROP} <= {route for _, route, is_early in handler.judged if is_early}
    dropped = [route == DROP for _, route, is_early in handler.judged if route == FOLD or is_early]
    for given, stream, is_dropped in zip(streams, handler.streams, dropped, strict=True):
        assert given.frame.startswith(stream) if is_dropped else given.frame == stream
    others = (1 << PORTS) - 2  # it is port 0
    straight = [given for given in frames if not given.is_candidate]
    for expected in (straight, forwarded):  # each in its own order
        wanted = [(given.frame, given.ports & others, given.error) for given in expected if given.ports & others]
        of_those = {frame for frame, _, _ in wanted}
        assert [one for one in sent if one[0] in of_those] == wanted
    went = [given for given in straight + forwarded if given.ports & others]
    assert len(sent) == len(went)
    assert counted["forwarded"] == sum(given.is_known for given in went)
    assert counted["flooded"] == sum(not given.is_known for given in went)
    assert counted["filtered"] == sum(given.is_known and given.ports == 1 for given in straight + forwarded)


@cocotb.test()
async def gives_way(dut: Any) -> None:
    """The handler does not answer. If frames must not wait, frames without its verdict are dropped and counted, and
    also packets that may belong to a Write First among them. All other frames pass. The frame of the open request
    stays."""
    rng = chance()
    await start(dut, s_valid_i=0, route_valid_i=0, fold_ready_i=1, abort_i=0, is_crowded_i=1, connections_i=BOUND)
    frames = [dataclasses.replace(draw(rng, ends=False), ports=2, is_known=True) for _ in range(60)]
    went = dropped = 0

    async def watch() -> None:
        nonlocal went, dropped
        while True:
            await RisingEdge(dut.clk_i)
            went += bool(dut.m_valid_o.value and dut.m_first_o.value and number(dut.m_ports_o))
            dropped += number(dut.parsed_o) & 1

    cocotb.start_soon(watch())
    await feed(dut, rng, 0.0, frames)
    for _ in range(300):
        await RisingEdge(dut.clk_i)
    types = (b"\x89\x15", b"\x08\x00")
    is_roce = [any(one in given.frame[12:18] for one in types) for given in frames]
    strangers = sum(is_one and not given.is_candidate for is_one, given in zip(is_roce, frames, strict=True))
    candidates = sum(given.is_candidate for given in frames)
    assert went + dropped + 1 == len(frames) and dut.info_valid_o.value
    assert candidates - 1 <= dropped < candidates + strangers


@cocotb.test()
@cocotb.parametrize((("is_early", "beats"), [(False, 10), (True, 1), (True, 10), (True, 59)]))
async def drops_what_a_reset_interrupts(dut: Any, is_early: bool, beats: int) -> None:
    """A soft reset while a frame is copied: its rest is dropped, though the handler takes no more, and later frames are
    asked about and forwarded. The handler is not asked about a frame that it took early."""
    rng = chance()
    await start(dut, s_valid_i=0, route_valid_i=0, fold_ready_i=1, abort_i=0, is_crowded_i=0, connections_i=BOUND)
    payload = rng.randbytes(400)
    frames = [Given(OURS.frame(MIDDLE, psn, payload), 2, True, True) for psn in (5, 6)]
    sent: list[bytes] = []

    async def collect() -> None:
        frame = b""
        while True:
            await RisingEdge(dut.clk_i)
            if dut.m_valid_o.value:
                frame, last, _ = append(frame, number(dut.m_beat_o))
                if last:
                    sent.append(frame)
                    frame = b""

    async def answer(psn: int, route: int) -> None:
        await wait_for(dut, lambda: bool(dut.info_valid_o.value))
        assert read_info(number(dut.info_o))["psn"] == psn
        dut.route_valid_i.value, dut.route_i.value = 1, route
        await RisingEdge(dut.clk_i)
        dut.route_valid_i.value = 0

    cocotb.start_soon(collect())
    cocotb.start_soon(feed(dut, rng, 0.0, frames))
    if is_early:
        await wait_for(dut, lambda: bool(dut.is_near_o.value))
        dut.early_i.value = 1
        await RisingEdge(dut.clk_i)
        dut.early_i.value = 0
    else:
        await answer(5, FOLD)
    copied = 0
    while copied < beats:
        await RisingEdge(dut.clk_i)
        copied += int(dut.fold_valid_o.value)
    dut.fold_ready_i.value, dut.abort_i.value = 0, 1
    await RisingEdge(dut.clk_i)
    dut.abort_i.value = 0
    for _ in range(3):
        await RisingEdge(dut.clk_i)
    assert not dut.fold_valid_o.value
    await answer(6, FORWARD)
    for _ in range(100):
        await RisingEdge(dut.clk_i)
    assert sent == [frames[1].frame]


def test_frame_analyzer() -> None:
    """Port 0 of four."""
    simulate("frame_analyzer", __file__, Ports=PORTS, Jobs=JOBS, NearBeats=NEAR_BEATS)
