"""The model's error, measured at points that it was not fitted to."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from netfold.chooser.model import Model
from netfold.chooser.table import Point, Table


@dataclass(frozen=True)
class Accuracy:
    """Errors at the `points` that were held out, as parts of the measured time (0.1: a tenth off).

    loss_mean is the cost of the model's choices: the measured time of the algorithm that it chose among those held out,
    over the least measured time, less 1. It is a mean over sizes and worlds.
    """

    points: int
    error_median: float
    error_90: float
    loss_mean: float


def between_sizes(table: Table) -> Accuracy | None:
    """Leave out one size after the other, but not the smallest and the largest. None with fewer than three sizes."""
    inner = table.sizes[1:-1]
    return _accuracy(table, ([point for point in table.points if point.size_bytes == size] for size in inner))


def between_worlds(table: Table) -> Accuracy | None:
    """Leave out one world after the other, but not the smallest and the largest. None with fewer than three worlds."""
    inner = table.worlds[1:-1]
    return _accuracy(table, ([point for point in table.points if point.world == world] for world in inner))


def _accuracy(table: Table, parts: Iterable[list[Point]]) -> Accuracy | None:
    errors: list[float] = []
    losses: list[float] = []
    for held_out in parts:
        model = Model(table.without(held_out))
        by_cell: dict[tuple[int, int], list[tuple[float, float]]] = {}
        for point in held_out:
            if point.algorithm in model.algorithms(point.world):
                estimate = model.seconds(*point.key)
                errors.append(math.expm1(abs(math.log(estimate / point.time_s_median))))
                by_cell.setdefault((point.world, point.size_bytes), []).append((estimate, point.time_s_median))
        for cell in by_cell.values():
            losses.append(min(cell)[1] / min(measured for _, measured in cell) - 1)
    if not errors:
        return None
    ninety = sorted(errors)[math.ceil(0.9 * len(errors)) - 1]
    return Accuracy(len(errors), statistics.median(errors), ninety, statistics.mean(losses))
