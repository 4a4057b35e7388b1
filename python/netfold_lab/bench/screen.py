"""A progress bar on standard error while a measurement runs; the table or the JSON object at its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from netfold.json_output import envelope, print_json
from netfold_lab.bench.tables import results_table

SPEED_PERIOD_S = 300.0  # the period for the estimate of the time left


@contextmanager
def progress_bar(steps: int) -> Iterator[Callable[[str], None]]:
    """Yields the function that reports a finished step. Messages such as `starting...` do not count as steps."""
    with _bar(MofNCompleteColumn(), TimeElapsedColumn()) as bar:
        task = bar.add_task("building", total=steps)

        def tell(what: str) -> None:
            bar.update(task, description=what, advance=0 if what.startswith("starting") else 1)

        yield tell


@contextmanager
def weighted_bar(total: float, done: float = 0) -> Iterator[Callable[[str, float], None]]:
    """Like progress_bar, for steps of different length: each is reported with its weight. Shows the time left."""
    with _bar(TaskProgressColumn(), TimeElapsedColumn(), TimeRemainingColumn()) as bar:
        task = bar.add_task("building", total=total)
        bar.update(task, completed=done)
        yield lambda what, weight: bar.update(task, description=what, advance=weight)


@contextmanager
def waiting(what: str) -> Iterator[Callable[[str], None]]:
    """A spinner for work without a known number of steps. Yields the function that reports the current step."""
    with Console(stderr=True).status(what) as status:
        yield status.update


def _bar(*columns: ProgressColumn) -> Progress:
    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        *columns,
        console=console,
        transient=True,
        speed_estimate_period=SPEED_PERIOD_S,
    )


def show(command: str, title: str, parameters: dict[str, Any], entries: list[dict[str, Any]], as_json: bool) -> None:
    """One JSON object, or a table."""
    if as_json:
        print_json(envelope(command, parameters, entries))
    else:
        Console().print(results_table(title, entries))
