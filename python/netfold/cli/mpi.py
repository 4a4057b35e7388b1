"""`netfold mpi`: runs an MPI program with its all-reduces taken over by Netfold."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import typer

from netfold import native, preload

LAUNCHERS = ("mpirun", "mpiexec", "orterun")


def register(app: typer.Typer) -> None:
    """Add `mpi` to the program."""
    app.command("mpi", context_settings={"allow_interspersed_args": False})(mpi)


def mpi(command: list[str] = typer.Argument(help="The launcher and all of its arguments.")) -> None:  # noqa: B008
    """Run an MPI program as it is: MPI_Allreduce sums of floats and 32-bit integers go through Netfold, everything else
    through MPI.

    Ranks on other machines load the library from the same path there. docs/mpi.md says what is taken over.
    """
    library = native.find(native.MPI_LIBRARY)
    if library is None:
        _end("libnetfold-mpi.so is not built; where an MPI with its headers is installed, `make build` builds it", 1)
    if shutil.which(command[0]) is None:
        _end(f"there is no program {command[0]!r}: write the whole command, as in mpirun -n 8 ./program", 2)
    words, environment = preload.launch(command, str(library), os.environ, _is_open_mpi(command[0]))
    sys.stdout.flush()
    os.execvpe(words[0], words, environment)


def _is_open_mpi(launcher: str) -> bool:
    if Path(launcher).name not in LAUNCHERS:
        return False
    done = subprocess.run([launcher, "--version"], capture_output=True, text=True, timeout=30, check=False)
    return any(name in done.stdout + done.stderr for name in ("Open MPI", "OpenRTE"))


def _end(sentence: str, status: int) -> None:
    print(f"netfold mpi: {sentence}", file=sys.stderr)
    raise typer.Exit(status)
