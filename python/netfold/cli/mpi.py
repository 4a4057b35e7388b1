"""`netfold mpi`: runs an MPI program and does its all-reduces."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from netfold import native, preload
from netfold.cli import arguments as cli_arguments

LAUNCHERS = ("mpirun", "mpiexec", "orterun")


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = cli_arguments.parser(
        "mpi",
        """Run an unchanged MPI program. Netfold computes its MPI_Allreduce sums of floats and 32-bit integers; MPI does
        everything else.

        Ranks on other machines load the library from the same path there. docs/how-to/run-mpi-programs.md lists the
        calls that Netfold takes over.""",
        (
            "netfold mpi -- mpirun -n 8 ./program",
            "NETFOLD_FORMAT=bfp netfold mpi -- mpirun -n 16 -H one:8,two:8 ./program",
            "netfold mpi -- srun -n 64 ./program",
        ),
    )
    cli_arguments.add_command(made, "the launcher")
    return made


def run(arguments: list[str]) -> None:
    """Become the launcher; the ranks load Netfold's library."""
    reader = parser()
    command = cli_arguments.command_of(reader, arguments, "mpirun -n 8 ./program")
    library = native.find(native.MPI_LIBRARY)
    if library is None:
        sentence = "libnetfold-mpi.so is not built: install an MPI with its headers, then run `make build`"
        cli_arguments.end(reader.prog, sentence, 1)
    if os.environ.get("NETFOLD_SWITCH"):
        print(f"{reader.prog}: NETFOLD_SWITCH is not used: ranks of MPI sum among themselves", file=sys.stderr)
    words, environment = preload.launch(command, str(library), os.environ, _is_open_mpi(command[0]))
    sys.stdout.flush()
    os.execvpe(words[0], words, environment)


def _is_open_mpi(launcher: str) -> bool:
    if Path(launcher).name not in LAUNCHERS:
        return False
    done = subprocess.run([launcher, "--version"], capture_output=True, text=True, timeout=30, check=False)
    return any(name in done.stdout + done.stderr for name in ("Open MPI", "OpenRTE"))
