"""Finds the link's rate at which the overlapped baseline is exposed for the same fraction of its step as the paper's.

This is the other way to compare with "AI Smart NICs" (rates.py scales the links to the computation as for its smart
NIC). The paper's baseline had links of 100 Gbit/s, but its software was slower than the links. So equal links do not
give an equal baseline. Here the parts of its step are equal: 0.379 of it is exposed all-reduce (rates.py has the
derivation).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

ROUNDS = 4  # each measures at a rate and computes the next; the first one or two are inexact
STEPS = 5  # in a round; the first is not counted


def next_rate(rate_mbit_s: float, ring_s: float, step_s: float, exposed_s: float, wanted: float) -> float:
    """The rate at which `exposed_s` would be the fraction `wanted` of the step. This assumes that a ring of `ring_s`
    still hides the same number of seconds (or exceeds its bound by as many), and that the rest of the step stays the
    same."""
    wanted_exposed_s = wanted / (1 - wanted) * (step_s - exposed_s)
    wanted_s = wanted_exposed_s + ring_s - exposed_s
    if wanted_s <= 0:
        wanted_s = ring_s * wanted_exposed_s / exposed_s
    return max(1.0, round(rate_mbit_s * ring_s / wanted_s))


def search(
    first_mbit_s: float,
    wanted: float,
    ring_s: Callable[[float], float],
    measure: Callable[[float], Sequence[float]],
) -> float:
    """The rate after ROUNDS rounds. `ring_s`: the ring's bound at a rate. `measure`: the baseline's step at a rate and
    its exposed part, in seconds."""
    rate = first_mbit_s
    for _ in range(ROUNDS):
        step_s, exposed_s = measure(rate)
        rate = next_rate(rate, ring_s(rate), step_s, exposed_s, wanted)
    return rate
