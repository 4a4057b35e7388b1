"""What was measured: (algorithm, ranks, size) points, and the file that keeps them."""

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
VERSION = 1  # of the file; others are refused
SIZE_MAX = 1 << 40
WORLD_MAX = 64  # the schedules of every world are counted when a group is made: that must not take seconds
COUNT_MAX = 1 << 16  # of cores, of repetitions


class TableError(ValueError):
    """A file that holds no table, with its name and what is wrong."""


@dataclass(frozen=True)
class Point:
    """All-reduces of `size_bytes` on `world` ranks by one algorithm: seconds each, as every repetition found them."""

    algorithm: str
    world: int
    size_bytes: int
    time_s: tuple[float, ...]

    @property
    def key(self) -> tuple[str, int, int]:
        """What was measured."""
        return self.algorithm, self.world, self.size_bytes

    @cached_property
    def time_s_median(self) -> float:
        """The median repetition in seconds."""
        return statistics.median(self.time_s)


@dataclass(frozen=True)
class Conditions:
    """What all points of a table share. `link`: shm or tcp; `format`: how the numbers travelled."""

    machine: Machine
    netfold: str
    link: str
    format: str = "fp32"
    repeat: int = 5


def conditions_here(link: str, wire: str, repeat: int = 5) -> Conditions:
    """Those of a table measured by this netfold on this machine."""
    return Conditions(this_machine(), netfold.__version__, link, wire, repeat)


@dataclass(frozen=True)
class Table:
    """Points measured under the same conditions, the last of them on `date` (YYYY-MM-DD)."""

    conditions: Conditions
    date: str
    points: tuple[Point, ...] = field(default=())

    @cached_property
    def by_key(self) -> dict[tuple[str, int, int], Point]:
        """Each point by what was measured."""
        return {point.key: point for point in self.points}

    @property
    def algorithms(self) -> list[str]:
        """Those with a point."""
        return sorted({point.algorithm for point in self.points})

    @property
    def worlds(self) -> list[int]:
        """Numbers of ranks with a point."""
        return sorted({point.world for point in self.points})

    @property
    def sizes(self) -> list[int]:
        """Sizes with a point, in bytes."""
        return sorted({point.size_bytes for point in self.points})

    def with_points(self, points: Iterable[Point], date: str) -> Table:
        """This table and more points; one that was there is replaced."""
        merged = {**self.by_key, **{point.key: point for point in points}}
        return Table(self.conditions, date, tuple(merged[key] for key in sorted(merged)))

    def without(self, points: Iterable[Point]) -> Table:
        """This table as if these had not been measured."""
        gone = {point.key for point in points}
        return replace(self, points=tuple(point for point in self.points if point.key not in gone))

    @property
    def digest(self) -> str:
        """Eight digits that tell tables apart."""
        return hashlib.sha256(_text(self).encode()).hexdigest()[:8]


def directory() -> Path:
    """Where tables are kept: `netfold/tuning` in the user's cache folder (XDG base directories)."""
    chosen = os.environ.get("XDG_CACHE_HOME", "")
    cache = Path(chosen) if Path(chosen).is_absolute() else Path.home() / ".cache"
    return cache / "netfold" / "tuning"


def path_of(conditions: Conditions) -> Path:
    """The file of this machine's table. Machines with the same processor and as many cores share one."""
    slug = re.sub(r"[^a-z0-9]+", "-", conditions.machine.cpu.lower()).strip("-")[:80] or "cpu"
    name = f"{slug}-{conditions.machine.cores}-cores.{conditions.link}.{conditions.format}.json"
    return directory() / name


def write(table: Table, path: Path) -> None:
    """Write the file whole or not at all: what was there stays until the new one is on the disk. Raises OSError."""
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
        TableError: it holds no table of this version.
    """
    try:
        return _table(json.loads(path.read_text()))
    except (ValueError, RecursionError) as error:  # not JSON, not UTF-8, or not what a table is made of
        raise TableError(f"{path} is no table that this netfold reads: {error}") from None


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
    """Checks all that was read: nothing else does."""
    if _member(read, "netfold_tuning", int) != VERSION:
        raise ValueError(f"it is of version {read['netfold_tuning']}, not {VERSION}")
    said = _member(read, "conditions", dict)
    machine = _member(said, "machine", dict)
    conditions = Conditions(
        Machine(_member(machine, "cpu", str), _number(machine, "cores", COUNT_MAX)),
        **{name: _member(said, name, str) for name in ("netfold", "link", "format")},
        repeat=_number(said, "repeat", COUNT_MAX),
    )
    date = _member(read, "date", str)
    if not re.fullmatch(r"\d{4}-\d{2}-\d{2}", date):
        raise ValueError(f"{date!r:.40} is no date")
    points = {}
    for each in _member(read, "points", list):
        point = Point(
            _member(each, "algorithm", str),
            _number(each, "workers", WORLD_MAX),
            _number(each, "size_bytes", SIZE_MAX),
            tuple(_seconds(time_s) for time_s in _member(each, "time_s", list)),
        )
        if point.key in points or not point.time_s:
            raise ValueError(f"{point.algorithm:.40} on {point.world} ranks, {point.size_bytes} bytes: twice, or empty")
        points[point.key] = point
    return Table(conditions, date, tuple(points[key] for key in sorted(points)))


def _member(read: Any, name: str, kind: type) -> Any:
    if not isinstance(read, dict) or not isinstance(read.get(name), kind) or isinstance(read[name], bool):
        raise ValueError(f"{name} is missing or wrong")
    return read[name]


def _number(read: Any, name: str, most: int) -> int:
    if not 1 <= _member(read, name, int) <= most:
        raise ValueError(f"{name} is {read[name]}, not 1 to {most}")
    return read[name]


def _seconds(value: Any) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not (math.isfinite(value) and value > 0):
        raise ValueError(f"{value!r:.40} is no time")
    return float(value)
