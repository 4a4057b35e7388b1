"""GOAL text, the input of LogGOPSim and other simulators: operations of each rank and their dependencies."""

from __future__ import annotations

from collections.abc import Iterator

from netfold.timeline import SWITCH, Timeline


def goal(line: Timeline, element_bytes: int, fold_gbyte_s: float) -> Iterator[str]:
    """The lines of GOAL text. A switch is the rank after the last.

    element_bytes: bytes of an element on the wire. fold_gbyte_s: rate of folding, in gigabytes of one operand per
    second; a fold becomes a `calc` of its time in nanoseconds.
    """
    has_switch = any(SWITCH in (m.sender, m.receiver) for m in line.messages)
    yield f"num_ranks {line.world + has_switch}"
    for rank, steps in enumerate(line.steps):
        yield f"rank {rank} {{"
        yield from _rank(steps, line.world, element_bytes, fold_gbyte_s)
        yield "}"
    if has_switch:
        yield from _switch(line, element_bytes, fold_gbyte_s)


def _rank(
    steps: list[list[tuple[str, int, int, int]]], switch: int, element_bytes: int, fold_gbyte_s: float
) -> Iterator[str]:
    label = 0
    before: list[int] = []  # the last operations of the step before: all operations of this step require them
    for step in steps:
        ends: list[int] = []
        for action, peer, _, count in step:
            label += 1
            other, size_bytes = (switch if peer == SWITCH else peer), max(1, count * element_bytes)
            verb, word = ("send", "to") if action == "send" else ("recv", "from")
            yield f"l{label}: {verb} {size_bytes}b {word} {other} tag 0"
            yield from (f"l{label} requires l{each}" for each in before)
            if action == "fold":
                label += 1
                yield f"l{label}: calc {round(size_bytes / fold_gbyte_s)}"
                yield f"l{label} requires l{label - 1}"
            ends.append(label)
        before = ends


def _switch(line: Timeline, element_bytes: int, fold_gbyte_s: float) -> Iterator[str]:
    up = [m for m in line.messages if m.receiver == SWITCH]
    down = [m for m in line.messages if m.sender == SWITCH]
    yield f"rank {line.world} {{"
    for label, message in enumerate(up, 1):
        yield f"l{label}: recv {max(1, message.count * element_bytes)}b from {message.sender} tag 0"
    fold = len(up) + 1
    yield f"l{fold}: calc {round(sum(m.count for m in up) * element_bytes / fold_gbyte_s)}"
    yield from (f"l{fold} requires l{label}" for label in range(1, fold))
    for label, message in enumerate(down, fold + 1):
        yield f"l{label}: send {max(1, message.count * element_bytes)}b to {message.receiver} tag 0"
        yield f"l{label} requires l{fold}"
    yield "}"
