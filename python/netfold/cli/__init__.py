"""The `netfold` command: one module a command, each with `register(app)`."""

from __future__ import annotations

import importlib

import typer

COMMANDS = ("demo", "switch", "top", "bench", "lab", "schedule", "doctor")

app = typer.Typer(name="netfold", no_args_is_help=True, add_completion=False, help=__import__("netfold").__doc__)


def main() -> None:
    """Entry point of the `netfold` program."""
    for command in COMMANDS:
        importlib.import_module(f"netfold.cli.{command}").register(app)
    app()
