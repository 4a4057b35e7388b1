"""The marks that frame_marker gives to the beats of a frame, read from the whole frame."""

from __future__ import annotations

from ethernet import BEAT
from roce_frames import FIRST, LAST, LAST_IMMEDIATE, MIDDLE, ROCE

TAGS = (0x8100, 0x88A8)
# mark_e
NONE, TAG, LATER, OTHER, RUNT, OVERTAGGED, OURS = 0, 1, 2, 4, 5, 6, 7


def marks_of(frame: bytes) -> list[int]:
    """The mark of each beat, up to the one that decides about the frame. Bytes behind its end are zeros."""
    number = lambda at: int.from_bytes((frame + bytes(BEAT))[at : at + 2], "big")  # noqa: E731
    tag, marks = 0, [NONE]
    if number(12) in TAGS:
        if len(frame) <= 2 * BEAT:
            return [NONE, RUNT]
        tag, marks = 4, [NONE, TAG]
        if len(frame) < (22 if number(16) in TAGS else 18):
            return [*marks, RUNT]
        if number(16) in TAGS and number(20) in TAGS:
            return [*marks, OVERTAGGED]
    if number(12 + tag) != ROCE:
        return [*marks, OTHER][: -(-len(frame) // BEAT)]
    opcode = number(54 + tag) >> 8
    marks += [NONE] * ((54 + tag) // BEAT - len(marks))
    if opcode in (MIDDLE, LAST, LAST_IMMEDIATE):
        marks += [LATER, NONE]
    elif opcode == FIRST:
        length, pad = number(18 + tag), number(54 + tag) >> 4 & 3
        is_long = length > 52 or (length == 52 and not pad)
        is_ours = is_long and number(82 + tag) == 0x4E46 and number(84 + tag) >> 12 == 1
        at = (84 + tag) // BEAT
        marks += [NONE] * (at - len(marks)) + [OURS if is_ours and len(frame) > (at + 1) * BEAT else OTHER]
    else:
        marks.append(OTHER)
    return marks[: -(-len(frame) // BEAT)]
