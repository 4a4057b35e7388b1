"""Places the ranks of a job on a BiGraph for HDRM: any number of ranks, on any of its switches.

Algorithm 1 of the EFLOPS paper (section V-B) maps ranks that fill a BiGraph of M sub-nodes x N switches, both powers of
two. Here it maps *positions*: M at each of N switches. M times N is the largest power of two up to the number of ranks.
The real switches with the most ranks become those N switches. A rank takes a position of its own switch where one is
free. All other ranks hand over their elements to a rank with a position, at the same switch where that is possible.

Where a switch has more ranks than cables, the mapping makes every step share cables. Then it can cost less to keep the
first steps, which send most, inside the switches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

NO_RANK = -1

Switch = Sequence[int]
"""The ranks attached to a switch."""


@dataclass(frozen=True)
class Places:
    """`shape`: sub-nodes x switches, as HDRM expects them. `order`: the rank at each position; if there are more ranks,
    then the rank that hands over to each of these, or -1. `shared`: the most connections of a step on one cable, in one
    direction. `cost`: of an all-reduce, in times that a cable takes for the whole tensor; `ring_cost`: of a ring in the
    order of ranks."""

    shape: tuple[int, int]
    order: list[int]
    shared: int
    cost: float
    ring_cost: float


@dataclass
class _Seats:
    """Positions of one shape, and the ranks that take them. `moved`: the ranks at positions of another switch."""

    sub_nodes: int
    switches: int
    moved: int = 0
    order: list[int] = field(init=False)
    extras: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.order = [NO_RANK] * (self.sub_nodes * self.switches)
        self.extras = list(self.order)


def place(upper: Sequence[Switch], lower: Sequence[Switch]) -> Places:
    """Place ranks that are attached to these switches of the two halves. Of all shapes that have as many positions, the
    one counts that costs least; of several, the one in which most ranks are at their own switch.

    Raises ValueError if there are fewer than two ranks.
    """
    real = [list(ranks) for ranks in (*upper, *lower)]
    count = sum(map(len, real))
    if count < 2:
        raise ValueError("HDRM needs two ranks or more")
    positions = 1 << (count.bit_length() - 1)
    switch_of = np.empty(count, dtype=np.int64)
    for number, ranks in enumerate(real):
        switch_of[ranks] = number
    load = _load(switch_of, np.roll(switch_of, -1), len(upper), len(real))
    ring = 2 * (count - 1) / count * max(1, load)
    shapes = [(positions >> bits, 1 << bits) for bits in range(1, positions.bit_length())]
    all_seats = [_seated(real, len(upper), switch_of, *shape) for shape in shapes]
    all_seats.append(_in_blocks(real, len(upper), switch_of))
    tried = []
    for seats in all_seats:
        cost, shared = _cost(seats, switch_of, len(upper), len(real))
        order = seats.order + (seats.extras if count > positions else [])
        shape = seats.sub_nodes, seats.switches
        tried.append((seats.moved, Places(shape, order, shared, cost, ring)))
    return min(tried, key=lambda each: (each[1].cost, each[0]))[1]


def _seated(real: list[list[int]], upper: int, switch_of: np.ndarray, sub_nodes: int, switches: int) -> _Seats:
    seats = _Seats(sub_nodes, switches)
    left = [list(ranks) for ranks in real]
    free: list[list[int]] = []  # of each half
    for first, mine in ((0, left[:upper]), (switches // 2, left[upper:])):
        mine.sort(key=len, reverse=True)  # the same lists as in `left`
        places = list(range(first * sub_nodes, (first + switches // 2) * sub_nodes))
        for number, ranks in enumerate(mine[: switches // 2]):
            for place in places[number * sub_nodes : (number + 1) * sub_nodes]:
                if ranks:
                    seats.order[place] = ranks.pop(0)
        free.append([place for place in places if seats.order[place] == NO_RANK])
        seats.moved += len(free[-1])
    halves = (left[:upper], left[upper:])
    for mine, other, places in ((*halves, free[0]), (*halves[::-1], free[1])):
        for place in places:  # from the own half if it has any rank left
            source = max(mine, key=len, default=[]) or max(other, key=len, default=[])
            seats.order[place] = source.pop(0)
    _hand_over(seats, left, upper, switch_of)
    return seats


def _in_blocks(real: list[list[int]], upper: int, switch_of: np.ndarray) -> _Seats:
    """The ranks of a switch swap with each other first."""
    left: list[list[int]] = [[] for _ in real]
    inner = [list(ranks) for ranks in real]
    positions = 1 << (len(switch_of).bit_length() - 1)
    for _ in range(len(switch_of) - positions):
        most = max(range(len(inner)), key=lambda switch: len(inner[switch]))
        left[most].append(inner[most].pop())
    by_place = [rank for ranks in inner for rank in ranks]
    seats = _Seats(positions // 2, 2, moved=positions)
    seats.order = [by_place[place] for place in _mapping(seats)]
    _hand_over(seats, left, upper, switch_of)
    return seats


def _mapping(seats: _Seats) -> list[int]:
    """The place at each position."""
    from netfold import _core

    return _core.rank_mapping(seats.sub_nodes, seats.switches)


def _hand_over(seats: _Seats, left: list[list[int]], upper: int, switch_of: np.ndarray) -> None:
    """Give every rank that is left a rank with a position: at its own switch, else over the cable that is used
    least."""
    free: dict[int, list[int]] = {}  # by real switch: positions of ranks that get no other's elements yet
    for place, rank in enumerate(seats.order):
        free.setdefault(int(switch_of[rank]), []).append(place)
    used: dict[tuple[int, int], int] = {}
    waiting = []
    for switch, ranks in enumerate(left):
        for rank in ranks:
            if free.get(switch):
                seats.extras[free[switch].pop(0)] = rank
            else:
                waiting.append((switch, rank))
    for switch, rank in waiting:
        there = min(
            (other for other, places in free.items() if places),
            key=lambda other: ((other < upper) == (switch < upper), used.get((switch, other), 0), -len(free[other])),
        )
        used[switch, there] = used.get((switch, there), 0) + 1
        seats.extras[free[there].pop(0)] = rank


def _cost(seats: _Seats, switch_of: np.ndarray, upper: int, switches: int) -> tuple[float, int]:
    """The time of an all-reduce, in times of the whole tensor over one cable, and the most connections on one cable."""
    mapping = np.array(_mapping(seats))
    at_place = np.empty(len(mapping), dtype=np.int64)
    at_place[mapping] = switch_of[seats.order]
    places = np.arange(len(mapping))
    cost, most = 0.0, 0
    part, distance = 2.0, 1  # what both halves of the all-reduce send at this distance
    while distance < len(mapping):
        part /= 2
        load = _load(at_place, at_place[places ^ distance], upper, switches)
        cost += part * max(1, load)
        most = max(most, load)
        distance *= 2
    extras = [(rank, partner) for rank, partner in zip(seats.extras, seats.order, strict=True) if rank != NO_RANK]
    if extras:
        ends = switch_of[np.array(extras)]
        load = max(_load(ends[:, 0], ends[:, 1], upper, switches), _load(ends[:, 1], ends[:, 0], upper, switches))
        cost += 2.0 * max(1, load)
        most = max(most, load)
    return cost, most


def _load(here: np.ndarray, there: np.ndarray, upper: int, switches: int) -> int:
    """The most connections on one cable, in one direction. Those between switches of one half take two cables: the
    destination says over which switch of the other half (wiring.py)."""
    apart = here != there
    here, there = here[apart], there[apart]
    same = (here < upper) == (there < upper)
    hops = [here[~same] * switches + there[~same]]
    if same.any():
        a, b = here[same], there[same]
        lower = switches - upper
        middle = np.where(b < upper, upper + b % max(lower, 1), (b - upper) % max(upper, 1))
        hops += [a * switches + middle, middle * switches + b]
    cables = np.concatenate(hops)
    return int(np.unique(cables, return_counts=True)[1].max()) if len(cables) else 0
