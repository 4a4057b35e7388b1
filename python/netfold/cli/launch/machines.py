"""The launcher's end of a conversation with a keeper (keeper.py) on each machine, over ssh or srun."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import shlex
import shutil
import subprocess
import sys
import threading
from typing import Any

ANSWER_S = 60.0  # for a machine that is reached and answers nothing
END_S = 20.0  # longer than a keeper gives its processes
LOCAL = ("localhost", "127.0.0.1")


class MachineError(Exception):
    """A machine that cannot be used; the sentence names it."""


class Machine:
    """A machine, and the keeper on it. `name` is as the user writes it; `address` is where the others reach it."""

    def __init__(self, name: str, ssh: list[str], python: str) -> None:
        """`ssh`: the words before the machine's name; with `srun` as the first of them, a job step of Slurm."""
        self.name = name
        self.address = ""
        self.facts: dict[str, Any] = {}
        self._answers: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._last_words: list[str] = []
        keeper = [python, "-m", "netfold.cli.launch.keeper"]
        if name in LOCAL:
            words = keeper
        elif ssh[0] == "srun":
            words = [*ssh, "--nodelist", name, *keeper]
        else:
            words = [*ssh, name, "exec " + shlex.join(keeper)]
        if shutil.which(words[0]) is None:
            raise MachineError(f"{words[0]} is not installed here: it is needed to reach {name}")
        self._process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is the launcher's
            text=True,
            errors="replace",
        )
        for read in (self._read_answers, self._read_errors):
            threading.Thread(target=read, daemon=True).start()

    def _read_answers(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                self._answers.put(json.loads(line))
            except ValueError:  # what a login script prints
                self._last_words.append(line.strip())
        self._answers.put(None)

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._last_words = [*self._last_words[-5:], line.strip()]

    def ask(self, do: str, **request: Any) -> None:
        """Send a request; `answer` takes its answers."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # `answer` says why
            self._process.stdin.write(json.dumps({"do": do, **request}) + "\n")
            self._process.stdin.flush()

    def answer(self, timeout_s: float = ANSWER_S) -> dict[str, Any]:
        """The next answer. Raises MachineError if the machine is lost or refuses, and queue.Empty after the timeout."""
        found = self._answers.get(timeout=timeout_s)
        if found is None:
            self._answers.put(None)  # for the next call
            said = next((line for line in reversed(self._last_words) if line), "no message")
            hint = ""
            if "No module named" in said:
                hint = "; install Netfold there, or name its Python with --python"
            raise MachineError(f"{self.name}: {said}{hint}")
        if "error" in found:
            raise MachineError(f"{self.name}: {found['error']}")
        return found

    def asked(self, do: str, **request: Any) -> dict[str, Any]:
        """Ask, and wait for one answer. Raises MachineError."""
        self.ask(do, **request)
        return all_answers([self])[0]

    def leave(self) -> None:
        """Let the keeper end all that it started. Returns at once."""
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()

    def wait(self) -> bool:
        """Wait until the keeper has ended, for a bounded time; then end the connection. Whether it ended."""
        self.leave()
        try:
            self._process.wait(END_S)
            return True
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            return False


def all_answers(machines: list[Machine]) -> list[dict[str, Any]]:
    """One answer of each machine. Raises MachineError."""
    answers = []
    for machine in machines:
        try:
            answers.append(machine.answer())
        except queue.Empty:
            raise MachineError(f"{machine.name} has not answered for {ANSWER_S:.0f} s") from None
    return answers


def hosts_of_slurm() -> list[str]:
    """The nodes of the Slurm job that this process is in; none outside a job. Raises MachineError."""
    listed = os.environ.get("SLURM_JOB_NODELIST", "")
    if not listed:
        return []
    try:
        done = subprocess.run(
            ["scontrol", "show", "hostnames", listed], capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise MachineError(f"scontrol does not tell the nodes of this job ({error}): name them with --hosts") from None
    return done.stdout.split()


SRUN = ["srun", "--nodes=1", "--ntasks=1", "--overlap", "--unbuffered", "--quiet"]
SSH = ["ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10"]


def default_python() -> str:
    """The Python of this process: clusters have the same environment on all machines."""
    return sys.executable
