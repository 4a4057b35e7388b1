"""Times between the measured points: an alpha-beta-gamma model of each algorithm, corrected by its error nearby.

    time = alpha * steps + beta * bytes sent + gamma * bytes folded

The schedules give the three counts (work.py). The seconds per step, per byte sent and per byte folded are fitted to the
points by least squares in log space, so that a tenth of a microsecond counts as much as a tenth of a second. The model
is one line for all sizes, but caches make the real times different. So the error at the measured sizes and worlds, the
*residual*, is interpolated in between: at a measured point the estimate equals the measurement.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from netfold.chooser.table import Point, Table
from netfold.chooser.work import Work, serves, work_of

ROUNDS = 50
ENOUGH = 1e-12  # of the squared error: a smaller change ends the iteration
WORLD_FACTOR = 2  # a table covers up to this many times its measured ranks


@dataclass(frozen=True)
class Costs:
    """Costs of one algorithm: seconds per step (alpha), per byte sent (beta) and per byte folded (gamma)."""

    alpha: float
    beta: float
    gamma: float

    def seconds(self, work: Work, size_bytes: int) -> float:
        """The time of an all-reduce of `size_bytes`."""
        return self.alpha * work.steps + size_bytes * (self.beta * work.sends + self.gamma * work.folds)


def fit(points: list[Point], cores: int) -> Costs:
    """The costs that fit the points of one algorithm (at least one point) best. No cost is negative.

    Gauss-Newton on log(model / measured): near the costs x, with model times p = A x, the log of the model is log p + A
    dx / p. So each round is a linear least-squares problem for x itself: A / p against 1 - log(p / measured).
    """
    works = [work_of(point.algorithm, point.world, cores) for point in points]
    rows = np.array(
        [
            (w.steps, w.sends * point.size_bytes, w.folds * point.size_bytes)
            for w, point in zip(works, points, strict=True)
        ]
    )
    times = np.array([point.time_s_median for point in points])
    costs = _non_negative(rows / times[:, None], np.ones(len(times)))
    best, best_error = costs, math.inf
    for _ in range(ROUNDS):
        modelled = rows @ costs
        off = np.log(modelled / times)
        error = float(off @ off)
        if not error < best_error - ENOUGH:
            break
        best, best_error = costs, error
        costs = _non_negative(rows / modelled[:, None], 1 - off)
    return Costs(*map(float, best))


def _non_negative(matrix: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Least squares without negative coefficients: it tries each choice of columns and takes the best valid one.

    At least one coefficient is positive: a model of zeros never fits best."""
    scale = np.linalg.norm(matrix, axis=0)
    scale[scale == 0] = 1
    found: np.ndarray = 1 / scale
    least = math.inf
    for size in range(1, matrix.shape[1] + 1):
        for columns in map(list, combinations(range(matrix.shape[1]), size)):
            part, *_ = np.linalg.lstsq(matrix[:, columns] / scale[columns], target, rcond=None)
            error = float(np.sum((matrix[:, columns] / scale[columns] @ part - target) ** 2))
            if np.all(part >= 0) and np.any(part > 0) and error < least - ENOUGH:
                whole = np.zeros(matrix.shape[1])
                whole[columns] = part
                found, least = whole / scale, error
    return found


class Model:
    """Times estimated from a table: `Model(table).seconds("ring", 4, 1 << 20)`."""

    def __init__(self, table: Table) -> None:
        """Ignores points of algorithms that this netfold does not have, or that do not support the number of ranks."""
        self.table = table
        self._cores = table.conditions.machine.cores
        self._points: dict[str, list[Point]] = {}
        for point in table.points:
            if serves(point.algorithm, point.world):
                self._points.setdefault(point.algorithm, []).append(point)
        self.costs = {name: fit(points, self._cores) for name, points in self._points.items()}
        self._residuals = {name: self._residuals_of(name) for name in self.costs}
        self._worlds = {point.world for points in self._points.values() for point in points}

    def algorithms(self, world: int) -> list[str]:
        """The algorithms that the table covers at this number of ranks; if some were measured there, only these."""
        if not self._worlds or world > WORLD_FACTOR * max(self._worlds):
            return []
        return sorted(
            name
            for name in self.costs
            if (world in self._residuals[name] if world in self._worlds else serves(name, world))
        )

    def is_measured(self, algorithm: str, world: int, size_bytes: int) -> bool:
        """Whether the table has this point."""
        return (algorithm, world, size_bytes) in self.table.by_key

    def seconds(self, algorithm: str, world: int, size_bytes: int) -> float:
        """The time of one all-reduce, for any of `algorithms(world)`."""
        modelled = self.costs[algorithm].seconds(work_of(algorithm, world, self._cores), size_bytes)
        return modelled * math.exp(self._residual(algorithm, world, size_bytes))

    def _residuals_of(self, algorithm: str) -> dict[int, tuple[list[float], list[float]]]:
        """For each world: the logs of the measured sizes in ascending order, and log(measured / model) at each."""
        found: dict[int, tuple[list[float], list[float]]] = {}
        for point in sorted(self._points[algorithm], key=lambda each: each.size_bytes):
            modelled = self.costs[algorithm].seconds(work_of(algorithm, point.world, self._cores), point.size_bytes)
            sizes, offs = found.setdefault(point.world, ([], []))
            sizes.append(math.log(point.size_bytes))
            offs.append(math.log(point.time_s_median / modelled))
        return found

    def _residual(self, algorithm: str, world: int, size_bytes: int) -> float:
        """Linear between neighbours in log size, then in log world; constant beyond the last."""
        by_world = self._residuals[algorithm]
        worlds = sorted(by_world)
        at = [float(np.interp(math.log(size_bytes), *by_world[each])) for each in worlds]
        return float(np.interp(math.log(world), [math.log(each) for each in worlds], at))
