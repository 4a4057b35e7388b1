"""A stop-watch that leaves no gap: every moment of a step belongs to one of its parts, so that the parts add up."""

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
"""Loading: waiting for the batch. Skew: waiting for slower workers, which no network could hide. Exposed: waiting for
communication that computation does not hide. Update: of the weights."""


class Laps:
    """Seconds by part, and when each part was last at its end; each lap ends where the next begins."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(PARTS, 0.0)
        self.ended: dict[str, float] = {}
        self._last = time.monotonic()

    def end(self, part: str) -> None:
        """What ran since the last lap ended was this part."""
        now = time.monotonic()
        self.seconds[part] += now - self._last
        self._last = self.ended[part] = now


def part_skew_from_exposed(seconds: dict[str, float], computed: float, all_computed: float) -> dict[str, float]:
    """A worker whose backward ended at `computed` waits for its peers until `all_computed`, when that of the last one
    did, whatever the network does: that much of what was taken for exposed is skew."""
    skew = min(seconds[EXPOSED], all_computed - computed)
    return seconds | {SKEW: seconds[SKEW] + skew, EXPOSED: seconds[EXPOSED] - skew}
