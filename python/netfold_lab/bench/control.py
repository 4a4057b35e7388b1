"""The coordinator's side of a measurement: it sends commands to ranks and collects their results.

Every rank, in Python or in C, connects to one Unix socket. Network namespaces share it, so this traffic does not cross
the measured links. Then both sides send lines of text:

    rank -> `hello RANK`
    -> `prepare COUNT DTYPE WIRE INPUT EXPECTED`      files: the rank's elements, the exact sum in float64
    <- `ready`
    -> `run START_NS ALGORITHM ITERATIONS`            starts at that time of CLOCK_MONOTONIC, the same on all ranks
    <- `done ELAPSED_NS`                              one iteration's time on average; or `error SENTENCE`
    -> `check`                                        when all are done
    <- `done MAX_ABS_ERROR DIGEST`                    of the last iteration's result
    -> `quit`

Ranks that tune (bench/workers/tuning.py) have two other commands in place of `prepare` and `run`.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

POLL_S = 0.1
SOCKET_PATH_MAX = 107  # bytes; unix(7)
STDERR_TAIL = 800  # characters


class MeasurementError(RuntimeError):
    """A system failed or did not answer in time."""


class Ranks:
    """The ranks of one system, connected."""

    def __init__(self, system: str, path: Path, log: Path, world: int) -> None:
        self.system = system
        self.world = world
        self.path = path
        self.log = log
        self.processes: list[subprocess.Popen] = []  # the launcher adds them; a process that ends early is an error
        if len(str(path).encode()) > SOCKET_PATH_MAX:
            raise MeasurementError(
                f"{path} is too long for the name of a socket: set TMPDIR (in a lab: NETFOLD_RUNTIME_DIR) to a folder "
                "with a shorter name"
            )
        path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        self._listener.listen(world)
        self._listener.settimeout(POLL_S)
        self._connections: dict[int, socket.socket] = {}
        self._buffers: dict[int, bytes] = {}

    def accept(self, timeout_s: float) -> None:
        """Wait until every rank has sent hello. A process that ends before raises an error with the end of its log."""
        deadline = time.monotonic() + timeout_s
        while len(self._connections) < self.world:
            check_running(self.system, self.processes, self.log)
            if time.monotonic() > deadline:
                missing = sorted(set(range(self.world)) - set(self._connections))
                raise MeasurementError(
                    f"{self.system}: ranks {missing} did not start within {timeout_s:g} s. {tail(self.log)}"
                )
            with contextlib.suppress(TimeoutError):
                connection, _ = self._listener.accept()
                connection.settimeout(5.0)
                rank = int(connection.makefile().readline().split()[1])
                self._connections[rank] = connection
                self._buffers[rank] = b""

    def ask(self, lines: Sequence[str], timeout_s: float) -> list[str]:
        """Send each rank its line and wait for one answer from each, within a time limit."""
        for rank, line in enumerate(lines):
            try:
                self._connections[rank].sendall(line.encode() + b"\n")
            except OSError as error:
                raise MeasurementError(f"{self.system}: rank {rank} is gone ({error}). {tail(self.log)}") from error
        answers: dict[int, str] = {}
        word = lines[0].partition(" ")[0]
        deadline = time.monotonic() + timeout_s
        with selectors.DefaultSelector() as selector:
            for rank, connection in self._connections.items():
                selector.register(connection, selectors.EVENT_READ, rank)
            while len(answers) < self.world:
                if time.monotonic() > deadline:
                    missing = sorted(set(range(self.world)) - set(answers))
                    raise MeasurementError(
                        f"{self.system}: no answer from ranks {missing} within {timeout_s:g} s "
                        f"to `{word}`. {tail(self.log)}"
                    )
                for key, _ in selector.select(POLL_S):
                    if (answer := self._read(key.data)) is not None:
                        answers[key.data] = answer
                check_running(self.system, self.processes, self.log)
        return [answers[rank] for rank in range(self.world)]

    def _read(self, rank: int) -> str | None:
        """One whole line of a rank, if it has arrived."""
        try:
            data = self._connections[rank].recv(4096)
        except ConnectionResetError:  # the rank ended with an unread command
            data = b""
        if not data:
            raise MeasurementError(f"{self.system}: rank {rank} ended. {tail(self.log)}")
        self._buffers[rank] += data
        line, newline, rest = self._buffers[rank].partition(b"\n")
        if not newline:
            return None
        self._buffers[rank] = rest
        text = line.decode(errors="replace")
        if text.startswith("error "):
            raise MeasurementError(f"{self.system}: rank {rank}: {text[6:]}")
        return text

    def close(self) -> None:
        """Tell every rank to quit, and close the connections."""
        for connection in self._connections.values():
            with contextlib.suppress(OSError):
                connection.sendall(b"quit\n")
            connection.close()
        self._connections.clear()
        self._listener.close()
        self.path.unlink(missing_ok=True)


def check_running(system: str, processes: Sequence[subprocess.Popen], log: Path) -> None:
    """Raise if one of the system's processes has ended."""
    for process in processes:
        if process.poll() is not None:
            raise MeasurementError(f"{system}: a process ended with status {process.returncode}. {tail(log)}")


def tail(log: Path) -> str:
    """The end of a log, for an error message."""
    try:
        text = log.read_text(errors="replace").strip()
    except OSError:
        return ""
    return f"Its log ends: {text[-STDERR_TAIL:]}" if text else ""
