"""`netfold demo`: trains a real classifier through the network, and shows its costs."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from netfold_lab.outputs import output


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    app.command(name="demo")(demo)


def demo(
    workers: Annotated[int, typer.Option(help="Number of worker processes.", min=2, max=64)] = 4,
    epochs: Annotated[int, typer.Option(help="Passes over the training pictures, per run.", min=1)] = 20,
    batch: Annotated[int, typer.Option(help="Pictures per worker and step.", min=1, max=256)] = 32,
    page: Annotated[Path, output("Write an HTML page to this file.")] = Path("out/demo.html"),
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of the table.")] = False,
) -> None:
    """Train a classifier of handwritten digits through the network, and compare with Gloo.

    It runs DDP three times: with gradients folded in the network as fp32 and as bfp16, and on Gloo. Then it prints a
    table, and writes a page of loss curves and step timelines. It needs neither a network nor root.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # like Ctrl-C, so that the workers are ended
    console = Console(stderr=as_json)
    try:
        from netfold.json_output import envelope, print_json
        from netfold_lab.bench.digits import load_digits

        load_digits()
        from netfold_lab.demo import machine_name, train_all
        from netfold_lab.demo.page import write_page
        from netfold_lab.demo.report import COUNTED, as_result

        runs = _with_progress(console, train_all, workers, epochs, batch)
        write_page(page, runs, machine_name())
    except KeyboardInterrupt:
        typer.echo("netfold: stopped; all workers have ended", err=True)
        raise typer.Exit(1) from None
    except (RuntimeError, OSError) as error:
        typer.echo(f"netfold: {error}", err=True)
        raise typer.Exit(1) from None
    if as_json:
        parameters = {"workers": workers, "epochs": epochs, "batch": batch, "page": str(page.resolve())}
        print_json(envelope("demo", parameters, [as_result(run) for run in runs]))
        return
    console.print(_table(runs))
    console.print(COUNTED, style="dim")
    console.print(f"Loss curves and timelines: [bold]{page.resolve()}[/]", highlight=False, soft_wrap=True)


def _with_progress(console: Console, train_all: Any, workers: int, epochs: int, batch: int) -> list[Any]:
    from netfold_lab.bench.digits import batches
    from netfold_lab.demo import TRIALS, Trial

    steps = epochs * len(batches(1437, 0, workers, batch, 0))
    columns = (
        TextColumn("{task.description:<16}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[loss]}"),
    )
    with Progress(*columns, TimeElapsedColumn(), console=console) as bars:
        tasks = {trial: bars.add_task(trial.name, total=steps, loss="", start=False) for trial in TRIALS}

        def on_event(trial: Trial, event: dict[str, Any] | None) -> None:
            if event is None:
                bars.start_task(tasks[trial])
                bars.update(tasks[trial], loss="workers start")
            else:
                bars.update(tasks[trial], advance=1, loss=f"loss {event['loss']:.3f}")

        return train_all(workers, epochs, batch, on_event)


def _table(runs: list[Any]) -> Table:
    from netfold_lab.demo.report import HEADS, rows

    table = Table(
        title=f"Digits, {runs[0].workers} workers, {runs[0].parameter_bytes / 1024:,.0f} KiB of gradients a step"
    )
    for i, head in enumerate(HEADS):
        table.add_column(head, justify="left" if i == 0 else "right", no_wrap=i == 0)
    for row in rows(runs):
        table.add_row(*row)
    return table
