"""The record of a rank's collectives in a folder (setting NETFOLD_TRACE): written while the job runs, read by
`netfold why`.

One file a rank and group, in the Trace Event Format that Perfetto and chrome://tracing open: an array of one line a
collective, whose closing bracket may be missing, so that a killed process leaves a readable file. A collective is a
pair of asynchronous events, `b` when the engine got it and `e` when it ended. Times are microseconds since 1970.
Source: Trace Event Format, https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU.
"""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

SUFFIX = ".netfold.json"
LINES_MAX = 100_000  # of a file, about 25 MB; then it becomes the previous file, and a new one begins
FLUSH_S = 1.0


@dataclass(frozen=True)
class Collective:
    """One collective of a rank. Times in seconds since 1970; `error` is "" if it ended well."""

    number: int  # the same on every rank of the group
    name: str
    size_bytes: int
    start_s: float
    end_s: float
    error: str


@dataclass
class RankRecord:
    """The record of one rank. `counters` are its engine's at the end; empty if it was killed."""

    rank: int
    world: int
    group: str
    host: str
    collectives: list[Collective] = field(default_factory=list)
    counters: dict[str, Any] = field(default_factory=dict)


class Recorder:
    """Writes the record of one rank of one group. Any thread may call it. A file that cannot be written ends the
    record, not the job; `error` then says why."""

    def __init__(self, folder: str, group: str, rank: int, world: int) -> None:
        """Raises ValueError if the folder cannot be made or written."""
        self._lock = threading.Lock()
        self._open: dict[int, tuple[str, int, float]] = {}
        self._number = self._message = 0
        self._lines = 0
        self._flush_at = 0.0
        self._rank = rank
        self.error = ""
        name = re.sub(r"[^\w.-]", "_", group) or "group"
        self._path = Path(folder) / f"{name}-rank{rank}{SUFFIX}"
        about = {"rank": rank, "world": world, "group": group, "host": socket.gethostname()}
        title = {"name": f"Netfold rank {rank} of {world}, group {group}, {about['host']}"}
        self._head = [_meta("process_name", rank, title), _meta("netfold_group", rank, about)]
        try:
            Path(folder).mkdir(parents=True, exist_ok=True)
            self._file: TextIO | None = self._begin()
        except OSError as error:
            raise ValueError(
                f"netfold: NETFOLD_TRACE={folder!r} cannot be written ({error.strerror}): name a folder in which this "
                "user may write"
            ) from None

    def begin(self, name: str, size_bytes: int, is_message: bool = False) -> int:
        """The engine got a collective. Returns its number. Messages between two ranks have negative numbers: they do
        not count on the others."""
        with self._lock:
            if is_message:
                self._message -= 1
            else:
                self._number += 1
            number = self._message if is_message else self._number
            self._open[number] = (name, size_bytes, time.time())
            return number

    def end(self, number: int, error: str = "") -> None:
        """It ended."""
        now = time.time()
        with self._lock:
            started = self._open.pop(number, None)
            if started is not None:
                self._write(self._line(number, *started, now, error))

    def close(self, counters: dict[str, Any], error: str = "") -> None:
        """The group ended: write the collectives in flight with the error, and the engine's counters."""
        now = time.time()
        with self._lock:
            for number, started in self._open.items():
                self._write(self._line(number, *started, now, error or "the group was closed"))
            self._open = {}
            self._write(_meta("netfold_counters", self._rank, counters))
            if self._file is not None:
                self._file.close()
            self._file = None

    def _line(self, number: int, name: str, size_bytes: int, start_s: float, end_s: float, error: str) -> str:
        both = {"cat": "netfold", "name": name, "id": number, "pid": self._rank, "tid": 0}
        arguments: dict[str, Any] = {"bytes": size_bytes} | ({"error": error} if error else {})
        events = (
            both | {"ph": "b", "ts": round(start_s * 1e6, 1), "args": arguments},
            both | {"ph": "e", "ts": round(end_s * 1e6, 1)},
        )
        return ",".join(json.dumps(event, separators=(",", ":")) for event in events)

    def _begin(self) -> TextIO:
        file = self._path.open("w", encoding="utf-8")
        file.write("[\n" + "".join(f"{line},\n" for line in self._head))
        file.flush()
        return file

    def _write(self, line: str) -> None:
        if self._file is None:
            return
        try:
            if self._lines == LINES_MAX:
                self._file.close()
                self._path.replace(self._path.with_name(f"previous-{self._path.name}"))
                self._file, self._lines = self._begin(), 0
            self._file.write(line + ",\n")
            self._lines += 1
            if time.monotonic() >= self._flush_at:
                self._file.flush()
                self._flush_at = time.monotonic() + FLUSH_S
        except OSError as error:  # a full disk must not end the training
            self.error = f"the record {self._path} ends: {error.strerror}"
            self._file = None


def _meta(name: str, rank: int, arguments: dict[str, Any]) -> str:
    return json.dumps({"ph": "M", "name": name, "pid": rank, "args": arguments}, separators=(",", ":"), default=str)


def events_of(path: Path) -> list[dict[str, Any]]:
    """The events of a file that a rank wrote. A last line that was cut off is left out. Raises ValueError for another
    file."""
    events: list[dict[str, Any]] = []
    lines = path.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines[1:], 2):
        try:
            events += json.loads(f"[{line.removesuffix(',')}]")
        except ValueError:
            if number == len(lines):
                break
            raise ValueError(f"{path}:{number} is not a line of a record") from None
    return events


def read(path: Path) -> RankRecord:
    """The record in a file. Raises ValueError for another file."""
    record, started = None, {}
    for event in events_of(path):
        if event["name"] == "netfold_group":
            about = event["args"]
            record = RankRecord(about["rank"], about["world"], about["group"], about["host"])
        elif event["name"] == "netfold_counters" and record is not None:
            record.counters = event["args"]
        elif event["ph"] == "b":
            started[event["id"]] = event
        elif event["ph"] == "e" and record is not None:
            begun = started.pop(event["id"])
            given = begun["args"]
            times_s = begun["ts"] * 1e-6, event["ts"] * 1e-6
            record.collectives.append(
                Collective(event["id"], event["name"], given["bytes"], *times_s, given.get("error", ""))
            )
    if record is None:
        raise ValueError(f"{path} is not the record of a rank")
    return record


def read_folder(folder: Path) -> dict[str, list[RankRecord]]:
    """The records in a folder, by group, in rank order. Raises ValueError if the folder has no record."""
    groups: dict[str, dict[int, RankRecord]] = {}
    for path in sorted(folder.glob(f"*{SUFFIX}"), key=lambda path: not path.name.startswith("previous-")):
        record = read(path)
        ranks = groups.setdefault(record.group, {})
        if record.rank in ranks:
            record.collectives = ranks[record.rank].collectives + record.collectives
        ranks[record.rank] = record
    if not groups:
        raise ValueError(
            f"{folder} holds no record (*{SUFFIX}): run the job with NETFOLD_TRACE={folder}, and copy the files "
            "of all machines into one folder"
        )
    return {group: [ranks[rank] for rank in sorted(ranks)] for group, ranks in groups.items()}
