"""Ends processes of a lab, by process ID, never by name."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

GRACE_S = 2.0
POLL_S = 0.02


def in_namespaces(names: Iterable[str], netns_directory: Path) -> list[int]:
    """The IDs of all processes whose network namespace is one of these."""
    inodes = set()
    for name in names:
        with contextlib.suppress(OSError):
            inodes.add((netns_directory / name).stat().st_ino)
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                if (entry / "ns" / "net").stat().st_ino in inodes:
                    found.append(int(entry.name))
    return found


def _signal(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def end_all_in(names: Iterable[str], netns_directory: Path) -> None:
    """Ask every process of these namespaces to end, then kill it; takes a few seconds at most."""
    names = list(names)
    deadline = time.monotonic() + GRACE_S
    _signal(in_namespaces(names, netns_directory), signal.SIGTERM)
    while time.monotonic() < deadline and in_namespaces(names, netns_directory):
        time.sleep(POLL_S)
    deadline = time.monotonic() + GRACE_S
    while time.monotonic() < deadline and (left := in_namespaces(names, netns_directory)):
        _signal(left, signal.SIGKILL)
        time.sleep(POLL_S)


def end_children(children: Iterable[subprocess.Popen], grace_s: float = GRACE_S) -> None:
    """End child processes and collect them, within a time limit."""
    running = [child for child in children if child.poll() is None]
    for child in running:
        child.terminate()
    deadline = time.monotonic() + grace_s
    for child in running:
        try:
            child.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait(GRACE_S)
