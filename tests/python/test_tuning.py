"""`netfold bench allreduce --tune`: its measurements, which survive interruptions and full disks, and its output."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
import typer
from matplotlib import pyplot
from typer.testing import CliRunner

from netfold.chooser.model import Model
from netfold.chooser.table import Point, Table, conditions_here, read
from netfold_lab.bench import allreduce, tuning, tuning_report
from netfold_lab.errors import UsageError

pytestmark = pytest.mark.timeout(180)
BENCH = [sys.executable, "-c", "from netfold.cli import main; main()", "bench", "allreduce"]
KIB, MIB = 1 << 10, 1 << 20


class Tuning:
    """The command, with a table and temporary files of its own."""

    def __init__(self, folder: Path, table: Path | None = None) -> None:
        self.table = table or folder / "tuned" / "table.json"
        self.part = self.table.with_name(f"{self.table.name}.part")
        self.environment = {**os.environ, "NETFOLD_TUNING": str(self.table), "TMPDIR": str(folder), "COLUMNS": "150"}

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run the command to its end."""
        return self.bench("--tune", *words)

    def bench(self, *words: str) -> subprocess.CompletedProcess[str]:
        """The command that compares, with the same table."""
        return subprocess.run(
            [*BENCH, *words],
            capture_output=True,
            text=True,
            timeout=150,
            check=False,
            env=self.environment,
        )

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start the command and do not wait."""
        return subprocess.Popen([*BENCH, "--tune", *words], stderr=subprocess.PIPE, text=True, env=self.environment)


@pytest.fixture
def command() -> Iterator[Tuning]:
    """Fails a test if a rank of the command still runs after it. Ranks have its folder in their arguments. Sockets in
    the folder need a short name.
    """
    with tempfile.TemporaryDirectory(prefix="netfold-tuning-") as folder:
        yield Tuning(Path(folder))
        deadline = time.monotonic() + 20
        while left := [each.pid for each in psutil.process_iter(["cmdline"]) if folder in str(each.info["cmdline"])]:
            assert time.monotonic() < deadline, f"left behind: {left}"
            time.sleep(0.1)


def test_a_grid_has_what_serves() -> None:
    grid = tuning.grid_of(4)
    assert (grid.worlds, len(grid.sizes)) == ((2, 3, 4), 9)
    for _, _, names in grid.cells():
        assert {"ring", "halving-doubling", "binomial"} <= set(names)
        assert not {"hdrm", "hierarchical", "in-network", "dissemination"} & set(names)
    assert tuning.grid_of(99).worlds == tuple(range(2, 9))
    with pytest.raises(UsageError, match="at least 2"):
        tuning.grid_of(1)
    for name in ("hdrm", "in-network", "auto", "tree"):
        with pytest.raises(UsageError, match=f"ring.*not {name}"):
            tuning.grid_of(8, algorithms=(name,))


def test_a_small_table_from_measuring_to_the_picture(command: Tuning, tmp_path: Path) -> None:
    grid = ("--ranks", "3", "--size-bytes", "1024,65536,1048576", "--algorithm", "ring,recursive-doubling")
    measured = command.run(*grid, "--repeat", "2", "--json")
    assert measured.returncode == 0, measured.stderr
    report = json.loads(measured.stdout)
    assert set(report) == {"command", "version", "machine", "parameters", "results"}
    assert len(report["results"]) == 2 * 3 * 2
    for one in report["results"]:
        assert len(one["time_s"]) == 2
        assert min(one["time_s"]) > 0
    assert report["parameters"]["held_out"]["size"]["points"] == 4
    chosen = [(one["workers"], one["size_bytes"]) for one in report["results"] if one["is_choice"]]
    assert len(chosen) == len(set(chosen)) == 6
    table = read(command.table)
    assert [list(point.time_s) for point in table.points] == [one["time_s"] for one in report["results"]]
    assert not command.part.exists()

    picture = tmp_path / "deep" / "regions.png"
    shown = command.run("--show", "--picture", str(picture))
    assert shown.returncode == 0, shown.stderr
    for word in ("Median times", "Choices", "1/beta", "Held out, a size", "rd "):
        assert word in shown.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")

    auto = command.bench("--ranks", "3", "--algorithm", "auto", "--against", "", "--repeat", "1", "--json")
    assert auto.returncode == 0, auto.stderr
    assert [one["same_bits"] for one in json.loads(auto.stdout)["results"]] == [True]

    more = command.run(*grid[:2], "--size-bytes", "1024", "--repeat", "2", "--algorithm", "ring,binomial", "--json")
    assert more.returncode == 0, more.stderr
    kept = read(command.table)
    assert {"binomial"} < set(kept.algorithms)
    assert [kept.by_key[point.key] for point in table.points] == list(table.points), "only what was missing"
    again = command.run(*grid, "--repeat", "2", "--json")
    assert "--again" in again.stderr
    assert read(command.table) == kept


@pytest.mark.parametrize("sizes", [(KIB,), (KIB, MIB)])
def test_a_picture_of_one_number_of_ranks_is_not_blank(sizes: tuple[int, ...], tmp_path: Path) -> None:
    points = tuple(Point("ring", 2, size, (1e-4,)) for size in sizes)
    tuning_report.draw(Table(conditions_here("shm", "fp32"), "2026-11-26", points), tmp_path / "regions.png")
    pixels = pyplot.imread(tmp_path / "regions.png")[:, :, :3]
    coloured = pixels.max(axis=2) - pixels.min(axis=2) > 0.2
    assert coloured.mean() > 0.1, "more than the legend"


def _wait_for_points(command: Tuning, running: subprocess.Popen[str]) -> Table:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and running.poll() is None:
        if command.part.exists() and (table := read(command.part)).points:
            return table
        time.sleep(0.01)
    raise AssertionError("no points came")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_an_interrupted_run_goes_on_where_it_stopped(command: Tuning, number: signal.Signals) -> None:
    grid = ("--ranks", "2", "--size-bytes", "1024,16777216,33554432", "--algorithm", "ring,binomial")
    running = command.start(*grid)
    measured = _wait_for_points(command, running)
    running.send_signal(number)
    _, said = running.communicate(timeout=60)
    assert running.returncode != 0
    assert not command.table.exists(), "a table is whole"
    if number == signal.SIGTERM:
        assert "points are saved" in said
    measured = read(command.part)
    assert 0 < len(measured.points) < 6
    done = command.run(*grid)
    assert done.returncode == 0, done.stderr
    table = read(command.table)
    assert len(table.points) == 6
    assert [table.by_key[point.key] for point in measured.points] == list(measured.points)
    assert not command.part.exists()


@contextmanager
def no_file_larger_than(size_bytes: int) -> Iterator[None]:
    """Writing more than this fails like on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_loses_nothing(tmp_path: Path) -> None:
    def points(worlds: range) -> list[Point]:
        return [Point("ring", world, 4 * size, (0.001,) * 5) for world in worlds for size in range(1, 30)]

    table = tmp_path / "table.json"
    notebook = tuning.Notebook(conditions_here("shm", "fp32"), str(table))
    notebook.add(points(range(2, 4)))
    notebook.finish()
    whole = table.read_bytes()
    notebook.add(points(range(4, 5)))
    part = notebook.part.read_bytes()
    with no_file_larger_than(len(part)), pytest.raises(tuning.TuningError, match=r"cannot write.*table\.json\.part"):
        notebook.add(points(range(5, 9)))
    assert (table.read_bytes(), notebook.part.read_bytes()) == (whole, part)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["table.json", "table.json.part"]
    assert tuning.Notebook(conditions_here("shm", "fp32"), str(table)).table == read(notebook.part)


