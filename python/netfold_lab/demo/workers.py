"""Runs the demo's worker processes and reads their output. It ends all of them in every case, also at Ctrl-C."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

RUN_S_MAX = 600.0
END_S = 3.0


def errors_of(folder: Path, rank: int | None = None) -> Path:
    """Where a rank's errors go; without a rank: of the process that forks them."""
    return folder / ("workers.log" if rank is None else f"worker{rank}.log")


class WorkerFailed(RuntimeError):
    """A worker ended without a result."""


def run_workers(
    backend: str, world: int, epochs: int, batch: int, environment: dict[str, str], on_step: Callable[[dict], None]
) -> list[dict[str, Any]]:
    """Train once on `world` processes; returns their results by rank.

    `on_step` gets rank 0's step events in this thread. Raises WorkerFailed with the worker's output.
    """
    events: queue.Queue[tuple[int, dict | None]] = queue.Queue()
    with tempfile.TemporaryDirectory(prefix="netfold-demo-") as folder:
        process, pipes = _start(backend, world, epochs, batch, folder, environment)
        try:
            for rank, pipe in enumerate(pipes):
                threading.Thread(target=_listen, args=(rank, pipe, events), daemon=True).start()
            return _gather(world, Path(folder), events, on_step)
        finally:
            _end(process)


def _start(
    backend: str, world: int, epochs: int, batch: int, folder: str, environment: dict[str, str]
) -> tuple[subprocess.Popen[bytes], list[int]]:
    """The process that forks the ranks, and the ends of their pipes to read from."""
    pipes = [os.pipe() for _ in range(world)]
    ends = [write for _, write in pipes]
    command = [sys.executable, "-m", "netfold_lab.demo.worker", backend, epochs, batch, folder, *ends]
    try:
        with errors_of(Path(folder)).open("w") as errors:
            process = subprocess.Popen(
                [str(word) for word in command],
                env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
                pass_fds=ends,
                start_new_session=True,  # Ctrl-C reaches only this process, which then ends the workers
            )
    finally:
        for end in ends:
            os.close(end)
    return process, [read for read, _ in pipes]


def _listen(rank: int, pipe: int, events: queue.Queue) -> None:
    with os.fdopen(pipe) as lines:
        for line in lines:
            events.put((rank, json.loads(line)))
    events.put((rank, None))


def _gather(world: int, folder: Path, events: queue.Queue, on_step: Callable[[dict], None]) -> list[dict[str, Any]]:
    results: dict[int, dict[str, Any]] = {}
    open_ranks = set(range(world))
    deadline = time.monotonic() + RUN_S_MAX
    while open_ranks:
        try:
            rank, event = events.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            raise WorkerFailed(f"the workers did not finish within {RUN_S_MAX:.0f} s") from None
        if event is None:
            open_ranks.discard(rank)
            if rank not in results:
                raise WorkerFailed(f"worker {rank} ended early:\n{_last_lines(folder, rank)}")
        elif event["event"] == "result":
            results[rank] = event
        else:
            on_step(event)
    return [results[rank] for rank in sorted(results)]


def _last_lines(folder: Path, rank: int, count: int = 12) -> str:
    logs = [log for log in (errors_of(folder, rank), errors_of(folder)) if log.exists()]
    return "\n".join(line for log in logs for line in log.read_text(errors="replace").splitlines()[-count:])


def _end(process: subprocess.Popen[bytes]) -> None:
    """Let the workers end by themselves for a moment, then kill them: they are a process group."""
    if sys.exc_info()[0] is not None:
        _signal(process, signal.SIGTERM)
    try:
        process.wait(timeout=END_S)
    except subprocess.TimeoutExpired:
        _signal(process, signal.SIGKILL)
        process.wait()
    _signal(process, signal.SIGKILL)  # ranks that have lost the process that forked them


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)
