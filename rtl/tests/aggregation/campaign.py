"""Workers of one or several jobs, with all faults of their frames, from a seed."""

from __future__ import annotations

import random
import struct
from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np

from netfold import _core
from roce_frames import (
    ACKNOWLEDGE,
    ETHERNET,
    FIRST,
    GIVES,
    GRH_BYTES,
    IP_UDP_BYTES,
    LAST_IMMEDIATE,
    ONE_WAY,
    OTHER_SHIFT,
    RETH,
    TRANSPORT,
    Connection,
    aggregation_header,
    icrc,
    mac,
    network_bytes,
    with_ipv4_checksum,
)

MESSAGES_BACK = 4
WORKERS_SHIFT = 3  # in the flags
# Values that are refused there, or that other ranks do not say: magic, formats, flags, the other rank of a one-way
# message, another number of workers (v2), invalid shapes, lengths.
HEADER_EDITS = [
    (0, b"xx"),
    (2, b"\x16"),
    (3, b"\x04"),  # one way: to rank 0, if it is not already
    (8, b"\x20"),  # ... to a rank that no switch has
    (8, b"\x07"),  # ... that this job does not have
    (8, b"\x82"),
    (3, b"\x08"),
    (3, b"\xf9"),
    (3, b"\x02"),
    (10, b"\x10"),
    (16, b"\x01"),
    (19, b"\x03"),
]
FP32, FP16, BF16, INT32, BFP = range(1, 6)
PSN_MASK = 0xFFFFFF


def places(ports: int) -> dict[bytes, int]:
    """The port of each worker's address."""
    return {bytes.fromhex(mac(rank).replace(":", "")): rank for rank in range(ports)}


def software(ports: int, **options: float) -> Any:
    """The software's switch, which knows every worker's port."""
    switch = _core.FramePipeline(ports, **options)
    for rank in range(ports):
        to_itself = Connection(mac(rank), mac(rank))
        assert switch.offer(rank, to_itself.frame(ACKNOWLEDGE, 0, b"\x1f\x00\x00\x00")) == []
    return switch


def sealed(frame: bytes) -> bytes:
    """An untagged packet with the right ICRC, and the right checksum of IPv4."""
    packet = frame[ETHERNET:-4]
    if network_bytes(packet) == IP_UDP_BYTES:
        packet = with_ipv4_checksum(packet)
    return frame[:ETHERNET] + packet + icrc(packet)


def tagged(frame: bytes) -> bytes:
    """The frame with a VLAN tag."""
    return frame[:12] + b"\x81\x00\x20\x05" + frame[12:]


def changed(frame: bytes, at: int, value: bytes) -> bytes:
    """The frame with other bytes at a place, and checks that fit them."""
    return sealed(frame[:at] + value + frame[at + len(value) :])


@dataclass(frozen=True)
class Way:
    """Of a one-way message: to its owner, or from its giver."""

    other: int
    gives: bool

    def rank_field(self, rank: int) -> int:
        """The `rank` of the aggregation header."""
        return self.gives * GIVES | self.other << OTHER_SHIFT | rank


class Worker:
    """One rank's connection and messages."""

    def __init__(self, job: Job, rank: int) -> None:
        self.job, self.rank, self.port = job, rank, job.ports[rank]
        self.sent: deque[list[bytes]] = deque(maxlen=MESSAGES_BACK)  # frames by message
        self.begin()

    def begin(self, connection: Connection | None = None) -> None:
        """Start a connection with its own numbers, sometimes near the wrap of sequence numbers."""
        rng = self.job.rng
        self.psn = rng.choice([rng.randrange(1 << 24), PSN_MASK - rng.randrange(6)])
        to = self.job.ports[(self.rank + 1) % len(self.job.ports)]
        new = Connection(mac(self.port), mac(to), rng.randrange(1 << 24), self.port + 1, to + 1, self.job.version)
        self.connection = connection or new
        self.has_tag = rng.random() < 0.3

    def write(
        self, message: int, words: int, fmt: int, flags: int, numbers: bytes, way: Way | None = None
    ) -> list[bytes]:
        """The frames of a message."""
        job, rank = self.job, self.rank
        if way:
            flags, rank = flags | ONE_WAY, way.rank_field(rank)
        if job.version == 2 and message % 3 < 2:  # with the number of workers
            flags |= len(job.ports) << WORKERS_SHIFT
        shape = {"job": job.number, "epoch": job.epoch, "fmt": fmt, "flags": flags}
        header = aggregation_header(rank, message, 4 * words, **shape)
        if fmt == BFP:
            header = header[:10] + bytes([16, 7]) + header[12:]
        immediate = job.rng.choice([None, message])
        is_short = way is not None and way.gives and way.other != self.rank
        frames = self.connection.message(self.psn, header, numbers, immediate, is_short)
        self.psn = (self.psn + len(frames)) & PSN_MASK
        return [tagged(frame) for frame in frames] if self.has_tag else frames


