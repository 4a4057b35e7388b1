"""Ranks that fold over RoCE, through a switch that sees their writes to each other.

Every rank publishes its endpoint information, or the error that it met, through torch's store. Then each rank connects
to its neighbours in the ring.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from torch._C._distributed_c10d import Store

from netfold import _core
from netfold.engines import RoceEngine
from netfold.torch import store_values

KEY = "netfold/roce/"
JOB_KEY = "netfold/roce-job/"
JOBS = 1 << 16
_held: set[int] = set()  # jobs of this process's groups, where this process is rank 0


def take_job(place: str) -> int:
    """The number of a new group's job, decided by rank 0: the one that NETFOLD_ROCE names, or the next one that no
    group of this process has. A number that was given back is taken again, in a later epoch: a switch keeps few
    jobs."""
    _, _, _, first, *_ = _core.parse_roce_place(place)
    job = next(number % JOBS for number in range(first, first + JOBS) if number % JOBS not in _held)
    _held.add(job)
    return job


def agree_on_job(store: Store, rank: int, place: str, timeout_s: float) -> int:
    """The number that rank 0 takes for a further job of a group. Raises RuntimeError if rank 0 does not come within the
    timeout (seconds)."""
    if rank == 0:
        store.set(f"{JOB_KEY}0", str(take_job(place)))
    [job] = store_values.of_all_ranks(store, JOB_KEY, 1, timeout_s)
    return int(job)


def give_back(job: int) -> None:
    """The group with this job has ended."""
    _held.discard(job)


def join(store: Store, rank: int, world: int, timeout_s: float, open_engine: Callable[[], RoceEngine]) -> RoceEngine:
    """Open this rank's endpoint and connect it, within the timeout (seconds).

    Raises NetfoldError if the endpoint cannot open (the interface is missing, the process may not), and RuntimeError
    that names the rank that failed or did not come.
    """
    try:
        engine = open_engine()
    except Exception as error:
        store.set(f"{KEY}{rank}", json.dumps({"error": str(error)}))
        raise
    try:
        store.set(f"{KEY}{rank}", json.dumps({"address": engine.address}))
        said = [json.loads(value) for value in store_values.of_all_ranks(store, KEY, world, timeout_s)]
        for other, each in enumerate(said):
            if "error" in each:
                raise RuntimeError(f"netfold: rank {other} could not open its RoCE endpoint: {each['error']}")
        engine.connect([each["address"] for each in said])
    except BaseException as error:
        engine.close(f"rank {rank} could not join: {error}"[:500])
        raise
    return engine
