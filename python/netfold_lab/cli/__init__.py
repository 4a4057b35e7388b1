"""The commands of `netfold` that measure, emulate, plan and draw. Each is a module with `register(app)`."""

from __future__ import annotations

import importlib

import typer

from netfold.cli import COMMANDS
from netfold_lab.cli import help as help_text
from netfold_lab.cli import numbers


def program(*names: str) -> typer.Typer:
    """A program with these commands, by default with all of them."""
    app = typer.Typer(name="netfold", no_args_is_help=True, add_completion=False)
    app.callback()(_netfold)
    for name in names or [name for name, command in COMMANDS.items() if command.extra]:
        importlib.import_module(f"netfold_lab.cli.{name}").register(app)
    help_text.teach(app)
    numbers.guard(app)
    return app


def _netfold() -> None:
    """Netfold."""


def run(name: str, arguments: list[str]) -> None:
    """Run the command `name` with its arguments. Exits as typer does."""
    program(name)([name, *arguments], prog_name="netfold")