def test_a_folder_that_cannot_be_is_told_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    refused = Tuning(tmp_path, tmp_path / "file" / "table.json").run()
    assert refused.returncode == 1
    assert "cannot write" in refused.stderr
    assert "NETFOLD_TUNING" in refused.stderr


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        (("--link", "udp"), 2, "shm, tcp"),
        (("--ranks", "1"), 2, "at least 2"),
        (("--algorithm", "hdrm"), 2, "ring"),
        (("--size-bytes", "7"), 2, "multiple of 4"),
        (("--picture", "regions.gif", "--show"), 2, ".png"),
        (("--show",), 1, "--tune without --show"),
    ],
)
def test_bad_wishes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], status: int, says: str
) -> None:
    monkeypatch.setenv("NETFOLD_TUNING", str(tmp_path / "table.json"))
    app = typer.Typer()
    app.callback()(lambda: None)
    allreduce.register(app)
    done = CliRunner().invoke(app, ["allreduce", "--tune", *words])
    assert (done.exit_code, says in done.output) == (status, True), done.output
    assert list(tmp_path.iterdir()) == []


def test_a_spoilt_table_is_measured_again(command: Tuning) -> None:
    command.table.parent.mkdir()
    command.table.write_text("spoilt")
    assert "is not a tuning table" in command.run("--show").stderr
    done = command.run("--ranks", "2", "--size-bytes", "1024", "--repeat", "1", "--link", "tcp", "--format", "bfp")
    assert done.returncode == 0, done.stderr
    table = read(command.table)
    assert (table.conditions.link, table.conditions.format, table.worlds) == ("tcp", "bfp", [2])


def test_a_busy_machine_is_told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    table = Table(conditions_here("shm", "fp32"), "2026-11-20").with_points(
        [Point("ring", world, size, (0.001, 0.004)) for world in (2, 4) for size in (KIB, MIB)], "2026-11-20"
    )
    tuning_report.show(table, tmp_path)
    assert "differ by 4.0 times" in " ".join(capsys.readouterr().out.split())
    assert Model(table).algorithms(3) == ["ring"]
