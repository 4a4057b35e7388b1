"""Output of the commands of `netfold rtl`: progress on standard error, results as tables or one JSON object."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import typer


@contextmanager
def errors() -> Iterator[None]:
    """Print errors as a sentence, and exit with status 1."""
    from netfold_lab.rtl.paths import RtlError

    try:
        yield
    except (RtlError, RuntimeError, OSError) as error:
        typer.echo(f"netfold rtl: {error}", err=True)
        raise typer.Exit(1) from None


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """A line on standard error that names the current step."""
    from rich.console import Console

    with Console(stderr=True).status("starting") as status:
        yield status.update


def finish(
    command: str, parameters: dict[str, Any], results: list[dict[str, Any]], as_json: bool, failed: bool
) -> None:
    """Print one JSON object or tables; exit with status 1 after a failure."""
    from netfold.json_output import envelope, print_json

    if as_json:
        print_json(envelope(f"rtl {command}", parameters, results))
    elif results:
        _show(results)
    if failed:
        raise typer.Exit(1)


def finish_lines(
    command: str, parameters: dict[str, Any], results: list[dict[str, Any]], lines: list[str], as_json: bool
) -> None:
    """Like finish, for commands whose tables are lines."""
    if as_json:
        finish(command, parameters, results, as_json, failed=False)
    else:
        typer.echo("\n".join(lines))


def _show(results: list[dict[str, Any]]) -> None:
    """A table for rows with the same keys."""
    from rich.console import Console
    from rich.table import Table

    tables: dict[tuple[str, ...], Table] = {}
    for row in results:
        simple = {key: value for key, value in row.items() if not isinstance(value, dict | list)}
        if tuple(simple) not in tables:
            tables[tuple(simple)] = Table(*simple)
        tables[tuple(simple)].add_row(*(f"{v:.5g}" if isinstance(v, float) else str(v) for v in simple.values()))
    for table in tables.values():
        Console(width=None if sys.stdout.isatty() else 200).print(table)
