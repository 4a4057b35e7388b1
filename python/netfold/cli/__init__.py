"""The `netfold` command: one module a command, each with `register(app)`."""

from __future__ import annotations

import functools
import importlib
import sys
from typing import Annotated

import typer

import netfold
from netfold.cli import help as help_text
from netfold.cli import numbers

COMMANDS = (
    "demo",
    "switch",
    "agent",
    "top",
    "configure",
    "bench",
    "lab",
    "schedule",
    "plan",
    "simulate",
    "rtl",
    "mpi",
    "doctor",
)

app = typer.Typer(name="netfold", no_args_is_help=True, add_completion=False)


def _say_version(wanted: bool) -> None:
    if wanted:
        print(f"netfold {netfold.__version__}")
        raise typer.Exit


@app.callback(help=netfold.__doc__)
def _netfold(
    version: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@functools.cache
def program() -> typer.Typer:
    """`netfold` with all of its commands."""
    for command in COMMANDS:
        importlib.import_module(f"netfold.cli.{command}").register(app)
    help_text.teach(app)
    numbers.guard(app)
    return app


def main() -> None:
    """Entry point of the `netfold` program."""
    try:
        program()()
    except KeyboardInterrupt:  # before a command could take care of it
        sys.exit("netfold: interrupted")
    except SystemExit as ended:  # typer has more statuses than 0, 1 (failed) and 2 (wrong usage), as 130 for Ctrl-C
        sys.exit(ended.code if ended.code in (None, 0, 2) else 1)
