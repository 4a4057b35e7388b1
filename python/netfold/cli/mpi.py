"""`netfold mpi`: runs an MPI program with its all-reduces taken over by Netfold."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import typer

from netfold import native

LAUNCHERS = ("mpirun", "mpiexec", "orterun")
EXAMPLES = """
Examples:

  netfold mpi -- mpirun -n 8 ./program

  NETFOLD_LOG=info NETFOLD_FORMAT=bfp netfold mpi -- mpirun -n 16 -H one:8,two:8 python train.py

  netfold mpi -- srun -n 64 ./program

Ranks on other machines load the library from the same path there. docs/mpi.md says what is taken over.
"""


def register(app: typer.Typer) -> None:
    """Add `mpi` to the program."""
    app.command("mpi", epilog=EXAMPLES, context_settings={"allow_interspersed_args": False})(mpi)


def mpi(command: list[str] = typer.Argument(help="The launcher and all of its arguments.")) -> None:  # noqa: B008
    """Run an MPI program as it is: MPI_Allreduce sums of floats and 32-bit integers go through Netfold, everything else
    through MPI."""
    library = native.find(native.MPI_LIBRARY)
    if library is None:
        _end("libnetfold-mpi.so is not built; where an MPI with its headers is installed, `make build` builds it", 1)
    if shutil.which(command[0]) is None:
        _end(f"there is no program {command[0]!r}: write the whole command, as in mpirun -n 8 ./program", 2)
    words, environment = launch(command, str(library), dict(os.environ), _is_open_mpi(command[0]))
    sys.stdout.flush()
    os.execvpe(words[0], words, environment)


def launch(
    command: Sequence[str], library: str, environment: dict[str, str], is_open_mpi: bool
) -> tuple[list[str], dict[str, str]]:
    """The command and the environment that put the library first in every rank. Open MPI's launcher hands ranks of
    other machines only what it is told to, and needs no library itself; others hand the whole environment over."""
    loads = ":".join(filter(None, (library, environment.get("LD_PRELOAD", ""))))
    if not is_open_mpi:
        return list(command), {**environment, "LD_PRELOAD": loads}
    settings = sorted(name for name in environment if name.startswith("NETFOLD_"))
    exports = [word for name in (f"LD_PRELOAD={loads}", *settings) for word in ("-x", name)]
    return [command[0], *exports, *command[1:]], environment


def _is_open_mpi(launcher: str) -> bool:
    if Path(launcher).name not in LAUNCHERS:
        return False
    done = subprocess.run([launcher, "--version"], capture_output=True, text=True, timeout=30, check=False)
    return any(name in done.stdout + done.stderr for name in ("Open MPI", "OpenRTE"))


def _end(sentence: str, status: int) -> None:
    print(f"netfold mpi: {sentence}", file=sys.stderr)
    raise typer.Exit(status)
