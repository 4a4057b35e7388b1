"""A step as a trace for Perfetto or chrome://tracing: a lane for computation, one for all-reduces, and one per
sender."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from netfold_lab.plan.step.timeline import Timeline

LANES = ("forward", "backward", "all-reduce", "update")
MESSAGES_MAX = 20000
MICROSECONDS = 1e6


def trace(line: Timeline, transfers: dict[str, Any] | None = None, offset_s: float = 0.0) -> dict[str, Any]:
    """The Trace Event Format. `transfers`: the simulator's transfers of one all-reduce that began at `offset_s`, with a
    lane for each sender."""
    events: list[dict[str, Any]] = [_name(0, 0, "process_name", "worker 0")]
    events += [_name(0, lane, "thread_name", name) for lane, name in enumerate(LANES)]
    for span in line.spans:
        events.append(
            {
                "name": span.name,
                "cat": span.lane,
                "ph": "X",
                "pid": 0,
                "tid": LANES.index(span.lane),
                "ts": span.start_s * MICROSECONDS,
                "dur": (span.end_s - span.start_s) * MICROSECONDS,
                "args": {"size_bytes": span.size_bytes} if span.size_bytes else {},
            }
        )
    if transfers is not None:
        events += _messages(transfers, offset_s)
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _messages(transfers: dict[str, Any], offset_s: float) -> Sequence[dict[str, Any]]:
    columns = ("sender", "receiver", "step", "size_bits", "is_folded", "start_s", "end_s")
    rows = zip(*(transfers[name].tolist() for name in columns), strict=True)
    found = [_name(1, 0, "process_name", "messages of the last all-reduce, by sender")]
    for _, (sender, receiver, step, bits, folded, start, end) in zip(range(MESSAGES_MAX), rows, strict=False):
        found.append(
            {
                "name": f"{sender} to {receiver}",
                "cat": "fold" if folded else "store",
                "ph": "X",
                "pid": 1,
                "tid": sender,
                "ts": (offset_s + start) * MICROSECONDS,
                "dur": (end - start) * MICROSECONDS,
                "args": {"step": step, "wire_bytes": bits / 8},
            }
        )
    return found


def _name(process: int, thread: int, kind: str, name: str) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": process, "tid": thread, "args": {"name": name}}
