"""A tensor that is divided: among several folding machines, and between them and the ranks, as `auto` divides it
(core/group/via_both/share.h).

A share x of the tensor goes through the machines, each takes an equal part; the ranks sum the rest among themselves, at
the same time. Each part takes at least as long as without the others. Each link takes at least as long as it needs
for the bits of all parts: a worker's link for x + 2 (n - 1) / n (1 - x) tensors, a machine's for n x of them. The best
share makes the longest of these times the shortest. It is convex in x, so that a search finds it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

DIVIDED_BYTES_MIN = 1 << 20  # smaller tensors take the faster way as a whole (decision 53)
SEARCH_STEPS = 24  # each leaves two thirds of the interval
Floats = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Way:
    """One way of a whole tensor: the bits on each resource, and the seconds of a part of it (0 to 1)."""

    bits: Floats
    seconds: Callable[[float], float]


@dataclass(frozen=True)
class Shared:
    """A tensor divided: the machines' share (0 to 1), seconds, and bits on each resource."""

    share: float
    seconds: float
    bits: Floats


def through_machines(ways: Sequence[Way], share: float) -> tuple[Floats, float]:
    """Bits and seconds of a share that all machines carry, each an equal part of it."""
    part = share / len(ways)
    return np.sum([part * way.bits for way in ways], axis=0), max(way.seconds(part) for way in ways)


def divided(ways: Sequence[Way], among_ranks: Way | None, capacity_bit_s: Floats, is_small: bool) -> Shared:
    """The best division. Without `among_ranks` all goes through the machines."""

    def at(share: float) -> Shared:
        bits, seconds = through_machines(ways, share)
        if among_ranks is not None and share < 1:
            bits = bits + (1 - share) * among_ranks.bits
            seconds = max(seconds if share > 0 else 0.0, among_ranks.seconds(1 - share))
        used = bits > 0
        return Shared(share, max(seconds, float(np.max(bits[used] / capacity_bit_s[used], initial=0.0))), bits)

    if among_ranks is None:
        return at(1.0)
    low, high = 0.0, 1.0
    whole = [at(low), at(high)]
    if is_small:
        return min(whole, key=lambda one: one.seconds)
    for _ in range(SEARCH_STEPS):
        third = (high - low) / 3
        if at(low + third).seconds <= at(high - third).seconds:
            high -= third
        else:
            low += third
    return min([*whole, at((low + high) / 2)], key=lambda one: one.seconds)
