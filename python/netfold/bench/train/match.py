"""The link's rate at which the overlapped baseline here is exposed to as much of its step as the paper's.

The other way to compare with "AI Smart NICs" (rates.py makes the links as fast beside the computation as its smart
NIC's). The paper's baseline had 100 Gbit/s and its software took longer than those allow, so links alone do not make a
baseline like it; here what its step consists of is alike, 0.379 of it exposed all-reduce (rates.py has the derivation).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

ROUNDS = 4  # each measures at a rate and finds the next: the first one or two are far off
STEPS = 5  # a round, the first not counted


def next_rate(rate_mbit_s: float, ring_s: float, step_s: float, exposed_s: float, wanted: float) -> float:
    """The rate at which `exposed_s` would be the part `wanted` of the step, if a ring that takes `ring_s` went on to
    hide as many seconds as now (or to take longer than its bound) and the rest of the step stayed as long as it is."""
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
    """The rate after ROUNDS. `ring_s`: the ring's bound at a rate; `measure`: a baseline's step there, and what is
    exposed of it, in seconds."""
    rate = first_mbit_s
    for _ in range(ROUNDS):
        step_s, exposed_s = measure(rate)
        rate = next_rate(rate, ring_s(rate), step_s, exposed_s, wanted)
    return rate
