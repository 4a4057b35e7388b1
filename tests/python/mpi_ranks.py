"""The ranks of an MPI program in test_mpi.py: `python mpi_ranks.py NAME`, under mpirun. Each checks its own."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
from mpi4py import MPI

WORLD = MPI.COMM_WORLD
TYPES = (np.float32, np.int32, np.uint32, np.float64, np.int64)


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def sums(comm: MPI.Comm = WORLD) -> None:
    """Types and operations with and without support in Netfold, in place and out of place."""
    ranks = sum(range(comm.size))
    for count in (1, 7, 1000, 100_003):
        expected = comm.size * np.arange(count) + ranks
        for dtype in TYPES:
            mine = (np.arange(count) + comm.rank).astype(dtype)
            result = np.zeros_like(mine)
            comm.Allreduce(mine, result)
            assert (result == expected).all(), (count, dtype)
            comm.Allreduce(MPI.IN_PLACE, mine)
            assert (mine == expected).all(), (count, dtype)
            comm.Allreduce(MPI.IN_PLACE, result, MPI.MAX)
            assert (result == expected).all(), (count, dtype)


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
