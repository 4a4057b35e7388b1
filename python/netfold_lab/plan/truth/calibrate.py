"""This machine's constants of the model: alpha (a message), beta (a byte sent), gamma (a byte folded), and its rates of
folding, copying and computing.

Alpha, beta and gamma are fitted to four points per algorithm: the smallest and the largest size, on the fewest and on
the most ranks. All other points are measured too, but only for the model's error.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from netfold.chooser.model import Costs, fit
from netfold.chooser.table import Point, conditions_here
from netfold.chooser.work import work_of
from netfold.machine import this_machine
from netfold_lab.bench import tuning
from netfold_lab.bench.codec import results_of
from netfold_lab.bench.memory import copy_bytes_s
from netfold_lab.errors import UsageError

ALGORITHMS = ("ring", "halving-doubling")
FITTED_BYTES = (1 << 10, 8 << 20)
UNSEEN_BYTES = (32 << 10, 256 << 10, 2 << 20)
LINKS = ("tcp", "shm")
MATRIX = 1024  # rows and columns of the matrices that are multiplied
MULTIPLICATIONS = 20
FOLDED_BYTES = 1 << 20
TIMEOUT_S = 60.0
GIGA = 1e9


@dataclass(frozen=True)
class Calibration:
    """For each algorithm: costs, and errors (0.1: a tenth off) at points that were not fitted to. Rates are of one
    core, except copying."""

    link: str
    ranks: tuple[int, ...]
    costs: dict[str, Costs]
    off_median: dict[str, float]
    off_max: dict[str, float]
    points_unseen: int
    winners_right: int
    winners: int
    fold_gbyte_s: float
    copy_gbyte_s: float
    compute_gflop_s: float

    @property
    def step_latency_us(self) -> float:
        """The time of a message of a ring; a cluster file's `software: {calibration: ...}` reads it."""
        return 1e6 * self.costs["ring"].alpha

    def told(self) -> dict[str, Any]:
        """The values for the file and the report."""
        return asdict(self) | {"step_latency_us": self.step_latency_us, "machine": this_machine().cpu}


def calibrate(ranks: int, link: str, repeat: int, tell: Callable[[str, float], None]) -> Calibration:
    """Measure and fit. `tell` is told of each step. Raises UsageError, MeasurementError."""
    if ranks < 2:
        raise UsageError(f"--ranks must be at least 2, not {ranks}")
    if link not in LINKS:
        raise UsageError(f"--link must be one of {', '.join(LINKS)}, not {link}")
    worlds = tuple(sorted({2, ranks}))
    grid = tuning.Grid(worlds, tuple(sorted(FITTED_BYTES + UNSEEN_BYTES)), ALGORITHMS)
    with tempfile.TemporaryDirectory(prefix="netfold-plan-") as folder:
        notebook = tuning.Notebook(conditions_here(link, "fp32", repeat), str(Path(folder) / "points.json"))
        points = tuning.tune(notebook, grid, TIMEOUT_S, tell).points
    tell("folding, copying, computing", 0)
    return judged(link, worlds, list(points))


def judged(link: str, worlds: tuple[int, ...], points: list[Point]) -> Calibration:
    """Costs from the fitted points, errors from the others."""
    cores = this_machine().cores
    costs: dict[str, Costs] = {}
    offs: dict[str, list[float]] = {}
    predicted: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for name in ALGORITHMS:
        own = [point for point in points if point.algorithm == name]
        costs[name] = fit([point for point in own if point.size_bytes in FITTED_BYTES], cores)
        for point in (point for point in own if point.size_bytes not in FITTED_BYTES):
            said = costs[name].seconds(work_of(name, point.world, cores), point.size_bytes)
            offs.setdefault(name, []).append(abs(said / point.time_s_median - 1))
            predicted.setdefault((point.world, point.size_bytes), []).append((said, point.time_s_median))
    right = sum(min(each)[1] == min(measured for _, measured in each) for each in predicted.values())
    return Calibration(
        link,
        worlds,
        costs,
        {name: statistics.median(each) for name, each in offs.items()},
        {name: max(each) for name, each in offs.items()},
        sum(map(len, offs.values())),
        right,
        len(predicted),
        fold_gbyte_s(),
        copy_bytes_s() / GIGA,
        compute_gflop_s(),
    )


def fold_gbyte_s() -> float:
    """Gigabytes of operands that one core folds per second."""
    from netfold import _core

    timings = _core.time_codec(_core.kernels_in_use().split(",")[:1], FOLDED_BYTES, 5)
    folded = [one for one in results_of(timings) if one["algorithm"].startswith("fold") and one["format"] == "fp32"]
    return folded[0]["rate_gbyte_s"]


def compute_gflop_s() -> float:
    """Operations per second of matrix multiplications in fp32, the best of a few runs."""
    one = np.ones((MATRIX, MATRIX), np.float32)
    best = float("inf")
    for _ in range(MULTIPLICATIONS):
        begin_s = time.perf_counter()
        one @ one
        best = min(best, time.perf_counter() - begin_s)
    return 2 * MATRIX**3 / best / GIGA


def write(path: Path, found: Calibration) -> None:
    """Write the file that a cluster file may name. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found.told(), indent=1) + "\n", encoding="utf-8")
