"""How far the model is off, told by points it was not given."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from netfold.chooser.model import Model
from netfold.chooser.table import Point, Table


@dataclass(frozen=True)
class Accuracy:
    """Errors as parts of the measured time (0.1: a tenth off), of `points` that were held out.

    loss_mean is what the model's choice would have cost: the measured time of what it chose among held-out algorithms,
    over the least measured one, less 1; a mean over sizes and worlds.
    """

    points: int
    error_median: float
    error_90: float
    loss_mean: float


def between_sizes(table: Table) -> Accuracy | None:
    """Sizes within the measured range, each left out in its turn, at all worlds; None with fewer than three sizes."""
    inner = table.sizes[1:-1]
    return _accuracy(table, [lambda point, size=size: point.size_bytes == size for size in inner])


def between_worlds(table: Table) -> Accuracy | None:
    """Worlds but the smallest and the largest, each left out in its turn; None with fewer than three worlds."""
    inner = table.worlds[1:-1]
    return _accuracy(table, [lambda point, world=world: point.world == world for world in inner])


def _accuracy(table: Table, parts: Iterable[Callable[[Point], bool]]) -> Accuracy | None:
    errors: list[float] = []
    losses: list[float] = []
    for is_out in parts:
        held_out = [point for point in table.points if is_out(point)]
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
