"""Runs `netfold lab` like a user, and checks what it leaves on the machine."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from repository import ROOT

TIMEOUT_S = 120
POLL_S = 0.05

# Sends COUNT numbered datagrams of SIZE bytes to ADDRESS, a few at a time so that no queue on the way overflows.
SENDER = """
import socket, sys, time
address, count, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
    for number in range(count):
        sender.sendto(b"%08d" % number + bytes(size - 8), (address, 9999))
        if number % 10 == 9:
            time.sleep(0.005)
"""
# Prints how many arrived, how many different ones, and how often a number was smaller than the one before.
RECEIVER = """
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
    receiver.setsockopt(socket.SOL_SOCKET, 33, 8 << 20)  # SO_RCVBUFFORCE: it may be slow, and lose nothing
    receiver.bind(("", 9999))
    receiver.settimeout(20)
    print("listening", flush=True)
    numbers = []
    while True:
        try:
            numbers.append(int(receiver.recv(65536)[:8]))
        except TimeoutError:
            break
        receiver.settimeout(1.5)
print(len(numbers), len(set(numbers)), sum(b < a for a, b in zip(numbers, numbers[1:])))
"""


class LabCommands:
    """`netfold lab ...` with a runtime folder of its own."""

    def __init__(
        self, runtime: Path, python: str = sys.executable, prefix: tuple[str, ...] = (), more_path: str = ""
    ) -> None:
        path = os.pathsep.join(filter(None, [str(ROOT / "python"), more_path, os.environ.get("PYTHONPATH", "")]))
        self._environment = {**os.environ, "NETFOLD_RUNTIME_DIR": str(runtime), "PYTHONPATH": path, "COLUMNS": "200"}
        self.runtime = runtime
        self._words = [*prefix, python, "-m", "netfold_lab.cli.lab"]

    def run(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run to the end."""
        done = subprocess.run(
            [*self._words, *arguments],
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        if check:
            assert done.returncode == 0, done.stderr
        return done

    def start(self, *arguments: str, stdin: int | None = None) -> subprocess.Popen[str]:
        """Start, in a process group of its own."""
        return subprocess.Popen(
            [*self._words, *arguments],
            env=self._environment,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def files(self) -> list[str]:
        """The content of the runtime folder."""
        return sorted(path.name for path in self.runtime.iterdir())


def wait_for(condition: Callable[[], bool], what: str, timeout_s: float = 60.0) -> None:
    """Poll until the condition holds."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen within {timeout_s} s"
        time.sleep(POLL_S)
