"""Runs the demo's worker processes and reads their output. It ends all of them in every case, also at Ctrl-C."""

from __future__ import annotations

import json
import os
import queue
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
        meeting = f"file://{folder}/store"
        processes = []
        try:
            for rank in range(world):
                log = Path(folder, f"worker{rank}.log")
                process = _start(backend, epochs, batch, meeting, rank, world, environment, log)
                processes.append((process, log))
                threading.Thread(target=_listen, args=(rank, process, events), daemon=True).start()
            return _gather(processes, events, on_step)
        finally:
            _end([process for process, _ in processes])


def _start(
    backend: str, epochs: int, batch: int, meeting: str, rank: int, world: int, environment: dict[str, str], log: Path
) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "netfold_lab.demo.worker", backend, epochs, batch, meeting, rank, world]
    with log.open("w") as errors:
        return subprocess.Popen(
            [str(word) for word in command],
            env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,  # Ctrl-C reaches only this process, which then ends the workers
        )


def _listen(rank: int, process: subprocess.Popen[str], events: queue.Queue) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("{"):
            events.put((rank, json.loads(line)))
    events.put((rank, None))


def _gather(
    processes: list[tuple[subprocess.Popen[str], Path]], events: queue.Queue, on_step: Callable[[dict], None]
) -> list[dict[str, Any]]:
    results: dict[int, dict[str, Any]] = {}
    open_ranks = set(range(len(processes)))
    deadline = time.monotonic() + RUN_S_MAX
    while open_ranks:
        try:
            rank, event = events.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            raise WorkerFailed(f"the workers did not finish within {RUN_S_MAX:.0f} s") from None
        if event is None:
            open_ranks.discard(rank)
            if rank not in results:
                raise WorkerFailed(f"worker {rank} ended early:\n{_last_lines(processes[rank][1])}")
        elif event["event"] == "result":
            results[rank] = event
        else:
            on_step(event)
    return [results[rank] for rank in sorted(results)]


def _last_lines(log: Path, count: int = 12) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-count:])


def _end(processes: list[subprocess.Popen[str]]) -> None:
    """Let the workers end by themselves for a moment, then kill them."""
    deadline = time.monotonic() + END_S
    alive = [process for process in processes if process.poll() is None]
    if sys.exc_info()[0] is not None:
        for process in alive:
            process.terminate()
    for process in alive:
        try:
            process.wait(timeout=max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
