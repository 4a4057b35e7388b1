"""A timer without gaps: every moment of a step belongs to one of its parts, so the parts add up."""

from __future__ import annotations

import time

LOADING, FORWARD, BACKWARD, SKEW, EXPOSED, UPDATE = PARTS = (
    "loading",
    "forward",
    "backward",
    "skew",
    "exposed",
    "update",
)
"""Loading: waiting for the batch. Skew: waiting for slower workers, which no network can hide. Exposed: waiting for
communication that computation does not hide. Update: updating the weights."""


class StepTimer:
    """Seconds by part, and the time at which each part last ended. Each interval ends where the next begins."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(PARTS, 0.0)
        self.ended: dict[str, float] = {}
        self._last = time.monotonic()

    def end(self, part: str) -> None:
        """Count the time since the last interval as this part."""
        now = time.monotonic()
        self.seconds[part] += now - self._last
        self._last = self.ended[part] = now


def part_skew_from_exposed(seconds: dict[str, float], computed: float, all_computed: float) -> dict[str, float]:
    """Move time from exposed to skew. A worker whose backward ended at `computed` waits at least until `all_computed`,
    when the last worker's backward ended. The network cannot change that part of the wait."""
    skew = min(seconds[EXPOSED], all_computed - computed)
    return seconds | {SKEW: seconds[SKEW] + skew, EXPOSED: seconds[EXPOSED] - skew}
