"""A worker's own agent: a netfold-agent process that starts at first use and ends with the worker.

The workers of a machine can share one instead: `netfold agent`. NETFOLD_AGENT then names its socket.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import threading
from collections.abc import Sequence
from typing import ClassVar

from netfold import helpers, native


class PrivateAgent:
    """A counted reference to this process's agent. A process has only one: where Yama guards memory, a process can
    allow only one other process to read it."""

    _lock: ClassVar[threading.Lock] = threading.Lock()
    _running: ClassVar[dict[int, PrivateAgent]] = {}  # by process ID: a forked child starts without an agent

    def __init__(self, cores: Sequence[int]) -> None:
        self.cores = tuple(cores)
        self.address = f"@netfold-agent-{os.getpid()}-{secrets.token_hex(8)}"
        self._holders = 0
        self._process = _start(self.address, self.cores)

    @classmethod
    def hold(cls, cores: Sequence[int] = ()) -> PrivateAgent:
        """Start this process's agent on `cores` (empty: any), or share the agent that runs. Call `release` later.

        Raises RuntimeError if the agent cannot start, or if it already runs on other cores.
        """
        with cls._lock:
            agent = cls._running.get(os.getpid())
            if agent is None:
                agent = cls._running[os.getpid()] = cls(cores)
            if agent.cores != tuple(cores):
                raise RuntimeError(
                    f"netfold: this process's agent runs on cores {agent.cores or 'that are not pinned'}, not on "
                    f"{tuple(cores)}: all groups of a process share its agent, so give them the same NETFOLD_CORES"
                )
            agent._holders += 1
            return agent

    def release(self) -> None:
        """Release the reference. The last release ends the agent."""
        with self._lock:
            self._holders -= 1
            if self._holders > 0:
                return
            self._running.pop(os.getpid(), None)
        helpers.end(self._process)


def _start(address: str, cores: Sequence[int]) -> subprocess.Popen[str]:
    """Start the agent and wait until it listens."""
    program = native.find(native.AGENT)
    if program is None:
        raise RuntimeError(
            f"netfold: NETFOLD_ENGINE=agent needs the program netfold-agent: {native.not_built(native.AGENT)}"
        )
    arguments = ["--socket", address, "--log-level", "error"]
    if cores:
        arguments += ["--cores", ",".join(map(str, cores))]
    return helpers.start(program, arguments)
