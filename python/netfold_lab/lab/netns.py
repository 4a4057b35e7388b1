"""Named network namespaces: create, configure and remove them.

pyroute2 creates them and opens sockets in them from a forked copy of this process, which then ends by SIGTERM. A copy
with our signal handlers and our `finally` clauses would remove the lab that it builds. So this module does not fork:
iproute2 creates the namespaces. This thread enters a namespace to open a socket in it. pyroute2 takes long to load, so
only the functions that use it load it.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from netfold_lab.errors import LabError

if TYPE_CHECKING:
    from pyroute2 import IPRoute

DIRECTORY = Path("/var/run/netns")
CREATE_TIMEOUT_S = 30


def create(names: Iterable[str]) -> None:
    """Create all namespaces by one program."""
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
        raise LabError(f"a network namespace could not be created: {done.stderr.strip()}; run `netfold doctor`")


def enter(namespace: str) -> list[str]:
    """The words before a command that make it run in a namespace (nsenter execs, so the process ID is the
    command's)."""
    return ["nsenter", f"--net={DIRECTORY / namespace}", "--"]


def open_socket(name: str) -> IPRoute:
    """A netlink socket of a namespace, usable from any namespace."""
    from pyroute2 import IPRoute, netns

    netns.pushns(name)
    try:
        ipr = IPRoute()
        ipr.get_links()  # opens the socket while this thread is in the namespace
    finally:
        netns.popns()
    return ipr


def configure(name: str, settings: dict[str, str]) -> None:
    """Write kernel settings of a namespace (files below /proc/sys)."""
    from pyroute2 import netns

    netns.pushns(name)
    try:
        for file, value in settings.items():
            Path("/proc/sys", file).write_text(value)
    finally:
        netns.popns()


def remove(names: Iterable[str]) -> None:
    """Remove namespaces together with their links."""
    from pyroute2 import netns

    for name in names:
        with contextlib.suppress(OSError):
            netns.remove(name)


def existing() -> list[str]:
    """The names of all namespaces."""
    try:
        return sorted(path.name for path in DIRECTORY.iterdir())
    except FileNotFoundError:
        return []
