"""The `netfold` command: one module a command, each with `register(app)`."""

from __future__ import annotations

import importlib
import sys

import typer

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

app = typer.Typer(name="netfold", no_args_is_help=True, add_completion=False, help=__import__("netfold").__doc__)


def main() -> None:
    """Entry point of the `netfold` program."""
    for command in COMMANDS:
        importlib.import_module(f"netfold.cli.{command}").register(app)
    try:
        app()
    except SystemExit as ended:  # typer has more statuses than 0, 1 (failed) and 2 (wrong usage), as 130 for Ctrl-C
        sys.exit(ended.code if ended.code in (None, 0, 2) else 1)
