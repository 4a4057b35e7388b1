"""Pieces of a collective's time: a start, a rate, and what filling a pipeline costs.

A collective cuts S bytes into chunks, which follow each other through all hops. With a rate of B bytes/s, a delay of p
for each chunk, and chunks of the best size, it takes

    t = a + S / B + min(2 sqrt(p S / B), f)

a: until the smallest message has arrived everywhere. 2 sqrt(p S / B): the best compromise between many chunks, each of
which costs p, and long ones, which fill the hops late. It stops growing at f, where chunks have their largest size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Piece:
    """One algorithm with one protocol. Seconds, and bytes of the tensor per second (nccl-tests' algbw)."""

    algorithm: str
    protocol: str
    start_s: float
    bytes_s: float
    chunk_s: float
    fill_s: float
    slice_part: float = 0.0  # 0: chunks of the best size

    def seconds(self, size_bytes: float) -> float:
        """The time of a tensor of so many bytes."""
        moving = size_bytes / self.bytes_s
        filling = self.slice_part * moving if self.slice_part else 2 * math.sqrt(self.chunk_s * moving)
        return self.start_s + moving + min(filling, self.fill_s)


def fastest(pieces: Sequence[Piece], size_bytes: float) -> Piece:
    """The piece with the shortest time."""
    return min(pieces, key=lambda each: each.seconds(size_bytes))
