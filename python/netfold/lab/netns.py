"""Named network namespaces: made, spoken to, removed.

pyroute2 makes them and opens sockets in them from a forked copy of this process, which then ends by SIGTERM. A copy
that holds our signal handlers and our `finally` clauses would clear away the lab it was to build, so nothing here
forks: iproute2 makes the namespaces, and a socket is opened by this thread while it visits.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterable
from pathlib import Path

from pyroute2 import IPRoute, netns

from netfold.lab.errors import LabError

DIRECTORY = Path("/var/run/netns")
CREATE_TIMEOUT_S = 30


def create(names: Iterable[str]) -> None:
    """Make namespaces, all by one program."""
    commands = "".join(f"netns add {name}\n" for name in names)
    try:
        done = subprocess.run(
            ["ip", "-batch", "-"],
            input=commands,
            capture_output=True,
            text=True,
            timeout=CREATE_TIMEOUT_S,
            check=False,
        )
    except FileNotFoundError:
        raise LabError("the program `ip` is not installed; apt-get install iproute2") from None
    if done.returncode != 0:
        raise LabError(f"a network namespace could not be made: {done.stderr.strip()}; run `netfold doctor`")


def enter(namespace: str) -> list[str]:
    """The words to put before a command so that it runs in a namespace (nsenter execs: the process id is its own)."""
    return ["nsenter", f"--net={DIRECTORY / namespace}", "--"]


def open_socket(name: str) -> IPRoute:
    """A netlink socket that speaks to a namespace, wherever this process is."""
    netns.pushns(name)
    try:
        ipr = IPRoute()
        ipr.get_links()  # opens the socket while we are here
    finally:
        netns.popns()
    return ipr


def configure(name: str, settings: dict[str, str]) -> None:
    """Write kernel settings (files below /proc/sys) that a namespace has of its own."""
    netns.pushns(name)
    try:
        for file, value in settings.items():
            Path("/proc/sys", file).write_text(value)
    finally:
        netns.popns()


def remove(names: Iterable[str]) -> None:
    """Remove namespaces; their links go with them."""
    for name in names:
        with contextlib.suppress(OSError):
            netns.remove(name)


def existing() -> list[str]:
    """The names of all namespaces."""
    try:
        return sorted(path.name for path in DIRECTORY.iterdir())
    except FileNotFoundError:
        return []
