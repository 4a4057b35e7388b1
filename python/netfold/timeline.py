"""All ranks' schedules together, with the earliest time at which each step can run."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

Transfer = tuple[str, int, int, int]
SWITCH = -1


@dataclass(frozen=True)
class Message:
    """One transfer, seen from both ends. Times are in steps; offset and count are in elements."""

    sender: int
    receiver: int
    action: str
    offset: int
    count: int
    start: int
    end: int


@dataclass(frozen=True)
class Timeline:
    """Every rank's steps, and the messages between them."""

    world: int
    steps: list[list[list[Transfer]]]
    messages: list[Message]
    length: int


def timeline(algorithm: str, world: int, count: int, **options: Any) -> Timeline:
    """The schedule of all `world` ranks for `count` elements. Each step is as early as its partners allow.

    Raises:
        ValueError: the algorithm is unknown, or does not support these ranks or this collective.
    """
    from netfold import _core

    steps = [_core.schedule(algorithm, world, rank, count, **options) for rank in range(world)]
    starts: list[list[int]] = [[0] for _ in range(world)]
    sent: dict[tuple[int, int], list[tuple[int, Transfer]]] = defaultdict(list)
    taken: dict[tuple[int, int], int] = defaultdict(int)
    messages: list[Message] = []
    at = [0] * world
    has_sent = [False] * world
    moved = True
    while moved:
        moved = False
        for rank in range(world):
            if at[rank] == len(steps[rank]):
                continue
            step, start = steps[rank][at[rank]], starts[rank][-1]
            if not has_sent[rank]:
                has_sent[rank] = moved = True
                _send(rank, step, start, sent, messages)
            end = _receive(rank, step, start, sent, taken, messages)
            if end is None:
                continue
            starts[rank].append(end)
            at[rank] += 1
            has_sent[rank] = False
            moved = True
    assert all(at[rank] == len(steps[rank]) for rank in range(world)), "a schedule never ends"
    return Timeline(world, steps, messages, max((m.end for m in messages), default=0))


def _send(
    rank: int,
    step: list[Transfer],
    start: int,
    sent: dict[tuple[int, int], list[tuple[int, Transfer]]],
    messages: list[Message],
) -> None:
    for transfer in step:
        action, peer, offset, count = transfer
        if action != "send":
            continue
        if peer == SWITCH:
            messages.append(Message(rank, SWITCH, "send", offset, count, start, start + 1))
        else:
            sent[rank, peer].append((start, transfer))


def _receive(
    rank: int,
    step: list[Transfer],
    start: int,
    sent: dict[tuple[int, int], list[tuple[int, Transfer]]],
    taken: dict[tuple[int, int], int],
    messages: list[Message],
) -> int | None:
    """The time at which the step ends; None until all of its messages are sent."""
    receives = [transfer for transfer in step if transfer[0] != "send"]
    if any(peer != SWITCH and len(sent[peer, rank]) <= taken[peer, rank] for _, peer, _, _ in receives):
        return None
    end = start + 1
    for action, peer, offset, count in receives:
        if peer == SWITCH:
            messages.append(Message(SWITCH, rank, action, offset, count, start + 1, start + 2))
            end = max(end, start + 2)
            continue
        began, _ = sent[peer, rank][taken[peer, rank]]
        taken[peer, rank] += 1
        begin = max(start, began)
        messages.append(Message(peer, rank, action, offset, count, begin, begin + 1))
        end = max(end, begin + 1)
    return end
