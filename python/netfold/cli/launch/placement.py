"""Where a switch makes the job's all-reduces faster, from the measured rates of the machines' links (capacity.py).

A switch on a machine without workers has that machine's whole link. On a worker's machine it has what the worker leaves
of the link: nothing, where all links are alike. Several ranks of a machine share its link, so machines count as
workers here.
"""

from __future__ import annotations

from dataclasses import dataclass

from netfold import capacity

WORTH = 1.03  # times as fast: a smaller gain is within the error of the measurement


@dataclass(frozen=True)
class Place:
    """A machine for the switch, and how many times as fast large all-reduces are with it."""

    name: str
    times_as_fast: float


def best(workers: dict[str, float], spare: dict[str, float]) -> Place | None:
    """The best place among all machines; None if a switch helps nowhere. Links by machine, in bytes/s."""
    world, link = len(workers), min(workers.values(), default=0.0)
    if world < 2 or link <= 0:
        return None
    left = {name: (rate - link) * world / (world - 1) for name, rate in workers.items()}
    found = [
        Place(name, capacity.times_as_fast(world, link, rate / world))
        for name, rate in (spare | left).items()
        if rate > 0.01 * link
    ]
    place = max(found, key=lambda each: each.times_as_fast, default=None)
    return place if place is not None and place.times_as_fast >= WORTH else None


def advice(world: int) -> str:
    """For a job without a switch: the gain by a machine that only runs the switch."""
    like, full = capacity.times_as_fast(world, 1.0, 1 / world), capacity.times_as_fast(world, 1.0, 1.0)
    return (
        f"a machine without workers (--spare HOST) makes large all-reduces {like:.2f} times as fast if its link is "
        f"like the others', and {full:.2f} times if its link carries those of all"
    )
