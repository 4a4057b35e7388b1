"""What an algorithm has a machine do, counted from the schedules themselves: nothing of an algorithm is known here.

Ranks of one machine share its cores. With more ranks than cores they take turns, and what counts is not the busiest
rank but all of them by the number of cores: the larger of the two is what the time follows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from netfold.schedules.timeline import timeline

COUNT = 1 << 14  # elements; large enough for the parts of a segmented schedule to be equal


@dataclass(frozen=True)
class Work:
    """Of one all-reduce: steps one after the other, and how often its elements are sent and folded, on average (2.0:
    each element of the tensor twice)."""

    steps: float
    sends: float
    folds: float


def serves(algorithm: str, world: int) -> bool:
    """Whether an algorithm serves so many ranks, nothing being known of their machines."""
    from netfold import _core

    try:
        _core.schedule(algorithm, world, 0, COUNT)
    except ValueError:
        return False
    return True


@cache
def work_of(algorithm: str, world: int, cores: int) -> Work:
    """The work of `world` ranks on a machine of `cores` cores. Raises ValueError where the algorithm cannot serve."""
    line = timeline(algorithm, world, COUNT)
    shares = min(cores, world)

    def most(by_rank: list[int]) -> float:
        return max(*by_rank, sum(by_rank) / shares)

    def elements(rank: int, wanted: str) -> int:
        return sum(count for step in line.steps[rank] for action, _, _, count in step if action == wanted)

    sent = most([elements(rank, "send") for rank in range(world)])
    folded = most([elements(rank, "fold") for rank in range(world)])
    return Work(max(line.length, len(line.messages) / shares), sent / COUNT, folded / COUNT)
