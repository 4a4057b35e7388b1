"""Jobs that come, go and die at a switch, each rank a process of its own, and strangers beside them, until they are
told to stop."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import socket
import threading
import time
from collections import Counter
from contextlib import suppress
from functools import partial
from multiprocessing.connection import wait

import numpy as np

from netfold import _core

# The fork server is one for all tests of a process. So nothing is preloaded here: torch_ranks says what it loads.
_context = multiprocessing.get_context("forkserver")

JOB_ENDS_IN_S = 240.0  # on a busy machine too; a hung rank is noticed after four heartbeats
FOLDED, FAILED, REFUSED = 0, 3, 4  # exit statuses of a rank
LEAVES, DIES, HANGS, LOSES_PACKETS, IS_REFUSED = ENDS = ("leaves", "dies", "hangs", "loses packets", "is refused")
WEIGHTS = (60, 15, 2, 10, 5)


def _rank(switch: str, secret: str, job: str, world: int, rank: int, end: str, rounds: int, count: int) -> None:
    """A rank that folds, and checks each sum. Rank 0 is the one that the job's end concerns."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ours = end if rank == 0 else LEAVES
    options = {"secret": "wrong" if ours == IS_REFUSED else secret, "require_auth": True, "timeout_s": 30.0}
    if end == LOSES_PACKETS:
        options["faults"] = f"loss=0.02,seed={rounds}"
    values, sums = np.full(count, rank + 1.0, np.float32), np.zeros(count, np.float32)
    try:
        group = _core.SwitchGroup(switch, job, world, rank, **options)
        for step in range(rounds):
            if step == rounds // 2 and ours in (DIES, HANGS):
                os.kill(os.getpid(), signal.SIGKILL if ours == DIES else signal.SIGSTOP)
            group.wait(group.all_reduce(values.ctypes.data, sums.ctypes.data, count, "fp32", "fp32", awaited=True))
            assert (sums == world * (world + 1) / 2).all(), sums
            time.sleep(0.01)  # a step's computation
        group.close()
    except _core.NetfoldError as error:
        os._exit(REFUSED if error.code == "auth" else FAILED)
    os._exit(FOLDED)


class Load:
    """Jobs in some lanes, one after another in each, and one job in a lane of its own that runs all the time. Start it
    with `with`, which waits for the last job. `ended` counts jobs by their end, and `ranks` all of their ranks; `wrong`
    says what should not be."""

    def __init__(self, switch: str, data_port: int, secret: str, seed: int, lanes: int, pause_s: float) -> None:
        self._switch, self._data_port, self._secret, self._pause_s = switch, data_port, secret, pause_s
        self._is_over, self._counting = threading.Event(), threading.Lock()
        # Each start looks at all processes that were started. Two threads that read a process's end at once would read
        # one status, and one of them nothing (255).
        self._reading = threading.Lock()
        self.ended: Counter[str] = Counter()
        self.ranks = 0
        self.wrong: list[str] = []
        works = [partial(self._lane, lane, random.Random(seed + lane)) for lane in range(lanes)]
        self._lanes = [threading.Thread(target=work) for work in (*works, self._steady, self._strangers)]

    def __enter__(self) -> Load:
        for lane in self._lanes:
            lane.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for lane in self._lanes:
            lane.join()

    def _lane(self, lane: int, draw: random.Random) -> None:
        number = 0
        while not self._is_over.wait(self._pause_s * draw.uniform(0.5, 1.5)):
            number += 1
            [end] = draw.choices(ENDS, WEIGHTS)
            count = int(10 ** draw.uniform(2, 5.5))
            world = 1 if end == IS_REFUSED else draw.randint(2, 4)
            self._job(f"lane{lane}-{number}", world, end, draw.randint(4, 100), count)

    def _steady(self) -> None:
        number = 0
        while not self._is_over.is_set():
            number += 1
            self._job(f"steady-{number}", 2, LEAVES, 300, 65536)

    def _job(self, name: str, world: int, end: str, rounds: int, count: int) -> None:
        ranks = [
            _context.Process(target=_rank, args=(self._switch, self._secret, name, world, rank, end, rounds, count))
            for rank in range(world)
        ]
        for rank in ranks:
            with self._reading:
                rank.start()
        deadline = time.monotonic() + JOB_ENDS_IN_S
        for rank in ranks[1:] if end == HANGS else ranks:
            wait([rank.sentinel], max(0.0, deadline - time.monotonic()))
        statuses = []
        for rank in ranks:
            with self._reading:
                if rank.is_alive():
                    rank.kill()
                    rank.join()
                statuses.append(rank.exitcode)
                rank.close()
        first = {DIES: -signal.SIGKILL, HANGS: -signal.SIGKILL, IS_REFUSED: REFUSED}.get(end, FOLDED)
        others = FOLDED if first == FOLDED else FAILED
        if statuses != [first] + [others] * (world - 1):
            self.wrong.append(f"{name}, which {end}: {statuses}")
        with self._counting:
            self.ended[end] += 1
            self.ranks += world

    def _strangers(self) -> None:
        """Programs that know no secret: packets of nonsense, and connections that say nothing or nonsense."""
        draw = random.Random(0)
        host, _, port = self._switch.rpartition(":")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
            while not self._is_over.wait(0.2):
                for each in (int(port), self._data_port) * 5:  # path probes, data
                    with suppress(OSError):
                        datagrams.sendto(draw.randbytes(draw.randint(0, 1400)), (host, each))
                with suppress(OSError), socket.create_connection((host, int(port)), 5.0) as connection:
                    connection.sendall(draw.randbytes(draw.choice((0, 3, 500))))
