"""The Aggregation Stage with all its ports driven at once: frames enter as from Frame Analyzers, and sums leave.

This file finds the facts of a Frame Analyzer with only struct and zlib.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from cocotb.triggers import RisingEdge

from benches import chance, number, packed, start
from marks import is_roce_v2, is_udp
from roce_frames import ETHERNET, FIRST, GRH_BYTES, IP_UDP_BYTES, IPV4, LAST_IMMEDIATE, RETH, ROCE, TRANSPORT, icrc

VERDICTS = [
    "forwarded",
    "kept",
    "folded",
    "answered",
    "waiting",
    "malformed",
    "icrc",
    "header",
    "epoch",
    "rank",
    "spoofed",
    "order",
    "mismatch",
    "psn",
    "shape",
    "block",
    "busy",
    "stale",
    "jobs",
    "room",
]
FORWARD, FOLD, DROP = range(3)
MAGIC_AND_VERSION = (0x4E46, 1)
BEAT = 8
QUIET_CYCLES = 1000  # six turns of the Output Arbiter, each of which sends a sum
NEAR_BEATS = 20  # from a frame's end: there it may be taken early
# Fields of `frame_info_t` that are known at a frame's end only: malformed, right ICRC, bad block.
AT_THE_END = 0b1110
CONNECTION_BITS = 74
HEADER_BEATS = 10  # all that is asked about a later packet is known behind them


@dataclass
class Info:
    """The facts about a frame that the verdict needs."""

    frame: bytes
    tag: int = 0  # bytes
    is_v2: bool = False
    opcode: int = -1
    queue_pair: int = 0
    to: int = 0
    may_fold: bool = True
    fields: list[tuple[int, int]] = field(default_factory=list)


def has_bad_block(payload: bytes, is_first: bool) -> bool:
    """Whether, as blocks of 17 bytes, it has an exponent that no encoder writes."""
    elements = payload[20:] if is_first else payload
    return any(0 < exponent < 7 for exponent in elements[: len(elements) // 17 * 17 : 17])


def network_bytes_of(frame: bytes, tag: int) -> int:
    """The length of a frame's GRH, or of IPv4 and UDP; 0 if the frame is not RoCE."""
    type_, packet = int.from_bytes(frame[12 + tag : 14 + tag], "big"), frame[ETHERNET + tag :]
    if type_ == ROCE:
        return GRH_BYTES
    is_v2 = type_ == IPV4 and is_udp(packet) and is_roce_v2(packet)
    return IP_UDP_BYTES if is_v2 else 0


def analyze(frame: bytes) -> Info:
    """`frame_info_t` of a frame; may_fold is false if no handler is asked."""
    tag = 4 if frame[12:14] == b"\x81\x00" else 0
    info = Info(frame, tag)
    packet, network = frame[ETHERNET + tag :], network_bytes_of(frame, tag)
    if not network or len(packet) < network + TRANSPORT + 4:
        info.may_fold = False
        return info
    info.is_v2 = network == IP_UDP_BYTES
    length = struct.unpack("!H", packet[2:4])[0] - network if info.is_v2 else struct.unpack("!H", packet[4:6])[0]
    transport = packet[network:]
    info.opcode = transport[0]
    info.queue_pair = int.from_bytes(transport[5:8], "big")
    info.to = int.from_bytes(frame[:6], "big")
    extension = {FIRST: RETH, LAST_IMMEDIATE: 4}.get(info.opcode, 0)
    size = network + length
    pad = transport[1] >> 4 & 3
    payload_bytes = length - TRANSPORT - extension - pad - 4
    is_malformed = (
        (not info.is_v2 and (packet[0] >> 4 != 6 or packet[6] != 0x1B)) or payload_bytes < 0
        or size > len(frame) - ETHERNET - tag or transport[1] & 15 != 0 or -payload_bytes % 4 != pad
    )  # fmt: skip
    packet += bytes(RETH + 20)  # bytes beyond a short frame are ignored
    header = packet[network + TRANSPORT + RETH :][:20]
    magic, version, flags, job, epoch, rank, block, mantissa, message, total = struct.unpack("!HBBHHHBBII", header)
    is_first = info.opcode == FIRST
    if is_first and (magic, version >> 4) != MAGIC_AND_VERSION:
        info.may_fold = False
    right = packet[size - 4 : size] == icrc(packet[: size - 4])
    reth_length = struct.unpack("!I", packet[network + TRANSPORT + 12 :][:4])[0]
    gids = int.from_bytes(packet[12:20], "little") << 128 if info.is_v2 else int.from_bytes(packet[8:40], "little")
    info.fields = [
        (info.to, 48), (int.from_bytes(frame[6:12], "big"), 48),
        (gids, 256), (int(info.is_v2), 1), (int(tag > 0), 1), (info.opcode, 8),
        (info.queue_pair, 24), (int.from_bytes(transport[9:12], "big"), 24), (reth_length, 32),
        (total, 32), (message, 32), (mantissa, 8), (block, 8), (rank, 16), (epoch, 16), (job, 16), (flags, 8),
        (version & 15, 4), (version >> 4, 4),
        (max(payload_bytes, 0) & 0x7FF, 11), (int(is_malformed), 1), (int(right), 1),
        (int(has_bad_block(packet[network + TRANSPORT + extension :][: max(payload_bytes, 0)], is_first)), 1),
        (int(is_first), 1),
    ]  # fmt: skip
    return info


