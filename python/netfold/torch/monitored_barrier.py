"""A barrier whose errors name the ranks that did not come: rank 0 looks for them in the group's store.

It moves nothing through the engine, so it finds out who is missing also where a collective hangs. The sentences are
those of torch's own monitored barrier.
"""

from __future__ import annotations

import json
import time
from datetime import timedelta

from torch._C._distributed_c10d import Store

KEY = "netfold/monitored-barrier"
LOOK_S = 0.01
GRACE_S = 5.0  # for rank 0's answer, beyond the timeout that it waits for the others


class MonitoredBarrier:
    """The monitored barriers of one rank."""

    def __init__(self, store: Store, rank: int, world: int) -> None:
        self._store = store
        self._rank = rank
        self._world = world
        self._number = 0

    def wait(self, timeout_s: float, wait_all_ranks: bool) -> None:
        """Block until all ranks have come, at most `timeout_s` (seconds). Raises RuntimeError that names the first rank
        that did not, or with `wait_all_ranks` all of them."""
        self._number += 1
        key = f"{KEY}/{self._number}"
        if self._rank == 0:
            self._watch(key, timeout_s, wait_all_ranks)
        else:
            self._come(key, timeout_s)

    def _watch(self, key: str, timeout_s: float, wait_all_ranks: bool) -> None:
        deadline = time.monotonic() + timeout_s
        missing: list[int] = []
        for rank in range(1, self._world):
            if self._has_come(f"{key}/{rank}", deadline):
                continue
            missing.append(rank)
            if not wait_all_ranks:
                break
        said = ""
        if missing:
            who = f"Rank{'s' if wait_all_ranks else ''} {', '.join(map(str, missing))}"
            said = f"{who} failed to pass monitoredBarrier in {round(timeout_s * 1000)} ms"
        if missing and timeout_s <= 0:
            said = f"Rank 0 timed out in monitoredBarrier after 0 ms: {said}"
        self._store.set(f"{key}/verdict", json.dumps(said))
        if said:
            raise RuntimeError(f"netfold: [Rank 0]: {said}")

    def _has_come(self, key: str, deadline: float) -> bool:
        while not self._store.check([key]):
            if time.monotonic() >= deadline:
                return False
            time.sleep(LOOK_S)
        return True

    def _come(self, key: str, timeout_s: float) -> None:
        self._store.set(f"{key}/{self._rank}", "here")
        try:
            self._store.wait([f"{key}/verdict"], timedelta(seconds=timeout_s + GRACE_S))
            said = json.loads(self._store.get(f"{key}/verdict"))
        except RuntimeError as error:
            said = f"rank 0 said nothing within {timeout_s + GRACE_S:g} s ({error})"
        if said:
            raise RuntimeError(
                f"netfold: Rank {self._rank} successfully reached monitoredBarrier, but received errors while waiting "
                f"for send/recv from rank 0. Please check rank 0 logs for faulty rank: {said}"
            )
