"""An agent of a worker's own: a netfold-agent process that starts when it is first needed and ends with the worker.

A machine's workers can share one instead, `netfold agent`, where NETFOLD_AGENT names its socket.
"""

from __future__ import annotations

import os
import secrets
import select
import subprocess
import threading
from collections.abc import Sequence
from typing import ClassVar

from netfold import native

START_S = 30.0
STOP_S = 15.0


class PrivateAgent:
    """A counted reference to this process's agent. One a process: where Yama guards memory, a process can name only one
    other that may read it."""

    _lock: ClassVar[threading.Lock] = threading.Lock()
    _running: ClassVar[dict[int, PrivateAgent]] = {}  # by process: a forked child has none yet

    def __init__(self, cores: Sequence[int]) -> None:
        self.cores = tuple(cores)
        self.address = f"@netfold-agent-{os.getpid()}-{secrets.token_hex(8)}"
        self._holders = 0
        self._process = _start(self.address, self.cores)

    @classmethod
    def hold(cls, cores: Sequence[int] = ()) -> PrivateAgent:
        """Start this process's agent on `cores` (none: any), or share the one that runs; `release` it later.

        Raises RuntimeError if it cannot start, or runs on other cores already.
        """
        with cls._lock:
            agent = cls._running.get(os.getpid())
            if agent is None:
                agent = cls._running[os.getpid()] = cls(cores)
            if agent.cores != tuple(cores):
                raise RuntimeError(
                    f"netfold: this process's agent runs on cores {agent.cores or 'of any number'}, not on "
                    f"{tuple(cores)}: groups of one process share it, so give them the same NETFOLD_CORES"
                )
            agent._holders += 1
            return agent

    def release(self) -> None:
        """Give the reference back. The last one ends the agent."""
        with self._lock:
            self._holders -= 1
            if self._holders > 0:
                return
            self._running.pop(os.getpid(), None)
        self._process.terminate()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _start(address: str, cores: Sequence[int]) -> subprocess.Popen:
    """Start it, in a session of its own so that Ctrl-C reaches the worker alone, and wait until it listens."""
    program = native.find(native.AGENT)
    if program is None:
        raise RuntimeError(f"netfold: NETFOLD_ENGINE=agent needs a program: {native.not_built(native.AGENT)}")
    command = [str(program), "--socket", address, "--end-with", str(os.getpid()), "--log-level", "error"]
    if cores:
        command += ["--cores", ",".join(map(str, cores))]
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    with process.stdout as said:
        line = said.readline() if select.select([said], [], [], START_S)[0] else ""
    if not line.startswith("listening at"):
        process.kill()
        raise RuntimeError(f"netfold: netfold-agent did not start (status {process.wait()}): see what it said above")
    return process
