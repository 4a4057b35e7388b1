"""The facts that `netfold up` asks of each machine: versions, interfaces, the clock, and the doctor's checks."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import socket
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import netfold
from netfold.cli.checks import package, sockets
from netfold.interfaces import addresses, reaches_far

CHECKS = (package.extension, package.own_programs, sockets.buffers)


def facts() -> dict[str, Any]:
    """The facts, as JSON carries them. `time_s` is this machine's clock; the rate of an interface is what it
    negotiated, 0 if it does not say."""
    ssh = [*os.environ.get("SSH_CONNECTION", "").split(), "", "", ""][2]
    return {
        "host": socket.gethostname(),
        "netfold": netfold.__version__,
        "python": platform.python_version(),
        "torch": _version("torch"),
        "cores": len(os.sched_getaffinity(0)),
        "time_s": time.time(),
        "reached_at": ssh if ssh and reaches_far(ssh) else "",
        "interfaces": interfaces(),
        "checks": [asdict(check) for look in CHECKS for check in look()],
    }


def interfaces() -> list[dict[str, Any]]:
    """One entry for each address that other machines can reach, IPv4 first: the interface's name, the address, the MTU
    in bytes, the rate in Mbit/s."""
    found = []
    for name, address in addresses():
        if not reaches_far(address):
            continue
        folder = Path("/sys/class/net", name)
        found.append(
            {
                "name": name,
                "address": address,
                "mtu": int(_read(folder / "mtu") or 0),
                "rate_mbit_s": max(int(_read(folder / "speed") or 0), 0),
            }
        )
    return found


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:  # an interface that is down has no rate
        return ""


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""
