"""The machine: cores, memory pages, namespaces."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from netfold import namespace_rights
from netfold.cli.checks import MISSING, OK, SLOW, Check

CORES_WANTED = 4
TIMEOUT_S = 10
PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
YAMA = Path("/proc/sys/kernel/yama/ptrace_scope")
YAMA_ADVICE = "sysctl kernel.yama.ptrace_scope=1"


def cores() -> list[Check]:
    """A worker's progress thread and a switch's shard each need a core of their own."""
    count = len(os.sched_getaffinity(0))
    if count >= CORES_WANTED:
        return [Check("cores", OK, str(count))]
    return [
        Check(
            "cores",
            SLOW,
            f"{count}: the training, progress and switch threads share them",
            "run the switch on another machine",
        )
    ]


def pages() -> list[Check]:
    """Huge pages: the buffers ask the kernel for them."""
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
    return [
        Check("agents", SLOW, f"kernel.yama.ptrace_scope is {scope}: NETFOLD_ENGINE=agent cannot work", YAMA_ADVICE)
    ]


def namespaces() -> list[Check]:
    """Namespaces: the lab needs them."""
    if not namespace_rights.lacking():
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
        return [Check("namespaces", MISSING, f"the lab cannot run without them: {failure}", namespace_rights.ADVICE)]
    return [Check("namespaces", OK, "without root, in a user namespace")]
