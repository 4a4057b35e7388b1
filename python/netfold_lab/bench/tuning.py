"""Measures the chooser's table: every algorithm at every size and number of ranks. Each point is saved at once.

The ranks of one world are started once, and timed with all sizes and algorithms. Short all-reduces are repeated many
times, and algorithms take turns, so that drift affects all. After every size the points are written to a `.part` file
beside the table. A run after an interruption continues from there. The last point replaces the table.
"""

from __future__ import annotations

import datetime
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from subprocess import Popen

from netfold.algorithms import host_algorithms
from netfold.chooser.choices import size_text
from netfold.chooser.table import Conditions, Point, Table, TableError, path_of, read, write
from netfold.chooser.work import serves
from netfold_lab.bench.measure import Team
from netfold_lab.bench.screen import weighted_bar
from netfold_lab.bench.sites import LocalSite, Site
from netfold_lab.bench.systems import spawn_hosts
from netfold_lab.errors import UsageError

ELEMENT_BYTES = 4
SIZES = tuple(1 << shift for shift in range(10, 28, 2))  # 1 KiB to 64 MiB
WORLD_MAX = 8
BATCH_S = 0.004  # short all-reduces are timed in batches of about this time
LOOPS_MAX = 100
OVERHEAD_S, BYTES_S = 0.02, 1e9  # an estimate of a point's time, only for the progress bar


class TuningError(RuntimeError):
    """The table cannot be saved."""


@dataclass(frozen=True)
class Grid:
    """The points to measure."""

    worlds: tuple[int, ...]
    sizes: tuple[int, ...]
    algorithms: tuple[str, ...]

    def cells(self) -> Iterator[tuple[int, int, tuple[str, ...]]]:
        """(ranks, bytes, algorithms that support this number of ranks), grouped by number of ranks."""
        for world in self.worlds:
            serving = tuple(name for name in self.algorithms if serves(name, world))
            yield from ((world, size, serving) for size in self.sizes)


def grid_of(ranks: int, sizes: tuple[int, ...] = SIZES, algorithms: tuple[str, ...] = ()) -> Grid:
    """A grid for 2 to `ranks` ranks, at most WORLD_MAX; without named algorithms, all. Raises UsageError."""
    if ranks < 2:
        raise UsageError(f"--tune measures from 2 ranks on, so --ranks must be at least 2, not {ranks}")
    known = host_algorithms()
    for name in algorithms:
        if name not in known or not any(serves(name, world) for world in range(2, ranks + 1)):
            serving = ", ".join(each for each in known if serves(each, 2))
            raise UsageError(f"--tune measures algorithms that do not need a topology: {serving}, not {name}")
    return Grid(tuple(range(2, min(ranks, WORLD_MAX) + 1)), tuple(sorted(sizes)), algorithms or known)


class TuningHosts:
    """Ranks with the commands of bench/workers/tuning.py."""

    name = "netfold"
    key = "netfold-tuning"
    algorithms: tuple[str, ...] = ()

    def __init__(self, link: str, wire: str) -> None:
        self._link = link
        self._wire = wire

    def wire(self, wanted: str) -> str:
        """The format that it was created for."""
        return self._wire

    def launch(self, site: Site, control: Path, log: Path, timeout_s: float) -> list[Popen]:
        """Start one process per rank."""
        program = [sys.executable, "-m", "netfold_lab.bench.workers.tuning"]
        return spawn_hosts(program, site, control, log, timeout_s, self._link, self._wire)


def path_for(conditions: Conditions, named: str) -> Path:
    """The table's file: the named file, or this machine's."""
    return Path(named) if named else path_of(conditions)


def kept(conditions: Conditions, named: str) -> tuple[Table, Path]:
    """The existing table, and its file. Raises TuningError if it is missing or cannot be read."""
    path = path_for(conditions, named)
    try:
        return read(path), path
    except FileNotFoundError:
        said = f"there is no table at {path}: --tune without --show measures one"
    except (OSError, TableError) as error:
        said = f"{error}; --tune without --show measures a new one"
    raise TuningError(said)


