"""Times between the measured points: an alpha-beta-gamma model of each algorithm, and how far it was off nearby.

    time = alpha * steps + beta * bytes sent + gamma * bytes folded

with the three counted from the schedules (work.py), and seconds a step, a byte sent and a byte folded fitted to the
points by least squares in log space, so that a microsecond's tenth counts as a second's. The model is the same line for
every size; caches are not. So what it was off by at the measured sizes and worlds, the *residual*, is interpolated in
between: at a measured point the estimate is the measurement.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from netfold.chooser.table import Point, Table
from netfold.chooser.work import Work, serves, work_of

ROUNDS = 50
ENOUGH = 1e-12  # of the squared error: less is no progress
WORLD_FACTOR = 2  # a table says nothing of more than so many times the ranks it was measured with


@dataclass(frozen=True)
class Costs:
    """Of one algorithm: seconds a step (alpha), a byte sent (beta) and a byte folded (gamma)."""

    alpha: float
    beta: float
    gamma: float

    def seconds(self, work: Work, size_bytes: int) -> float:
        """The time of an all-reduce of `size_bytes`."""
        return self.alpha * work.steps + size_bytes * (self.beta * work.sends + self.gamma * work.folds)


def fit(points: list[Point], cores: int) -> Costs:
    """The costs that come nearest to the points of one algorithm (at least one), none of them below zero.

    Gauss-Newton on log(model / measured): near costs x, with model times p = A x, the log of the model is
    log p + A dx / p, so each round is a linear least squares for x itself, A / p against 1 - log(p / measured).
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
    """Least squares with no coefficient below zero: of the few choices of columns that may count, the best that is.

    Some coefficient is always positive: what fits best is no model of zeros."""
    scale = np.linalg.norm(matrix, axis=0)
    scale[scale == 0] = 1
    found, least = None, math.inf
    for size in range(1, matrix.shape[1] + 1):
        for columns in map(list, combinations(range(matrix.shape[1]), size)):
            part, *_ = np.linalg.lstsq(matrix[:, columns] / scale[columns], target, rcond=None)
            error = float(np.sum((matrix[:, columns] / scale[columns] @ part - target) ** 2))
            if np.all(part >= 0) and np.any(part > 0) and error < least - ENOUGH:
                whole = np.zeros(matrix.shape[1])
                whole[columns] = part
                found, least = whole / scale, error
    return found if found is not None else 1 / scale


class Model:
    """Times by a table: `Model(table).seconds("ring", 4, 1 << 20)`."""

    def __init__(self, table: Table) -> None:
        """Points of algorithms that this netfold does not have, or that cannot serve so many ranks, are left out."""
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
        """Those the table tells something of on so many ranks; where some were measured, only these."""
        if not self._worlds or world > WORLD_FACTOR * max(self._worlds):
            return []
        return sorted(
            name
            for name in self.costs
            if (world in self._residuals[name] if world in self._worlds else serves(name, world))
        )

    def is_measured(self, algorithm: str, world: int, size_bytes: int) -> bool:
        """Whether that is a point of the table."""
        return (algorithm, world, size_bytes) in self.table.by_key

    def seconds(self, algorithm: str, world: int, size_bytes: int) -> float:
        """The time of one all-reduce, for any of `algorithms(world)`."""
        modelled = self.costs[algorithm].seconds(work_of(algorithm, world, self._cores), size_bytes)
        return modelled * math.exp(self._residual(algorithm, world, size_bytes))

    def _residuals_of(self, algorithm: str) -> dict[int, tuple[list[float], list[float]]]:
        """By world: the logs of the measured sizes, upwards, and log(measured / model) at each."""
        found: dict[int, tuple[list[float], list[float]]] = {}
        for point in sorted(self._points[algorithm], key=lambda each: each.size_bytes):
            modelled = self.costs[algorithm].seconds(work_of(algorithm, point.world, self._cores), point.size_bytes)
            sizes, offs = found.setdefault(point.world, ([], []))
            sizes.append(math.log(point.size_bytes))
            offs.append(math.log(point.time_s_median / modelled))
        return found

    def _residual(self, algorithm: str, world: int, size_bytes: int) -> float:
        """Linear between neighbours in log size, then in log world; beyond the last it stays what it was there."""
        by_world = self._residuals[algorithm]
        worlds = sorted(by_world)
        at = [float(np.interp(math.log(size_bytes), *by_world[each])) for each in worlds]
        return float(np.interp(math.log(world), [math.log(each) for each in worlds], at))
