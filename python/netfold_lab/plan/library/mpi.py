"""Which all-reduce Open MPI runs: its switching points by ranks and bytes, without a user's rules.

The points are those of its fixed decisions for operations in any order (coll/tuned, version 6.1). They were measured on
other networks, so that the algorithm that they name is not always the fastest. The simulator knows the times.
"""

from __future__ import annotations

import math

NAME = "open-mpi"
# Open MPI's nonoverlapping is a reduce and a broadcast; its rabenseifner begins with the nearest partners
NONOVERLAPPING, DOUBLING, RING, RABENSEIFNER = "binomial", "recursive-doubling", "ring", "halving-doubling"
KIB = 1 << 10
Points = tuple[tuple[float, str], ...]
# For fewer ranks than the first number: (bytes, algorithm below them). "ring" is the segmented one, too.
SWITCHES: tuple[tuple[float, Points], ...] = (
    (
        4,
        (
            (8, RING),
            (4 * KIB, DOUBLING),
            (8 * KIB, RING),
            (16 * KIB, DOUBLING),
            (256 * KIB, RING),
            (math.inf, RABENSEIFNER),
        ),
    ),
    (8, ((16, RING), (8 * KIB, DOUBLING), (math.inf, RABENSEIFNER))),
    (16, ((8 * KIB, DOUBLING), (math.inf, RABENSEIFNER))),
    (32, ((64, RING), (4 * KIB, DOUBLING), (math.inf, RABENSEIFNER))),
    (64, ((128, RING), (math.inf, RABENSEIFNER))),
    (128, ((256 * KIB, DOUBLING), (math.inf, RABENSEIFNER))),
    (256, ((128 * KIB, NONOVERLAPPING), (256 * KIB, DOUBLING), (math.inf, RABENSEIFNER))),
    (512, ((4 * KIB, NONOVERLAPPING), (math.inf, RABENSEIFNER))),
    (2048, ((2 * KIB, NONOVERLAPPING), (16 * KIB, DOUBLING), (math.inf, RABENSEIFNER))),
    (4096, ((2 * KIB, NONOVERLAPPING), (4 * KIB, RING), (16 * KIB, DOUBLING), (math.inf, RABENSEIFNER))),
    (math.inf, ((2 * KIB, NONOVERLAPPING), (16 * KIB, RING), (32 * KIB, DOUBLING), (math.inf, RABENSEIFNER))),
)


def chosen(ranks: int, size_bytes: float) -> str:
    """The simulator's name of the algorithm that Open MPI runs."""
    points = next(points for below, points in SWITCHES if ranks < below)
    return next(algorithm for below, algorithm in points if size_bytes < below)
