"""The far end of `netfold up`: a process on each machine that answers questions about it and runs the job's command.

It reads one JSON object a line from standard input, and writes one or more to standard output for each. When its input
ends, because the launcher ended, was interrupted or lost its connection, it ends all that it has started: first by
SIGTERM, then by SIGKILL. Descendants that leave their process group are found too, because orphans become children of
this process.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from netfold.cli.launch import reach, survey
from netfold.interfaces import family_of

PR_SET_CHILD_SUBREAPER = 36
GRACE_S = 10.0  # from SIGTERM to SIGKILL


class Keeper:
    """Answers requests, each by a method of its name."""

    def __init__(self) -> None:
        self._out = threading.Lock()
        self._listener: reach.Listener | None = None
        self._secrets: list[Path] = []
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def say(self, answer: dict[str, Any]) -> None:
        """Write one answer."""
        with self._out, contextlib.suppress(BrokenPipeError):
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()

    def serve(self) -> None:
        """Answer until the input ends."""
        for line in sys.stdin:
            request = json.loads(line)
            try:
                getattr(self, f"on_{request.pop('do')}")(**request)
            except (OSError, ValueError) as error:
                self.say({"error": str(error)})

    def on_survey(self) -> None:
        """The facts of this machine."""
        self.say({"facts": survey.facts()})

    def on_listen(self) -> None:
        """Open a TCP and a UDP port for the probes of the other machines."""
        self._listener = reach.Listener()
        self.say({"port": self._listener.port})

    def on_reach(self, others: list[tuple[str, str, int]]) -> None:
        """Try the others' ports: why each cannot be reached, "" if it can."""
        self.say({"reached": {name: reach.failure(address, port) for name, address, port in others}})

    def on_send(self, address: str, port: int, seconds: float) -> None:
        """Send for a while: the bytes/s that arrived."""
        self.say({"bytes_s": reach.rate(address, port, seconds)})

    def on_route(self, address: str) -> None:
        """The address of this machine from which it reaches another one, and a TCP port that is free."""
        family = family_of(address)
        with socket.socket(family, socket.SOCK_DGRAM) as route, socket.socket(family) as free:
            route.connect((address, 9))
            free.bind(("", 0))
            self.say({"address": route.getsockname()[0], "port": free.getsockname()[1]})

    def on_run(self, command: list[str], environment: dict[str, str], folder: str, secret: str = "") -> None:
        """Run a command: its output line by line, then its exit status. `{secret-file}` in the command becomes a file
        with the secret, which only this user may read."""
        if self._listener is not None:
            self._listener.close()
        words = [self._with_secret(word, secret) for word in command]
        programs = Path(sys.executable).parent
        path = f"{programs}:{os.environ.get('PATH', os.defpath)}"
        started = subprocess.Popen(
            words,
            env=os.environ | {"PATH": path} | environment,
            cwd=folder or None,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            text=True,
            errors="replace",
        )
        threading.Thread(target=self._tell, args=(started,), daemon=True).start()

    def _with_secret(self, word: str, secret: str) -> str:
        if word != "{secret-file}":
            return word
        descriptor, name = tempfile.mkstemp(prefix="netfold-")  # mode 600
        self._secrets.append(Path(name))
        with os.fdopen(descriptor, "w") as file:
            file.write(secret)
        return name

    def _tell(self, started: subprocess.Popen[str]) -> None:
        assert started.stdout is not None
        for line in started.stdout:
            self.say({"line": line.rstrip("\n")})
        self.say({"exit": started.wait()})

    def end(self) -> None:
        """End all that was started."""
        for path in self._secrets:
            path.unlink(missing_ok=True)
        deadline = time.monotonic() + GRACE_S
        how = signal.SIGTERM
        told: set[int] = set()
        while left := _descendants(os.getpid()):
            if time.monotonic() > deadline:
                how, told = signal.SIGKILL, set()
            for process_id in left - told:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process_id, how)
            told |= left
            time.sleep(0.05)
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass


def _descendants(process_id: int) -> set[int]:
    """The processes below one, without those that have ended and wait for their parent."""
    found = set()
    for task in Path(f"/proc/{process_id}/task").iterdir():
        with contextlib.suppress(OSError):
            found |= {int(word) for word in (task / "children").read_text().split()}
    below = set(found)
    for child in found:
        with contextlib.suppress(OSError):
            below |= _descendants(child)
            if Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                below.discard(child)
    return below


def main() -> None:
    """Serve, and end all that was started, also when a signal ends this process."""
    keeper = Keeper()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the launcher's
    try:
        keeper.serve()
    finally:
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        keeper.end()


if __name__ == "__main__":
    main()