class Notebook:
    """The table during a measurement; every addition is written to disk."""

    def __init__(self, conditions: Conditions, named: str = "", again: bool = False) -> None:
        """Loads earlier points with the same conditions: from an unfinished run, else from the table; nothing if
        `again`. `named` is the table's file; if empty, this machine's."""
        self.path = path_for(conditions, named)
        self.part = self.path.with_name(f"{self.path.name}.part")
        self.table = Table(conditions, _today())
        if not again:
            self.table = _matching(self.part, conditions) or _matching(self.path, conditions) or self.table

    def lacks(self, grid: Grid) -> list[tuple[int, int, tuple[str, ...]]]:
        """Cells of the grid with the algorithms that do not have a point yet."""
        missing = (
            (world, size, tuple(name for name in names if (name, world, size) not in self.table.by_key))
            for world, size, names in grid.cells()
        )
        return [cell for cell in missing if cell[2]]

    def add(self, points: list[Point]) -> None:
        """Add points, also on disk."""
        self.table = self.table.with_points(points, _today())
        self._write(self.part)

    def finish(self) -> None:
        """Finish: the new table replaces the old one."""
        self._write(self.path)
        self.part.unlink(missing_ok=True)

    def _write(self, path: Path) -> None:
        try:
            write(self.table, path)
        except OSError as error:
            kept = f"; the points measured before are in {self.part}" if self.part.is_file() else ""
            raise TuningError(
                f"cannot write {path}: {error.strerror}{kept}. Free some space, or name another file in "
                "NETFOLD_TUNING; the same command without --again then continues where this one stopped"
            ) from error


def tune_with_bar(notebook: Notebook, grid: Grid, timeout_s: float) -> Table:
    """`tune`, with a progress bar. At an interruption it prints the number of saved points."""
    total = sum(map(weight, grid.cells()))
    left = sum(map(weight, notebook.lacks(grid)))
    if not left:
        print("netfold: all points are measured already; --again measures them again", file=sys.stderr)
    try:
        with weighted_bar(total, total - left) as progress:
            return tune(notebook, grid, timeout_s, progress)
    except BaseException:
        kept = len(notebook.table.points)
        print(
            f"netfold: {kept} points are saved; the same command without --again continues from there", file=sys.stderr
        )
        raise


def tune(notebook: Notebook, grid: Grid, timeout_s: float, progress: Callable[[str, float], None]) -> Table:
    """Measure the points of the grid that the notebook lacks, and finish it. `progress` is told of each step and its
    weight.

    Raises MeasurementError if the ranks fail, TuningError if points cannot be saved. Measured points stay.
    """
    conditions = notebook.table.conditions
    missing = notebook.lacks(grid)
    if missing:
        notebook.add([])  # so that a folder that cannot be written fails before the first measurement
    for world, cells in groupby(missing, lambda cell: cell[0]):
        progress(f"starting {world} ranks", 0)
        with LocalSite(world) as site, Team(TuningHosts(conditions.link, conditions.format), site, timeout_s) as team:
            for cell in cells:
                notebook.add(_measure(team, cell, conditions.repeat, progress))
    if missing:
        notebook.finish()
    return notebook.table


def _measure(
    team: Team, cell: tuple[int, int, tuple[str, ...]], repeat: int, progress: Callable[[str, float], None]
) -> list[Point]:
    """The points of one size and number of ranks; the algorithms take turns."""
    world, size_bytes, names = cell
    loops = {}
    for name in names:
        if (took_s := _slowest(team.ask(f"try {name} {size_bytes // ELEMENT_BYTES}"))) is not None:
            loops[name] = min(max(1, round(BATCH_S / took_s)), LOOPS_MAX)
    times: dict[str, list[float]] = {name: [] for name in loops}
    for _ in range(repeat):
        for name, count in loops.items():
            took_s = _slowest(team.ask(f"time {name} {count}"))
            assert took_s is not None, "an algorithm that worked once works again"
            times[name].append(took_s / count)
        progress(f"{world} ranks, {size_text(size_bytes)}", weight(cell) / repeat)
    return [Point(name, world, size_bytes, tuple(found)) for name, found in times.items()]


def _slowest(answers: list[str]) -> float | None:
    """Seconds of the slowest rank; None if a rank cannot run it."""
    words = [answer.split() for answer in answers]
    return max(int(number) for _, number, *_ in words) / 1e9 if all(word == "took" for word, *_ in words) else None


def weight(cell: tuple[int, int, tuple[str, ...]]) -> float:
    """The estimated time of a cell, relative to others."""
    world, size_bytes, names = cell
    return len(names) * (OVERHEAD_S + world * math.log2(world) * size_bytes / BYTES_S)


def _matching(path: Path, conditions: Conditions) -> Table | None:
    """The table of a file if it has these conditions; None if it has others or cannot be read."""
    try:
        table = read(path)
    except (OSError, TableError):
        return None
    return table if table.conditions == conditions else None


def _today() -> str:
    return datetime.datetime.now().astimezone().date().isoformat()
