"""The gain that a switch brings, by its link: the figures of eight workers, and the limits."""

from __future__ import annotations

import pytest

from netfold.capacity import best_share, sent_among, times_as_fast


@pytest.mark.parametrize(
    ("links", "share", "time"), [(1, 0.20, 1.60), (2, 0.37, 1.47), (4, 0.64, 1.27), (8, 1.0, 1.0), (80, 1.0, 1.0)]
)
def test_eight_workers(links: float, share: float, time: float) -> None:
    """`time`: of an all-reduce, in the time that a worker's link takes for the tensor; without a switch 1.75."""
    assert best_share(8, 1e9, links * 1e9 / 8) == pytest.approx(share, abs=0.005)
    assert sent_among(8) / times_as_fast(8, 1e9, links * 1e9 / 8) == pytest.approx(time, abs=0.01)


@pytest.mark.parametrize("world", [2, 3, 8, 64])
def test_no_switch_makes_it_slower(world: int) -> None:
    for links in (0.01, 0.5, 1, 2, world, 2 * world):
        assert 1 <= times_as_fast(world, 25e6, links * 25e6 / world) <= sent_among(world) + 1e-9
