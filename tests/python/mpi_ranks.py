"""The ranks of an MPI program in test_mpi.py: `python mpi_ranks.py NAME`, under mpirun. Each checks its own."""

from __future__ import annotations

import functools
import os
import sys
from pathlib import Path

import numpy as np
from mpi4py import MPI

from numbers_model import fold_pairwise, same_bits

WORLD = MPI.COMM_WORLD
INTEGERS = (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64)
TYPES = (np.float32, np.float64, *INTEGERS)
OPERATIONS = ((MPI.SUM, np.add), (MPI.PROD, np.multiply), (MPI.MIN, np.minimum), (MPI.MAX, np.maximum))
OF_BITS = ((MPI.BAND, np.bitwise_and), (MPI.BOR, np.bitwise_or), (MPI.BXOR, np.bitwise_xor))


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def values(rank: int, count: int, dtype: type) -> np.ndarray:
    """Their product over four ranks fits: what becomes of an overflow, MPI does not say, and Open MPI does both."""
    most = 3 if np.dtype(dtype).itemsize == 1 else 9
    return ((np.arange(count) * 7 + 3 * rank) % most + 1).astype(dtype)


def sums(comm: MPI.Comm = WORLD) -> None:
    """All types and operations of Netfold, in place and out of place, and some that it leaves to MPI."""
    for count in (1, 7, 1000, 100_003):
        for dtype in TYPES:
            all_values = [values(rank, count, dtype) for rank in range(comm.size)]
            mine = all_values[comm.rank]
            for operation, combine in OPERATIONS + (OF_BITS if dtype in INTEGERS else ()):
                expected, result = functools.reduce(combine, all_values), np.zeros_like(mine)
                comm.Allreduce(mine, result, operation)
                assert (result == expected).all(), (count, dtype, combine)
            in_place = mine.copy()
            comm.Allreduce(MPI.IN_PLACE, in_place)
            assert (in_place == functools.reduce(np.add, all_values)).all(), (count, dtype)
    truth, left = np.ones(1000, np.int32), np.zeros(1000, np.int32)
    comm.Allreduce(truth, left, MPI.LAND)
    assert (left == 1).all()


def communicators() -> None:
    """Communicators are created and freed many times: each has a group of its own, and no resources accumulate."""
    for _ in range(5):
        part = WORLD.Split(WORLD.rank % 2, -WORLD.rank)
        sums(part)
        copy = part.Dup()
        sums(copy)
        copy.Free()
        part.Free()
    sums(MPI.COMM_SELF)
    descriptors = open_files()
    for _ in range(20):
        copy = WORLD.Dup()
        copy.Allreduce(MPI.IN_PLACE, np.ones(1000, np.float32))
        copy.Free()
    assert open_files() <= descriptors + 2
    left_open = WORLD.Dup()  # MPI_Finalize closes it
    left_open.Allreduce(MPI.IN_PLACE, np.ones(1000, np.float32))


def progress() -> None:
    """A rank that waits in an all-reduce still moves messages that other ranks need before they reach it."""
    message = np.full(4 << 20, WORLD.rank, np.float64)  # too large to be sent before its receiver asks
    sent = WORLD.Isend(message, 1) if WORLD.rank == 0 else MPI.REQUEST_NULL
    if WORLD.rank == 1:
        WORLD.Recv(message, 0)
        assert (message == 0).all()
    one, pending = np.ones(1), np.zeros(1)
    request = WORLD.Iallreduce(one, pending)
    total = np.ones(1000, np.float32)
    WORLD.Allreduce(MPI.IN_PLACE, total)
    assert (total == WORLD.size).all()
    request.Wait()
    sent.Wait()
    assert pending[0] == WORLD.size, pending


def in_rank_order() -> None:
    """Sums of floats have the bits of the fold pairwise in rank order, as a switch gives them."""
    for count in (1, 1000, 100_003):
        mine = [np.random.default_rng([count, rank]).standard_normal(count, np.float32) for rank in range(WORLD.size)]
        expected, result = fold_pairwise(mine), np.zeros_like(mine[0])
        for _ in range(3):
            WORLD.Allreduce(mine[WORLD.rank], result)
            assert same_bits(result, expected), count


def through_nics() -> None:
    """One communicator at a time has the NICs. The others have the same bits."""
    mine = np.random.default_rng(WORLD.rank).standard_normal(70_003, np.float32)
    results = []
    for _ in range(3):
        comm, other = WORLD.Dup(), WORLD.Dup()
        for each in (comm, other):
            results.append(np.zeros_like(mine))
            each.Allreduce(mine, results[-1])
        comm.Free()
        other.Free()
    sums()
    assert all(same_bits(results[0], result) for result in results)


def different_settings() -> None:
    """Then MPI serves all ranks."""
    if WORLD.rank == 1:
        os.environ["NETFOLD_FORMAT"] = "bfp"
    sums()


def bfp() -> None:
    """The result is as exact as the format allows, and equal on every rank."""
    mine = np.random.default_rng(WORLD.rank).standard_normal(10_000).astype(np.float32)
    exact, result = np.zeros_like(mine), np.zeros_like(mine)
    WORLD.Reduce(mine, exact, root=0)
    WORLD.Allreduce(mine, result)
    first = result.copy()
    WORLD.Bcast(first)
    assert first.tobytes() == result.tobytes()
    if WORLD.rank == 0:
        error = np.abs(result - exact).max()
        assert 1e-4 < error < 0.5, error


def refused() -> None:
    """An error on every rank, for the handler of the communicator; its words go to standard error."""
    try:
        WORLD.Allreduce(MPI.IN_PLACE, np.ones(1000, np.float32))
    except MPI.Exception as error:
        assert "netfold: " in error.Get_error_string()
    else:
        raise AssertionError("it should have failed")


def different_counts() -> None:
    """MPI would fold the elements that it gets; Netfold's error names the ranks and their requests."""
    vector = np.ones(1000 + (WORLD.rank == 1), np.float32)
    try:
        WORLD.Allreduce(MPI.IN_PLACE, vector)
    except MPI.Exception as error:
        assert "1001" in error.Get_error_string()
    assert (vector == 1).all(), "it is as it was"


if __name__ == "__main__":
    globals()[sys.argv[1]]()
    print(f"rank {WORLD.rank} is content")
