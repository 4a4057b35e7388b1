"""Compiles the ranks that are written in C, and caches the programs."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from netfold import native
from netfold_lab.bench.control import MeasurementError

WORKERS = Path(__file__).parent / "workers"
SHARED = WORKERS / "rank.h"


def cache_directory() -> Path:
    """The folder of compiled programs: $XDG_CACHE_HOME/netfold or ~/.cache/netfold."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "netfold"


def mpi_rank() -> Path:
    """The path of OpenMPI's compiled rank. Raises MeasurementError if it cannot be built."""
    return _built("mpi_rank", ["mpicc"], [], "openmpi: mpicc is missing; apt-get install openmpi-bin libopenmpi-dev")


def netfold_rank() -> Path:
    """The path of the compiled rank that calls the C interface. Raises MeasurementError if it cannot be built."""
    library, header = native.find(native.C_LIBRARY), native.find(native.C_HEADER)
    if library is None or header is None:
        raise MeasurementError("netfold: libnetfold.so or netfold.h is missing; `make build` builds them")
    link = [f"-I{header.parent}", str(library)]
    return _built("netfold_rank", ["cc"], link, "netfold: there is no C compiler; apt-get install gcc", [header])


def _built(
    name: str, compiler: Sequence[str], more: Sequence[str], advice: str, depends_on: Sequence[Path] = ()
) -> Path:
    """Builds at the first call, and again when a source has changed."""
    source = WORKERS / f"{name}.c"
    made_of = b"".join(path.read_bytes() for path in (source, SHARED, *depends_on)) + "\0".join(more).encode()
    program = cache_directory() / f"{name}-{hashlib.sha256(made_of).hexdigest()[:12]}"
    if program.exists():
        return program
    cache_directory().mkdir(parents=True, exist_ok=True)
    temporary = program.with_name(f"{program.name}.{os.getpid()}")
    command = [*compiler, "-O2", "-o", str(temporary), str(source), *more, "-lm"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    except FileNotFoundError as error:
        raise MeasurementError(advice) from error
    if done.returncode != 0:
        raise MeasurementError(f"{name} does not compile: {done.stderr[-800:]}")
    temporary.replace(program)
    return program
