"""Programs that a worker starts to help it, and that end with it: an agent, a simulated NIC."""

from __future__ import annotations

import os
import select
import subprocess
from pathlib import Path

START_S = 30.0
STOP_S = 15.0


def start(program: Path, arguments: list[str]) -> subprocess.Popen[str]:
    """Start a program that ends when this process ends, and wait until it says where it listens. It has a session of
    its own, so that Ctrl-C reaches only the worker. Raises RuntimeError."""
    command = [str(program), *arguments, "--end-with", str(os.getpid())]
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    with process.stdout as said:
        line = said.readline() if select.select([said], [], [], START_S)[0] else ""
    if not line.startswith("listening at"):
        process.kill()
        raise RuntimeError(
            f"netfold: {program.name} did not start (exit status {process.wait()}): see its messages above"
        )
    return process


def end(process: subprocess.Popen[str]) -> None:
    """End a program that `start` started."""
    process.terminate()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
