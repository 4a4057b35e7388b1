"""A stop-watch that leaves no gap: every moment of a step belongs to one of its parts, so that the parts add up."""

from __future__ import annotations

import time

LOADING, FORWARD, BACKWARD, EXPOSED, UPDATE = PARTS = ("loading", "forward", "backward", "exposed", "update")
"""Loading: waiting for the batch. Exposed: waiting for communication that computation does not hide. Update: of the
weights."""


class Laps:
    """Seconds by part; each lap ends where the next begins."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(PARTS, 0.0)
        self._last = time.perf_counter()

    def end(self, part: str) -> None:
        """What ran since the last lap ended was this part."""
        now = time.perf_counter()
        self.seconds[part] += now - self._last
        self._last = now
