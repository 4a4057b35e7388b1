"""The work that an algorithm gives to a machine, counted in its schedules. This file knows no algorithm by name.

The ranks of one machine share its cores. With more ranks than cores they take turns, and the time follows the work of
all ranks divided by the number of cores. Otherwise it follows the busiest rank. The larger of the two values counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from netfold.timeline import timeline

COUNT = 1 << 14  # elements; large enough for the parts of a segmented schedule to be equal


@dataclass(frozen=True)
class Work:
    """The work of one all-reduce: the steps one after the other, and how often a rank sends and folds an element on
    average (2.0: each element of the tensor twice)."""

    steps: float
    sends: float
    folds: float


def serves(algorithm: str, world: int) -> bool:
    """Whether an algorithm supports this number of ranks without knowledge of their machines."""
    from netfold import _core

    try:
        _core.schedule(algorithm, world, 0, COUNT)
    except ValueError:
        return False
    return True


@cache
def work_of(algorithm: str, world: int, cores: int) -> Work:
    """The work of `world` ranks on a machine with `cores` cores. Raises ValueError if the algorithm does not support
    them."""
    line = timeline(algorithm, world, COUNT)
    shares = min(cores, world)

    def most(by_rank: list[int]) -> float:
        return max(*by_rank, sum(by_rank) / shares)

    def elements(rank: int, wanted: str) -> int:
        return sum(count for step in line.steps[rank] for action, _, _, count in step if action == wanted)

    sent = most([elements(rank, "send") for rank in range(world)])
    folded = most([elements(rank, "fold") for rank in range(world)])
    return Work(max(line.length, len(line.messages) / shares), sent / COUNT, folded / COUNT)
