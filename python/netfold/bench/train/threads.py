"""CPU time by thread, from /proc/self/task: what the thread that computes spent, and what all others did. Processes
that this one started, an agent, count as its threads do.

The kernel counts in ticks (10 ms) and splits user from system time by what it met at its timer's interrupts: add up
many steps before believing a digit.
"""

from __future__ import annotations

import contextlib
import os
import threading
from dataclasses import dataclass
from pathlib import Path

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
TASKS = Path("/proc/self/task")
GONE = contextlib.suppress(FileNotFoundError, ProcessLookupError)  # it ended meanwhile


@dataclass(frozen=True)
class Spent:
    """CPU seconds in user and in kernel mode."""

    user_s: float = 0.0
    system_s: float = 0.0

    def __add__(self, other: Spent) -> Spent:
        return Spent(self.user_s + other.user_s, self.system_s + other.system_s)

    def __sub__(self, earlier: Spent) -> Spent:
        return Spent(self.user_s - earlier.user_s, self.system_s - earlier.system_s)


def spent_by(task: Path) -> Spent:
    """What one thread (or with a process's folder all of them) has spent so far."""
    fields = (task / "stat").read_text().rpartition(")")[2].split()
    return Spent(int(fields[11]) * TICK_S, int(fields[12]) * TICK_S)


def by_role(loaders: frozenset[int] = frozenset()) -> dict[str, Spent]:
    """This process so far: `compute` is the main thread, `loading` those with these ids, `communication` the others and
    the processes that they started."""
    compute = threading.main_thread().native_id
    roles = dict.fromkeys(("compute", "loading", "communication"), Spent())
    for task in TASKS.iterdir():
        thread = int(task.name)
        role = "compute" if thread == compute else "loading" if thread in loaders else "communication"
        with GONE:
            roles[role] += spent_by(task)
            for child in (task / "children").read_text().split():
                with GONE:
                    roles["communication"] += spent_by(Path("/proc", child))
    return roles
