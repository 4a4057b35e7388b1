"""A progress bar on standard error while a measurement runs; the table or the JSON object at its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from netfold.bench.report import envelope, print_json
from netfold.bench.tables import results_table


@contextmanager
def progress_bar(steps: int) -> Iterator[Callable[[str], None]]:
    """Yields the function that tells what was just done. `starting...` and the like do not count as steps."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("building", total=steps)

        def tell(what: str) -> None:
            bar.update(task, description=what, advance=0 if what.startswith("starting") else 1)

        yield tell


def show(command: str, title: str, parameters: dict[str, Any], entries: list[dict[str, Any]], as_json: bool) -> None:
    """One JSON object, or a table."""
    if as_json:
        print_json(envelope(command, parameters, entries))
    else:
        Console().print(results_table(title, entries))
