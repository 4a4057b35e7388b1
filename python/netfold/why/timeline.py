"""One timeline of a job for Perfetto: the records of all ranks, and beside them the profiles that torch wrote.

torch's profiles (Kineto) count microseconds from `baseTimeNanoseconds`; records count from 1970. Each rank is a process
of the timeline, and a profile follows its rank.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from netfold.collective_record import SUFFIX, events_of

PROFILES = "*.pt.trace.json"  # what torch.profiler.tensorboard_trace_handler writes
PROFILE_IDS = 1000  # of the first profile's processes: they must differ from the ranks'


def write(folder: Path, to: Path) -> int:
    """Write the timeline; returns the number of its events. Raises ValueError for a file that cannot be read, and
    OSError if `to` cannot be written."""
    events: list[dict[str, Any]] = []
    groups: dict[str, int] = {}
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        of_file = events_of(path)
        group = next((e["args"]["group"] for e in of_file if e["name"] == "netfold_group"), "")
        track = groups.setdefault(group, len(groups))
        # Ids are a group's own; a rank in two groups has two tracks.
        events += [event | {"tid": track, "id": f"{group}/{event['pid']}/{event.get('id')}"} for event in of_file]
    for number, path in enumerate(sorted(folder.glob(PROFILES))):
        events += _of_profile(path, PROFILE_IDS * (number + 1))
    to.write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}), encoding="utf-8")
    return len(events)


def _of_profile(path: Path, first_id: int) -> list[dict[str, Any]]:
    try:
        profile = json.loads(path.read_text(encoding="utf-8"))
        listed = profile["traceEvents"]
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"{path} is not a profile of torch: move it out of the folder") from None
    base_us = profile.get("baseTimeNanoseconds", 0) / 1000
    rank = profile.get("distributedInfo", {}).get("rank")
    title = f"torch, rank {rank}" if rank is not None else f"torch, {re.sub(r'[.]pt[.]trace[.]json$', '', path.name)}"
    numbers: dict[Any, int] = {}

    def process(given: Any) -> int:
        return numbers.setdefault(given, first_id + len(numbers))

    events = []
    for event in listed:
        moved = event | {"pid": process(event.get("pid"))}
        if "ts" in event and event.get("ph") != "M":
            moved["ts"] = event["ts"] + base_us
        if event.get("ph") == "M" and event.get("name") == "process_name":
            moved["args"] = {"name": f"{title}: {event['args'].get('name', '')}"}
        events.append(moved)
    return events