def configuration(
    ports: list[int], is_float: bool = True, exceptions: dict[int, tuple[list[int], bool]] | None = None,
    age_limit: int = 0xFFFF_FFFF,
) -> int:  # fmt: skip
    """`config_t`."""
    mask = lambda some: sum(1 << port for port in some)  # noqa: E731
    rows = [(1, int(adds), job, mask(some)) for job, (some, adds) in (exceptions or {}).items()]
    rows += [(0, 0, 0, 0)] * (4 - len(rows))
    table = [pair for row in rows for pair in zip(row, (1, 1, 16, 16), strict=True)]
    return packed([(int(is_float), 1), (mask(ports), 16), *table, (age_limit, 32)])


@dataclass
class Port:
    """One Frame Analyzer's state."""

    waiting: deque[bytes] = field(default_factory=deque)
    asked: Info | None = None
    info: int = 0  # of the frame that was asked about last
    left: int = 0  # beats of it that are still to come
    is_early: bool = False  # it was taken early
    beats: deque[int] = field(default_factory=deque)  # that stream
    sum: bytes = b""
    notice: bytes = b""


class StageBench:
    """Drives `aggregation_stage`: `offer` frames, run `cycle`, read the results in `sums`, `verdicts`, `notices`."""

    def __init__(
        self, dut: Any, ports: int, jobs: int, places: dict[bytes, int], ready: Any = lambda port: True
    ) -> None:
        self.rng = chance()
        self.beats_left = lambda: self.rng.choice([0, self.rng.randrange(NEAR_BEATS), NEAR_BEATS])
        self.early = 0  # frames that were taken early
        self.dut, self.count, self.jobs, self.places, self.ready = dut, ports, jobs, places, ready
        self.ports = [Port() for _ in range(ports)]
        self.verdicts: list[tuple[int, str]] = []
        self.sums: list[tuple[int, bytes]] = []  # (to port, frame)
        self.forwarded: list[tuple[int, bytes]] = []
        self.notices: list[tuple[int, bytes]] = []
        self.lost = self.aged = self.cycles = 0
        self.found: deque[tuple[int, int]] = deque([(0, 0)] * 2)  # answers on their way through the address table
        self.beat_bits = len(dut.s_beat_i) // ports
        self.info_bits = len(dut.info_i) // ports

    async def begin(self) -> None:
        """Clock and reset; all ports fold. Waits until the Aggregation Status Buffer is clear."""
        config = configuration(list(range(self.count)))
        inputs = ("info_valid_i", "s_valid_i", "m_ready_i", "find_ready_i", "found_valid_i", "notice_ready_i")
        await start(self.dut, config_i=config, **dict.fromkeys(inputs, 0))
        await self.cycle(600 * self.jobs)

    def offer(self, port: int, frame: bytes) -> None:
        """A frame arrives at a port, after earlier ones."""
        self.ports[port].waiting.append(frame)

    @property
    def is_idle(self) -> bool:
        """Whether no frame is entering or partly out."""
        return not any(p.waiting or p.asked or p.beats or p.sum or p.notice for p in self.ports)

    async def settle(self) -> None:
        """Run until no sum is left: nothing has entered or left for QUIET_CYCLES."""
        quiet = 0
        while quiet < QUIET_CYCLES:
            await self.cycle()
            quiet = quiet + 1 if self.is_idle else 0

    def _matches(self, port: int, info: Info) -> bool:
        connections = number(self.dut.connections_o) >> port * self.jobs * CONNECTION_BITS
        wanted = 1 << 73 | int(info.is_v2) << 72 | info.queue_pair << 48 | info.to
        ours = [connections >> job * CONNECTION_BITS & (1 << CONNECTION_BITS) - 1 for job in range(self.jobs)]
        return wanted in ours

    def _begin(self, index: int, port: Port) -> None:
        frame = port.waiting.popleft()
        info = analyze(frame)
        if info.may_fold and info.opcode != FIRST:
            info.may_fold = 7 <= info.opcode <= 9 and self._matches(index, info)
        if info.may_fold:
            port.asked, port.is_early = info, False
            port.left = self.beats_left()
            if info.opcode == FIRST or len(frame) < BEAT * (HEADER_BEATS + port.left):
                port.left = 0
        else:
            self._forward(index, frame)

    def _forward(self, index: int, frame: bytes) -> None:
        self.verdicts.append((index, "forwarded"))
        self.forwarded.append((index, frame))

    def _beats(self, frame: bytes) -> Iterator[int]:
        for at in range(0, len(frame), BEAT):
            part = frame[at : at + BEAT]
            last = at + BEAT >= len(frame)
            yield packed(
                [(0, 1), (int(last), 1), (len(part) - 1 if last else 7, 3), (int.from_bytes(part, "little"), 64)]
            )

    async def cycle(self, cycles: int = 1) -> None:
        """Run a number of clock cycles."""
        for _ in range(cycles):
            await self._cycle()

    async def _cycle(self) -> None:
        dut = self.dut
        info_valid = is_near = is_last = s_valid = s_beat = m_ready = 0
        for index, port in enumerate(self.ports):
            if port.waiting and not port.asked and not port.beats:
                self._begin(index, port)
            if port.asked:
                port.info = packed(port.asked.fields)
                if port.left:
                    is_near |= int(not port.is_early) << index
                    is_last |= int(port.left <= 3) << index
                    port.info &= ~AT_THE_END
                    port.left -= self.rng.random() < 0.8
                else:
                    info_valid |= 1 << index
            # Of a frame that was taken early, only what has come.
            if len(port.beats) > port.left:
                s_valid |= 1 << index
                s_beat |= port.beats.popleft() << index * self.beat_bits
            m_ready |= int(self.ready(index)) << index
        dut.info_valid_i.value, dut.s_valid_i.value, dut.m_ready_i.value = info_valid, s_valid, m_ready
        dut.is_near_i.value, dut.is_last_i.value = is_near, is_last
        dut.notice_ready_i.value = m_ready
        self._offer_finds()
        # It stands until the next frame's.
        dut.info_i.value = sum(port.info << index * self.info_bits for index, port in enumerate(self.ports))
        if s_valid:
            dut.s_beat_i.value = s_beat
        await RisingEdge(dut.clk_i)
        self.cycles += 1
        self._find()
        self._read(m_ready)

    def _offer_finds(self) -> None:
        """The address table serves one port per cycle, and answers three cycles later."""
        dut = self.dut
        dut.find_ready_i.value = 1 << self.cycles % self.count
        dut.found_valid_i.value, dut.found_ports_i.value = self.found.popleft()

    def _find(self) -> None:
        port = (self.cycles - 1) % self.count
        if not number(self.dut.find_valid_o) >> port & 1:
            self.found.append((0, 0))
            return
        address = number(self.dut.find_address_o) >> 48 * port & (1 << 48) - 1
        place = self.places.get(address.to_bytes(6, "big"))
        self.found.append((1 << port, 0 if place is None else 1 << place))

    def _read(self, m_ready: int) -> None:
        dut = self.dut
        answered, taken = number(dut.route_valid_o), number(dut.m_valid_o) & m_ready
        self.lost += number(dut.sum_lost_o).bit_count()
        self.aged += int(dut.aged_o.value)
        self._take_early(number(dut.early_o))
        if answered:
            routes, verdicts = number(dut.route_o), number(dut.verdict_o)
            for index in range(self.count):
                if answered >> index & 1:
                    self._answer(index, routes >> 2 * index & 3, VERDICTS[verdicts >> 5 * index & 31])
        if taken:
            beats, to = number(dut.m_beat_o), number(dut.m_ports_o)
            for index, port in enumerate(self.ports):
                if taken >> index & 1:
                    whole, ended = self._gather(port.sum, beats >> index * self.beat_bits)
                    port.sum = b"" if ended else whole
                    if ended:
                        places = to >> index * self.count & (1 << self.count) - 1
                        self.sums.append((places.bit_length() - 1, whole))
        told = number(dut.notice_valid_o) & m_ready
        if told:
            beats = number(dut.notice_beat_o)
            for index, port in enumerate(self.ports):
                if told >> index & 1:
                    whole, ended = self._gather(port.notice, beats >> index * self.beat_bits)
                    port.notice = b"" if ended else whole
                    if ended:
                        self.notices.append((index, whole))

    def _take_early(self, taken: int) -> None:
        """Frames stream from now on: those of the ports in the mask `taken`."""
        for index, port in enumerate(self.ports):
            if taken >> index & 1:
                assert port.asked, f"port {index} took a frame that it was not offered"
                port.beats.extend(self._beats(port.asked.frame))
                port.is_early = True
                self.early += 1

    def _gather(self, before: bytes, beat: int) -> tuple[bytes, bool]:
        extra, last = beat >> 64 & 7, beat >> 67 & 1
        return before + (beat & (1 << 64) - 1).to_bytes(BEAT, "little")[: extra + 1], bool(last)

    def _answer(self, index: int, route: int, verdict: str) -> None:
        port = self.ports[index]
        assert port.asked, f"port {index} was answered and had not asked"
        frame, port.asked = port.asked.frame, None
        self.verdicts.append((index, verdict))
        if route == DROP:
            port.beats.clear()
        elif route == FOLD and not port.is_early:
            port.beats.extend(self._beats(frame))
        elif route == FORWARD:
            self.forwarded.append((index, frame))