class Job:
    """The frames of workers, as a switch receives them at their ports (by rank): `next` returns (port, frame)."""

    def __init__(
        self,
        rng: random.Random,
        ports: list[int],
        number: int = 1,
        formats: tuple[int, ...] = (0, FP32, INT32),
        version: int = 1,
    ) -> None:
        self.rng, self.number, self.epoch, self.formats, self.version = rng, number, 1, formats, version
        self.transport_at = ETHERNET + (GRH_BYTES if version == 1 else IP_UDP_BYTES)
        self.first_at = self.transport_at + TRANSPORT + RETH  # the aggregation header
        self.ports_to_come = ports  # of the next epoch
        self.formats_to_come = list(formats)
        self.values = np.random.default_rng(rng.randrange(1 << 30))
        self.start()

    def begin_epoch(self) -> None:
        """Begin the next epoch."""
        self.epoch += 1
        self.start()

    def start(self) -> None:
        """An epoch."""
        self.ports = self.ports_to_come
        self.workers = [Worker(self, rank) for rank in range(len(self.ports))]
        self.message = 0
        self.due: list[tuple[int, bytes]] = []

    def numbers(self, fmt: int, words: int) -> bytes:
        """Gradients of one worker: small numbers, any bits, or well-formed blocks."""
        if fmt == BFP:
            data = bytearray(self.values.bytes(4 * words))
            for first, room in self.rooms(words):
                for block in range(first, first + room // 17 * 17, 17):
                    data[block] = self.rng.choice([0, 100, 120, 127, 130, 254, 255])
                data[first + room // 17 * 17 : first + room] = bytes(room % 17)
            return bytes(data)
        if fmt == INT32:
            return self.values.bytes(4 * words)
        if fmt in (FP16, BF16):  # any bits except infinities
            halves = self.values.integers(0, 1 << 16, 2 * words, np.uint16)
            is_large = halves >> 10 & 31 == 31 if fmt == FP16 else halves >> 7 & 0xFF > 250
            return np.where(is_large, np.uint16(0), halves).tobytes()
        if self.rng.random() < 0.5:  # any bits except infinities: NaNs may differ
            bits = self.values.integers(0, 1 << 32, words, np.uint32)
            return np.where(bits >> 23 & 0xFF > 250, np.uint32(0), bits).astype(np.uint32).tobytes()
        return self.values.standard_normal(words, np.float32).tobytes()

    def rooms(self, words: int) -> list[tuple[int, int]]:
        """(first byte, bytes) of the gradients of each packet."""
        ends = [1004, *range(2028, 4 * words, 1024), 4 * words]
        starts = [0, *ends[:-1]]
        return [(start, end - start) for start, end in zip(starts, ends, strict=True) if end > start]

    def write(self) -> None:
        """All workers write the next message."""
        rng = self.rng
        if not self.formats_to_come:  # so that each format occurs soon
            self.formats_to_come = rng.sample(self.formats, len(self.formats))
        words, fmt, flags = rng.choice([252, 300, 507, 508, 600, 1100]), self.formats_to_come.pop(), rng.randrange(2)
        way = rng.choice([None, Way(rng.randrange(len(self.workers)), rng.random() < 0.5)])
        self.due = []
        for worker in self.workers:
            # Copies are of any bits, except in blocks.
            numbers = self.numbers(INT32 if way and way.gives and fmt != BFP else fmt, words)
            frames = worker.write(self.message, words, fmt, flags, numbers, way)
            worker.sent.append(frames)
            self.due += [(worker.port, frame) for frame in frames]
        self.message += 1
        self.due.sort(key=lambda _: rng.random())
        self.due.sort(key=lambda one: untagged(one[1])[self.transport_at] != FIRST)
        if fmt == BFP:  # before the right frame
            pairs = [[(port, self.with_bad_block(frame)), (port, frame)] for port, frame in self.due]
            self.due = [one for pair in pairs for one in pair[rng.random() < 0.3 :]]
        if rng.random() < 0.4:  # a First that is late or lost
            self.due.append(self.due.pop(0))

    def restart(self, worker: Worker, connection: Connection | None = None) -> None:
        """Restart a connection with one of its last messages: the same header, other numbers."""
        back = self.rng.randrange(1, max(len(worker.sent), 1) + 1)
        olds = list(worker.sent)[-back:]
        worker.begin(connection)
        for index, frames in enumerate(olds):
            bodies = [untagged(frame)[self.transport_at + TRANSPORT : -4] for frame in frames]
            opcodes = [untagged(frame)[self.transport_at] for frame in frames]
            psns = [(worker.psn + i) & PSN_MASK for i in range(len(frames))]
            new = [worker.connection.frame(*one) for one in zip(opcodes, psns, bodies, strict=True)]
            worker.psn = (worker.psn + len(new)) & PSN_MASK
            worker.sent[len(worker.sent) - back + index] = [tagged(f) for f in new] if worker.has_tag else new
            self.due += [(worker.port, frame) for frame in worker.sent[len(worker.sent) - back + index]]

    def elements_at(self, plain: bytes) -> int:
        """Where the gradients of an untagged frame begin."""
        before = {FIRST: RETH + 20, LAST_IMMEDIATE: 4}.get(plain[self.transport_at], 0)
        return self.transport_at + TRANSPORT + before

    def renumbered(self, plain: bytes, psn: int) -> bytes:
        """The frame with another sequence number. It may fall into a message of another format, so it has numbers that
        no format takes for NaN, which may differ."""
        at = self.elements_at(plain)
        numbers = bytes(self.rng.randrange(8, 64) for _ in plain[at:-4])
        return changed(plain[:at] + numbers + plain[-4:], self.transport_at + 9, psn.to_bytes(3, "big"))

    def with_bad_block(self, frame: bytes, exponents: range = range(1, 7)) -> bytes:
        """The frame with one of these exponents, if it has blocks: by default, one that no encoder writes."""
        plain = untagged(frame)
        elements_at = self.elements_at(plain)
        blocks = (len(plain) - 4 - elements_at) // 17
        if not blocks:
            return plain
        return changed(plain, elements_at + 17 * self.rng.randrange(blocks), bytes([self.rng.choice(exponents)]))

    def damaged(self, frame: bytes) -> bytes:
        """The frame with one error."""
        rng, plain = self.rng, untagged(frame)
        transport_at, first_at = self.transport_at, self.first_at
        is_first = plain[transport_at] == FIRST
        if rng.random() < 0.2:  # with a wrong ICRC
            at = rng.randrange(transport_at + 8, len(plain))
            return plain[:at] + bytes([plain[at] ^ 1 << rng.randrange(8)]) + plain[at + 1 :]
        if rng.random() < 0.1:
            cut = plain[:-8] + plain[-4:]
            return self.with_length(cut, len(cut) - transport_at)
        if is_first and rng.random() < 0.1:  # a length that differs from other ranks'
            (length,) = struct.unpack("!I", plain[first_at + 16 : first_at + 20])
            longer = changed(plain, first_at + 16, struct.pack("!I", length + 4))
            return changed(longer, first_at - 4, struct.pack("!I", length + 24))
        if rng.random() < (0.15 if self.version == 1 else 0.3):
            return self.with_network_fault(plain)
        psn = int.from_bytes(plain[transport_at + 9 : transport_at + 12], "big")
        far = (psn + rng.choice([1, 3, 130, 600, -1, -3, -130])) & PSN_MASK
        edits = [
            (11, b"\x77"),  # from another address
            (ETHERNET + rng.choice([20, 39] if self.version == 1 else [12, 15, 16, 19]), b"\x99"),  # of the GIDs
            (transport_at + 5, b"\xee\xee\xee"),  # on another connection
            (transport_at + 9, b""),  # another sequence number
        ]
        if rng.random() < 0.2:
            return self.with_bad_block(plain, range(8))  # the first and the last are right
        if is_first:
            edits = [
                *rng.sample(edits, 2),
                *((first_at + at, value) for at, value in HEADER_EDITS),
                (first_at - 4, b"\0\0\x77\x77"),
                (first_at + 6, struct.pack("!H", (self.epoch - 1) & 0xFFFF)),
                (first_at + 8, struct.pack("!H", rng.choice([0, 1, 2, 3, 300]))),
                (first_at + 12, struct.pack("!I", max(self.message + rng.choice([-7, 1, 3]), 0))),
            ]
        at, value = rng.choice(edits)
        return changed(plain, at, value) if value else self.renumbered(plain, far)

    def with_length(self, frame: bytes, length: int) -> bytes:
        """The frame whose network header says another length of what is behind it."""
        if self.version == 1:
            return changed(frame, ETHERNET + 4, struct.pack("!H", length))
        udp = frame[: ETHERNET + 24] + struct.pack("!H", length + 8) + frame[ETHERNET + 26 :]
        return changed(udp, ETHERNET + 2, struct.pack("!H", length + IP_UDP_BYTES))

    def with_network_fault(self, frame: bytes) -> bytes:
        """The frame that says that it is shorter, or of v1 also longer. (The software's switch forwards an IPv4 packet
        that says it is longer.) Or one thing in the headers of IPv4 and UDP for which it is only forwarded, or which
        routers may change."""
        rng = self.rng
        if self.version == 1:
            return self.with_length(frame, rng.choice([20, len(frame)]))
        if rng.random() < 0.3:
            return self.with_length(frame, rng.choice([12, 16, 18]))
        fragment, protocol, port = (ETHERNET + 6, b"\x20"), (ETHERNET + 9, b"\x06"), (ETHERNET + 22, b"\x12\xb8")
        changes = [(ETHERNET + 1, b"\x03"), (ETHERNET + 8, b"\x09"), (ETHERNET + 20, b"\xd1\x17")]
        return changed(frame, *rng.choice([fragment, protocol, port, *changes]))

    def next(self) -> tuple[int, bytes]:
        """The next frame that a port receives."""
        rng = self.rng
        if self.message and rng.random() < 0.01:
            self.begin_epoch()
        if (
            not self.due and self.message and rng.random() < 0.6
        ):  # a frame that was lost or too early is requested again
            self.due = [(worker.port, frame) for worker in self.workers for some in worker.sent for frame in some]
        while not self.due:
            self.write()
        if self.message > 1 and rng.random() < 0.01:
            self.restart(rng.choice(self.workers))
        chance = rng.random()
        known = [(worker.port, frame) for worker in self.workers for frames in worker.sent for frame in frames]
        if chance < 0.1:
            return rng.choice(known)  # a repetition, or too early
        if chance < 0.25:
            port, frame = rng.choice(rng.choice([known, self.due]))
            return port, self.damaged(frame)
        if chance < 0.33:
            self.due.append(self.due.pop(0))  # overtaken
        if chance < 0.36 and self.due:  # lost, and requested later, or never
            lost = self.due.pop(0)
            self.due += [lost] * (rng.random() < 0.5)
        return self.due.pop(0) if self.due else rng.choice(known)


class Jobs:
    """Several jobs at once, whose workers sometimes continue on a connection of another job."""

    def __init__(self, rng: random.Random, jobs: list[Job]) -> None:
        self.rng, self.jobs = rng, jobs

    def next(self) -> tuple[int, bytes]:
        """The next frame that a port receives."""
        if self.rng.random() < 0.01:
            self.take_over()
        return self.rng.choice(self.jobs).next()

    def take_over(self) -> None:
        """A connection goes from one job's worker to another's at the same port, if they have one."""
        job, other = self.rng.sample(self.jobs, 2)
        pairs = [(mine, its) for mine in job.workers for its in other.workers if mine.port == its.port]
        if pairs:
            mine, its = self.rng.choice(pairs)
            job.restart(mine, its.connection)


def untagged(frame: bytes) -> bytes:
    """The frame without its VLAN tag."""
    return frame[:12] + frame[16:] if frame[12:14] == b"\x81\x00" else frame
