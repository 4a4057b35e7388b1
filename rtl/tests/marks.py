"""The marks that frame_marker gives to the beats of a frame, read from the whole frame."""

from __future__ import annotations

from ethernet import BEAT
from roce_frames import FIRST, IPV4, LAST, LAST_IMMEDIATE, MIDDLE, ROCE, UDP_PORT

TAGS = (0x8100, 0x88A8)
# mark_e
NONE, TAG, LATER, IP, OTHER, RUNT, OVERTAGGED, OURS = range(8)
GRH_BYTES, IP_BYTES, IP_UDP_BYTES = 40, 20, 28
NO_OPTIONS, UDP = 0x45, 17
FIRST_BYTES = 52  # the shortest Write First with an aggregation header, from the BTH on


def number(frame: bytes, at: int) -> int:
    """The number of two bytes there. Bytes behind the frame's end are zeros."""
    return int.from_bytes((frame + bytes(128))[at : at + 2], "big")


def is_udp(packet: bytes) -> bool:
    """Whether an IPv4 packet is UDP, without options, and no fragment."""
    return packet[0] == NO_OPTIONS and packet[9] == UDP and number(packet, 6) & 0x3FFF == 0


def is_roce_v2(packet: bytes) -> bool:
    """Whether such a packet is RoCE's: the right port and lengths."""
    total, to, length = (number(packet, at) for at in (2, 22, 24))
    return to == UDP_PORT and length == (total - IP_BYTES) & 0xFFFF


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
    if network == IP_UDP_BYTES and not is_roce_v2(packet):
        return [*marks, OTHER]
    if opcode in (MIDDLE, LAST, LAST_IMMEDIATE):
        return [*marks, LATER, NONE]
    if opcode != FIRST:
        return [*marks, OTHER]
    is_long = length > FIRST_BYTES or (length == FIRST_BYTES and not pad)
    is_ours = is_long and number(packet, network + 28) == 0x4E46 and packet[network + 30] >> 4 == 1
    at = (at + 30) // BEAT
    marks += [NONE] * (at - beat - len(marks))
    return [*marks, OURS if is_ours and len(frame) > (at + 1) * BEAT else OTHER]
