"""The marks that frame_marker gives to the beats of a frame, read from the whole frame; and headers that have them."""

from __future__ import annotations

import random

from ethernet import BEAT
from roce_frames import (
    ACKNOWLEDGE,
    FIRST,
    GRH_BYTES,
    IP_UDP_BYTES,
    IPV4,
    LAST,
    LAST_IMMEDIATE,
    MIDDLE,
    ONLY,
    ROCE,
    UDP_PORT,
)

TAGS = (0x8100, 0x88A8)
# mark_e
NONE, TAG, LATER, IP, OTHER, RUNT, OVERTAGGED, OURS = range(8)
IP_BYTES = 20
NO_OPTIONS, UDP = 0x45, 17
FIRST_BYTES = 52  # the shortest Write First with an aggregation header, from the BTH on


def number(frame: bytes, at: int) -> int:
    """The number of two bytes there. Bytes behind the frame's end are zeros."""
    return int.from_bytes((frame + bytes(128))[at : at + 2], "big")


def types_of(data: int) -> int:
    """A beat's types_t: is its type that of a tag, of IPv4, of RoCE v1, in bytes 4 and 5 or in 0 and 1?"""
    beat = data.to_bytes(BEAT, "little")
    bits = 0
    for known in (TAGS, (IPV4,), (ROCE,)):
        for at in (4, 0):
            bits = bits << 1 | (number(beat, at) in known)
    return bits


def is_udp(packet: bytes) -> bool:
    """Whether an IPv4 packet is UDP. Of one with options, this reads the same place."""
    return packet[9] == UDP


def is_roce_v2(packet: bytes) -> bool:
    """Whether such a packet is RoCE's: no options, no fragment, the right port and lengths."""
    total, to, length = (number(packet, at) for at in (2, 22, 24))
    is_whole = packet[0] == NO_OPTIONS and number(packet, 6) & 0x3FFF == 0
    return is_whole and to == UDP_PORT and length == (total - IP_BYTES) & 0xFFFF


def marks_of(frame: bytes) -> list[int]:
    """The mark of each beat, up to the one that decides about the frame."""
    tag, marks = 0, [NONE]
    if number(frame, 12) in TAGS:
        if len(frame) <= 2 * BEAT:
            return [NONE, RUNT]
        tag, marks = 4, [NONE, TAG]
        if len(frame) < (22 if number(frame, 16) in TAGS else 18):
            return [*marks, RUNT]
        if number(frame, 16) in TAGS and number(frame, 20) in TAGS:
            return [*marks, OVERTAGGED]
    return [*marks, *_behind_tag(frame, tag, len(marks))][: -(-len(frame) // BEAT)]


def _behind_tag(frame: bytes, tag: int, beat: int) -> list[int]:
    """Those from `beat` on, where the type is."""
    type_, packet = number(frame, 12 + tag), frame[14 + tag :] + bytes(128)
    if type_ == ROCE:
        marks, network, length = [NONE], GRH_BYTES, number(packet, 4)
    elif type_ == IPV4:
        marks, network, length = [IP], IP_UDP_BYTES, number(packet, 2) - IP_UDP_BYTES
        if not is_udp(packet):
            return [*marks, OTHER]
    else:
        return [OTHER]
    at = 14 + tag + network  # the BTH
    marks += [NONE] * (at // BEAT - beat - 1)
    opcode, pad = packet[network], packet[network + 1] >> 4 & 3
    if opcode not in (FIRST, MIDDLE, LAST, LAST_IMMEDIATE):
        return [*marks, OTHER]
    is_later = opcode != FIRST
    marks.append(LATER if is_later else NONE)
    if network == IP_UDP_BYTES and not is_roce_v2(packet):
        return [*marks, OTHER]
    if is_later:
        return [*marks, NONE]
    is_long = length > FIRST_BYTES or (length == FIRST_BYTES and not pad)
    is_ours = is_long and number(packet, network + 28) == 0x4E46 and packet[network + 30] >> 4 == 1
    at = (at + 30) // BEAT + 1
    marks += [NONE] * (at - beat - len(marks))
    return [*marks, OURS if is_ours and len(frame) > (at + 1) * BEAT else OTHER]


def headers_of(rng: random.Random) -> bytes:
    """Bytes that may follow the addresses: tags, an EtherType, and RoCE's headers with all that is marked."""
    types = [rng.choice(TAGS) for _ in range(rng.choice([0, 0, 1, 1, 2, 3]))]
    types.append(rng.choice([*[ROCE] * 4, *[IPV4] * 4, 0x0008, 0x1589]))
    ethernet = rng.randbytes(2).join(one.to_bytes(2, "big") for one in types)
    opcode, pad = rng.choice([FIRST] * 6 + [MIDDLE, LAST, LAST_IMMEDIATE, ONLY, ACKNOWLEDGE, 0x46]), rng.randrange(4)
    length = rng.choice([51, 52, 52, 53, 300])
    network = rng.randbytes(4) + length.to_bytes(2, "big") + rng.randbytes(34)
    if types[-1] == IPV4 and rng.random() < 0.9:
        network = ip_headers_of(rng, length)
    transport = bytes([opcode, pad << 4 | rng.choice([0x00, 0x40, 0xCF])]) + rng.randbytes(10 + 16)
    aggregation = rng.choice([b"NF\x10", b"NF\x1f", b"NF\x10", b"NF\x20", b"NG\x10", b"FN\x10"])
    return ethernet + network + transport + aggregation


def ip_headers_of(rng: random.Random, length: int) -> bytes:
    """IPv4 and UDP before so many bytes, with all that must be right for RoCE, and sometimes one thing that is not."""
    wrong = rng.choice(["nothing"] * 8 + ["version", "fragment", "protocol", "port", "length"])
    first = rng.choice([0x46, 0x55, 0x44]) if wrong == "version" else 0x45
    fragment = 1 << rng.randrange(14) if wrong == "fragment" else 0
    protocol = rng.choice([6, 16, 25]) if wrong == "protocol" else 17
    header = bytes([first, rng.randrange(256)]) + (28 + length).to_bytes(2, "big") + rng.randbytes(2)
    header += (rng.randrange(4) << 14 | fragment).to_bytes(2, "big") + bytes([rng.randrange(256), protocol])
    port = UDP_PORT ^ (1 << rng.randrange(16) if wrong == "port" else 0)
    size = 8 + length + (rng.choice([-1, 1, 256]) if wrong == "length" else 0)
    udp = rng.randbytes(2) + port.to_bytes(2, "big") + size.to_bytes(2, "big") + rng.randbytes(2)
    return header + rng.randbytes(2 + 8) + udp
