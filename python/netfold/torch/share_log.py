"""Log messages about the share of large tensors that goes through the switches (algorithm `split`)."""

from __future__ import annotations

from collections.abc import Callable

from netfold import capacity
from netfold.log import logger

CHANGE = 0.05  # of a tensor; a smaller change of the share is not worth a line

Shares = Callable[[], tuple[float, float, float]]
"""The share of all switches, how fast they take data from a worker, and how fast a worker's link is (bytes/s). 0: not
known."""


def log_news(news: list[tuple[str, str]]) -> None:
    """Log what has happened to switches: (name, why it is lost), or (name, "") for one that is back."""
    for name, why in news:
        if why:
            logger.warning(
                "netfold: the switch at %s is lost (%s): the ranks sum its share themselves until they have joined it "
                "again",
                name,
                why,
            )
        else:
            logger.warning("netfold: the switch at %s is back", name)


class ShareLog:
    """Called before each all-reduce: logs the share once it is measured, and whenever it has changed by CHANGE."""

    def __init__(self, shares: Shares, world: int, switches: int) -> None:
        self._shares = shares
        self._words = (
            ("switch folds", "takes", "the switch", "a switch whose link is")
            if switches == 1
            else (f"{switches} switches fold", "take", "the switches", "switches whose links are")
        )
        self._world = world
        self._said = -1.0

    def __call__(self) -> None:
        """Look at the share, and log it if it is news."""
        of_switch, switch_bytes_s, link_bytes_s = self._shares()
        if switch_bytes_s == 0 or abs(of_switch - self._said) < CHANGE:
            return
        self._said = of_switch
        fold, take, the_switch, faster = self._words
        if of_switch == 0 and capacity.best_share(self._world, link_bytes_s, switch_bytes_s) > CHANGE:
            logger.info(
                "netfold: the ranks sum large tensors without %s, which did not make them faster. Does a switch run on "
                "a rank's machine? There it shares the link of that rank. It is tried again after a while",
                the_switch,
            )
            return
        logger.info(
            "netfold: the %s %.0f%% of each large tensor, the ranks the rest: %s %s %.1f MB/s from a worker, and a "
            "worker's link carries %.1f MB/s; that makes large all-reduces %.2f times as fast as without %s, and %s "
            "fast enough would make them %.2f times as fast",
            fold,
            100 * of_switch,
            the_switch,
            take,
            switch_bytes_s / 1e6,
            link_bytes_s / 1e6,
            capacity.times_as_fast(self._world, link_bytes_s, switch_bytes_s),
            the_switch,
            faster,
            capacity.times_as_fast(self._world, link_bytes_s, link_bytes_s),
        )
