"""The machine: cores, memory pages, namespaces."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from netfold.cli.checks import MISSING, OK, SLOW, Check
from netfold.lab import userns

CORES_WANTED = 4
TIMEOUT_S = 10
PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
YAMA = Path("/proc/sys/kernel/yama/ptrace_scope")
YAMA_ADVICE = "sysctl kernel.yama.ptrace_scope=1"


def cores() -> list[Check]:
    """A worker's progress thread and a switch's shard each want one of their own."""
    count = len(os.sched_getaffinity(0))
    if count >= CORES_WANTED:
        return [Check("cores", OK, str(count))]
    return [Check("cores", SLOW, f"{count}: training, progress and switch share them", "run the switch on another box")]


def pages() -> list[Check]:
    """Huge pages for buffers, which ask for them."""
    try:
        chosen = PAGES.read_text().partition("[")[2].partition("]")[0]
    except OSError:
        chosen = "none"
    if chosen in ("always", "madvise"):
        return [Check("huge pages", OK, f"transparent, {chosen}")]
    return [Check("huge pages", SLOW, f"transparent huge pages: {chosen}", f"echo madvise > {PAGES}")]


def tracing() -> list[Check]:
    """An agent reads and writes a worker's memory, as a debugger does."""
    try:
        scope = int(YAMA.read_text())
    except (OSError, ValueError):
        scope = 0
    if scope < 2 or os.geteuid() == 0:
        return [Check("agents", OK, "may reach their workers' memory")]
    return [Check("agents", SLOW, f"kernel.yama.ptrace_scope is {scope}: no NETFOLD_ENGINE=agent", YAMA_ADVICE)]


def namespaces() -> list[Check]:
    """What the lab is built of."""
    if not userns.lacking():
        return [Check("namespaces", OK, "as root")]
    try:
        tried = subprocess.run(
            ["unshare", "--user", "--map-root-user", "--net", "--mount", "true"],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        failure = tried.stderr.strip() if tried.returncode else ""
    except (OSError, subprocess.TimeoutExpired) as error:
        failure = str(error)
    if failure:
        return [Check("namespaces", MISSING, f"no lab without them: {failure}", userns.ADVICE)]
    return [Check("namespaces", OK, "without root, in a user namespace")]
