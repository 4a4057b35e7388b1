"""Compiles OpenMPI's rank once, and keeps it."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

from netfold.bench.control import MeasurementError

SOURCE = Path(__file__).parent / "workers" / "mpi_rank.c"


def cache_directory() -> Path:
    """Where compiled helpers are kept: $XDG_CACHE_HOME/netfold or ~/.cache/netfold."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "netfold"


def rank_program() -> Path:
    """The path of the compiled rank; built on the first call, and again when its source changes."""
    name = f"mpi_rank-{hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:12]}"
    program = cache_directory() / name
    if program.exists():
        return program
    try:
        cache_directory().mkdir(parents=True, exist_ok=True)
        temporary = program.with_name(f"{name}.{os.getpid()}")
        command = ["mpicc", "-O2", "-o", str(temporary), str(SOURCE), "-lm"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    except FileNotFoundError as error:
        raise MeasurementError("openmpi: mpicc is missing; apt-get install openmpi-bin libopenmpi-dev") from error
    if done.returncode != 0:
        raise MeasurementError(f"openmpi: its rank does not compile: {done.stderr[-800:]}")
    temporary.replace(program)
    return program
