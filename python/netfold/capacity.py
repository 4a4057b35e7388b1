"""The gain that a switch brings, by what its link and the workers' links carry.

A worker's link carries B bytes/s each way, the switch takes c bytes/s from each of n workers. Of a tensor of S bytes a
share x through the switch takes x S / c, and loads the worker's link with x S + a (1 - x) S bytes, where a = 2 (n - 1)
/ n is what a worker sends if the workers sum among themselves. The best share makes both end together
(core/group/via_both/share.h).
"""

from __future__ import annotations


def sent_among(world: int) -> float:
    """Bytes that a worker sends for each byte of a tensor, if the workers sum among themselves."""
    return 2 * (world - 1) / world


def best_share(world: int, link_bytes_s: float, switch_bytes_s: float) -> float:
    """The share of each large tensor for the switch, 0 to 1. `switch_bytes_s` is what it takes from one worker."""
    sent, taken = sent_among(world), min(switch_bytes_s, link_bytes_s)
    return sent / (link_bytes_s / taken + sent - 1)


def times_as_fast(world: int, link_bytes_s: float, switch_bytes_s: float) -> float:
    """How many times as fast a large all-reduce is with the switch as without it."""
    share, sent = best_share(world, link_bytes_s, switch_bytes_s), sent_among(world)
    return sent / (share + sent * (1 - share))
