"""The flow simulator: exact where a formula is, the plain solver's rates everywhere, errors that name the culprit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netfold import _core

RATE = 100e9
BIGRAPH = _core.Topology.bigraph(4, 16, rate_bit_s=RATE)
SHAPE = {"sub_nodes": 4, "switches": 16}


def simulate(algorithm: str, count: int, **options: object) -> dict[str, object]:
    return _core.simulate(BIGRAPH, algorithm, count, spread="destination", **{**SHAPE, **options})


@pytest.mark.parametrize("start", ["lock-step", "own-receive", "rendezvous"])
@pytest.mark.parametrize(("algorithm", "steps"), [("ring", 126), ("hdrm", 12)])
def test_what_has_links_of_its_own_takes_the_bound(algorithm: str, steps: int, start: str) -> None:
    found = simulate(algorithm, 1 << 16, start=start, step_latency_s=7e-6)
    assert found["time_s"] == pytest.approx(steps * 7e-6 + 2 * 63 / 64 * (1 << 16) * 32 / RATE, rel=1e-9)


def test_four_pairs_on_one_cable_take_four_times_as_long() -> None:
    found = simulate("halving-doubling", 1 << 16, start="lock-step")
    within = 2 * (1 / 2 + 1 / 4)  # of the tensor: distances 1 and 2 stay at one switch
    across = 2 * 4 * (1 / 8 + 1 / 16 + 1 / 32 + 1 / 64)
    assert found["time_s"] == pytest.approx((within + across) * (1 << 16) * 32 / RATE, rel=1e-9)


@st.composite
def flows(draw: st.DrawFn) -> tuple[list[float], list[list[int]], list[float]]:
    capacities = draw(st.lists(st.integers(1, 8).map(float), min_size=1, max_size=6))
    path = st.lists(st.integers(0, len(capacities) - 1), min_size=1, max_size=4)
    paths = draw(st.lists(path, min_size=1, max_size=8))
    sizes = draw(st.lists(st.integers(1, 50).map(float), min_size=len(paths), max_size=len(paths)))
    return capacities, paths, sizes


def plainly(capacities: list[float], paths: list[list[int]], sizes: list[float]) -> list[float]:
    """When each flow ends: everything computed anew after each end."""
    left, ends, now = dict(enumerate(sizes)), [0.0] * len(sizes), 0.0
    while left:
        order = sorted(left)
        rates = dict(zip(order, _core.max_min(np.array(capacities), [paths[i] for i in order]), strict=True))
        step = min(left[i] / rates[i] for i in order)
        now += step
        for i in order:
            left[i] -= rates[i] * step
            if left[i] <= 1e-9 * sizes[i]:
                ends[i] = now
                del left[i]
    return ends


@settings(deadline=None, max_examples=200)
@given(flows())
def test_flows_end_when_the_plain_solver_says(case: tuple[list[float], list[list[int]], list[float]]) -> None:
    capacities, paths, sizes = case
    first = np.cumsum([0, *map(len, paths)]).astype(np.int32)
    path = np.array([resource for each in paths for resource in each], dtype=np.int32)
    found = _core.simulate_flows(np.array(capacities), np.array(sizes), first, path)
    assert found["end_s"] == pytest.approx(plainly(capacities, paths, sizes), rel=1e-6)
