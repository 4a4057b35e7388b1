"""Measured points (algorithm, ranks, size), and the file that keeps them."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import statistics
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import netfold
from netfold.machine import Machine, this_machine

LINKS = ("shm", "tcp")
VERSION = 1  # of the file; other versions are rejected
SIZE_MAX = 1 << 40
WORLD_MAX = 64  # creating a group counts the schedules of every world: that must not take seconds
COUNT_MAX = 1 << 16  # of cores, of repetitions


class TableError(ValueError):
    """A file does not hold a table; the message names the file and the fault."""


@dataclass(frozen=True)
class Point:
    """All-reduces of `size_bytes` on `world` ranks by one algorithm: the seconds of each repetition."""

    algorithm: str
    world: int
    size_bytes: int
    time_s: tuple[float, ...]

    @property
    def key(self) -> tuple[str, int, int]:
        """The key of the point: algorithm, ranks and size."""
        return self.algorithm, self.world, self.size_bytes

    @cached_property
    def time_s_median(self) -> float:
        """The median repetition in seconds."""
        return statistics.median(self.time_s)


@dataclass(frozen=True)
class Conditions:
    """The conditions that all points of a table share. `link`: shm or tcp; `format`: the wire format."""

    machine: Machine
    netfold: str
    link: str
    format: str = "fp32"
    repeat: int = 5


def conditions_here(link: str, wire: str, repeat: int = 5) -> Conditions:
    """The conditions of a table that this netfold measures on this machine."""
    return Conditions(this_machine(), netfold.__version__, link, wire, repeat)


@dataclass(frozen=True)
class Table:
    """Points measured under the same conditions, the last of them on `date` (YYYY-MM-DD)."""

    conditions: Conditions
    date: str
    points: tuple[Point, ...] = field(default=())

    @cached_property
    def by_key(self) -> dict[tuple[str, int, int], Point]:
        """Each point by its key."""
        return {point.key: point for point in self.points}

    @property
    def algorithms(self) -> list[str]:
        """The algorithms that have a point."""
        return sorted({point.algorithm for point in self.points})

    @property
    def worlds(self) -> list[int]:
        """The numbers of ranks that have a point."""
        return sorted({point.world for point in self.points})

    @property
    def sizes(self) -> list[int]:
        """The sizes that have a point, in bytes."""
        return sorted({point.size_bytes for point in self.points})

    def with_points(self, points: Iterable[Point], date: str) -> Table:
        """This table with more points; a new point replaces an old one with the same key."""
        merged = {**self.by_key, **{point.key: point for point in points}}
        return Table(self.conditions, date, tuple(merged[key] for key in sorted(merged)))

    def without(self, points: Iterable[Point]) -> Table:
        """This table without these points."""
        gone = {point.key for point in points}
        return replace(self, points=tuple(point for point in self.points if point.key not in gone))

    @property
    def digest(self) -> str:
        """Eight digits that identify the table."""
        return hashlib.sha256(_text(self).encode()).hexdigest()[:8]


def directory() -> Path:
    """The folder of the tables: `netfold/tuning` in the user's cache folder (XDG base directories)."""
    chosen = os.environ.get("XDG_CACHE_HOME", "")
    cache = Path(chosen) if Path(chosen).is_absolute() else Path.home() / ".cache"
    return cache / "netfold" / "tuning"


def path_of(conditions: Conditions) -> Path:
    """The file of this machine's table. Machines with the same processor and number of cores have the same file
    name."""
    slug = re.sub(r"[^a-z0-9]+", "-", conditions.machine.cpu.lower()).strip("-")[:80] or "cpu"
    name = f"{slug}-{conditions.machine.cores}-cores.{conditions.link}.{conditions.format}.json"
    return directory() / name


def write(table: Table, path: Path) -> None:
    """Write the whole file or nothing: the old file stays until the new one is on the disk. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        with temporary.open("w") as file:
            file.write(_text(table))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def read(path: Path) -> Table:
    """The table of a file.

    Raises:
        OSError: the file cannot be read.
        TableError: the file does not hold a table of this version.
    """
    try:
        return _table(json.loads(path.read_text()))
    except (ValueError, RecursionError) as error:  # not JSON, not UTF-8, or not a table
        raise TableError(f"{path} is not a tuning table of this netfold: {error}") from None


def _text(table: Table) -> str:
    points = [
        json.dumps(
            {
                "algorithm": point.algorithm,
                "workers": point.world,
                "size_bytes": point.size_bytes,
                "time_s": point.time_s,
            }
        )
        for point in table.points
    ]
    head = json.dumps(
        {"netfold_tuning": VERSION, "date": table.date, "conditions": asdict(table.conditions)}, sort_keys=True
    )
    return f'{head[:-1]}, "points": [\n' + ",\n".join(points) + "\n]}\n"


def _table(read: Any) -> Table:
    """Check every value that was read. No other code checks them."""
    if _member(read, "netfold_tuning", int) != VERSION:
        raise ValueError(f"its version is {read['netfold_tuning']}, not {VERSION}")
    said = _member(read, "conditions", dict)
    machine = _member(said, "machine", dict)
    conditions = Conditions(
        Machine(_member(machine, "cpu", str), _number(machine, "cores", COUNT_MAX)),
        **{name: _member(said, name, str) for name in ("netfold", "link", "format")},
        repeat=_number(said, "repeat", COUNT_MAX),
    )
    date = _member(read, "date", str)
    if not re.fullmatch(r"\d{4}-\d{2}-\d{2}", date):
        raise ValueError(f"{date!r:.40} is not a date")
    points = {}
    for each in _member(read, "points", list):
        point = Point(
            _member(each, "algorithm", str),
            _number(each, "workers", WORLD_MAX),
            _number(each, "size_bytes", SIZE_MAX),
            tuple(_seconds(time_s) for time_s in _member(each, "time_s", list)),
        )
        if point.key in points or not point.time_s:
            raise ValueError(
                f"{point.algorithm:.40} on {point.world} ranks, {point.size_bytes} bytes: "
                "the point is listed twice or has no times"
            )
        points[point.key] = point
    return Table(conditions, date, tuple(points[key] for key in sorted(points)))


def _member(read: Any, name: str, kind: type) -> Any:
    if not isinstance(read, dict) or not isinstance(read.get(name), kind) or isinstance(read[name], bool):
        raise ValueError(f"{name} is missing or wrong")
    return read[name]


def _number(read: Any, name: str, most: int) -> int:
    number: int = _member(read, name, int)
    if not 1 <= number <= most:
        raise ValueError(f"{name} is {number}, not 1 to {most}")
    return number


def _seconds(value: Any) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not (math.isfinite(value) and value > 0):
        raise ValueError(f"{value!r:.40} is not a time")
    return float(value)
