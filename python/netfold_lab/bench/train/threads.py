"""CPU time by thread, from /proc/self/task: of the thread that computes, and of all others. Processes that this one
started (an agent) count like its threads.

The kernel counts in ticks (10 ms), and separates user from system time by samples at its timer interrupts. Only the sum
of many steps is exact.
"""

from __future__ import annotations

import contextlib
import os
import threading
from dataclasses import dataclass
from pathlib import Path

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
TASKS = Path("/proc/self/task")
GONE = contextlib.suppress(FileNotFoundError, ProcessLookupError)  # the thread has ended


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
    """CPU time of one thread so far, or of all threads for a process's folder."""
    fields = (task / "stat").read_text().rpartition(")")[2].split()
    return Spent(int(fields[11]) * TICK_S, int(fields[12]) * TICK_S)


def by_role(loaders: frozenset[int] = frozenset()) -> dict[str, Spent]:
    """CPU time of this process so far: `compute` is the main thread, `loading` the threads with these IDs,
    `communication` the other threads and the processes that they started."""
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
