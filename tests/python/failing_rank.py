"""A rank of test_random_failures.py: it forms groups and all-reduces in them, as lines on standard input say.

Each line is a JSON object. First a job: job, kind, world, rank, host, switch, timeout_s, elastic and `sums`, the
number of all-reduces; 0: until one fails. The rank answers with its `address` if the kind needs it, and the next line
has the `addresses` of all. Then it says `formed`; at the end `done`, or `error`, `code`, `culprit` and `at`
(CLOCK_MONOTONIC, in seconds).
When the group is closed it says `closed`, with the `threads` and file descriptors (`files`) of the process.
"""

from __future__ import annotations

import json
import random
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from netfold import _core
from netfold.errors import NetfoldError

PEERS, SWITCH, SPLIT = KINDS = ("peers", "switch", "split")
COUNTS = (1, 1000, 30_000, 200_000)  # fp32 elements
PAUSE_S = 0.02  # between two all-reduces, at most: a group is also idle at times
RUN_MOST_S = 30.0
AMONG_RANKS = ("ring", "halving-doubling", "direct")


def say(**what: Any) -> None:
    """One line to the test."""
    print(json.dumps(what), flush=True)


def form(order: dict[str, Any]) -> _core.PeerGroup | _core.SwitchGroup | _core.SplitGroup:
    """The group, formed. Raises NetfoldError."""
    rank, world, timeout_s = order["rank"], order["world"], order["timeout_s"]
    if order["kind"] == SWITCH:
        return _core.SwitchGroup(
            order["switch"], order["job"], world, rank, timeout_s=timeout_s, connect_timeout_s=timeout_s
        )
    listen = f"{order['host']}:0"
    group: _core.PeerGroup | _core.SplitGroup
    if order["kind"] == PEERS:
        group = _core.PeerGroup(rank, world, listen=listen, timeout_s=timeout_s, shm=False, elastic=order["elastic"])
    else:
        group = _core.SplitGroup(
            rank,
            world,
            listen=listen,
            timeout_s=timeout_s,
            shm=False,
            elastic=order["elastic"],
            switches=[order["switch"]],
            job=order["job"],
            connect_timeout_s=timeout_s,
        )
    say(address=group.address)
    group.connect(json.loads(sys.stdin.readline())["addresses"])
    return group


def all_reduce(group: Any, kind: str, number: int, world: int, rank: int) -> None:
    """All-reduce number `number`, checked. Raises NetfoldError, or ArithmeticError for a wrong sum."""
    values = np.full(COUNTS[number % len(COUNTS)], rank + 1.0, np.float32)
    sums = np.zeros_like(values)
    more = {}
    if kind == PEERS:
        more["algorithm"] = AMONG_RANKS[number % len(AMONG_RANKS)]
    elif kind == SPLIT:
        more["algorithm"] = "split"
    group.wait(group.all_reduce(values.ctypes.data, sums.ctypes.data, values.size, "fp32", "fp32", **more))
    if (sums != world * (world + 1) / 2).any():
        raise ArithmeticError(f"all-reduce {number}: a wrong sum")


def run(order: dict[str, Any]) -> None:
    """One job, from its forming to its end."""
    group = None
    pause = random.Random(order["rank"])
    deadline = time.monotonic() + RUN_MOST_S
    try:
        group = form(order)
        say(formed=time.monotonic())
        number = 0
        while order["sums"] == 0 or number < order["sums"]:
            if time.monotonic() > deadline:
                say(error=f"no error came in {RUN_MOST_S:g} s", code="none", culprit=-1, at=time.monotonic())
                break
            all_reduce(group, order["kind"], number, order["world"], order["rank"])
            number += 1
            time.sleep(pause.uniform(0, PAUSE_S))
        else:
            say(done=number)
    except NetfoldError as error:
        say(error=str(error), code=error.code, culprit=error.rank, at=time.monotonic())
    if group is not None:
        group.close()
    del group
    here = Path("/proc/self")
    say(
        closed=time.monotonic(),
        threads=len(list((here / "task").iterdir())),
        files=len(list((here / "fd").iterdir())),
    )


if __name__ == "__main__":
    say(ready=True)
    for line in sys.stdin:
        run(json.loads(line))
