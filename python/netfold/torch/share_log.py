"""Log messages about the share of large tensors that goes through the switch (algorithm `split`)."""

from __future__ import annotations

from collections.abc import Callable

from netfold.log import logger

CHANGE = 0.05  # of a tensor; a smaller change of the share is not worth a line

Shares = Callable[[], tuple[float, float, float]]
"""The switch's share, how fast it takes data from a worker, and how fast a worker's link is (bytes/s). 0: not known."""


class ShareLog:
    """Called before each all-reduce: logs the share once it is measured, and whenever it has changed by CHANGE."""

    def __init__(self, shares: Shares) -> None:
        self._shares = shares
        self._said = -1.0

    def __call__(self) -> None:
        """Look at the share, and log it if it is news."""
        of_switch, switch_bytes_s, link_bytes_s = self._shares()
        if of_switch == 0 or switch_bytes_s == 0 or abs(of_switch - self._said) < CHANGE:
            return
        self._said = of_switch
        logger.info(
            "netfold: the switch folds %.0f%% of each large tensor, the ranks the rest: the switch takes %.1f MB/s "
            "from a worker, and a worker's link carries %.1f MB/s",
            100 * of_switch,
            switch_bytes_s / 1e6,
            link_bytes_s / 1e6,
        )
