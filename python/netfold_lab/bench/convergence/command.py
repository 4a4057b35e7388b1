"""`netfold bench convergence`: its options, and what it prints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from netfold_lab.guard import sentences
from netfold_lab.outputs import output

EXPLAINED = (
    "accuracy on test samples after the last epoch, mean over the seeds; difference to fp32 in points; feedback: "
    "each worker adds the rounding error of its encoding to its next gradient"
)


def register(app: typer.Typer) -> None:
    """Add the command to `netfold bench`."""

    @app.command("convergence")
    def convergence(
        task: Annotated[str, typer.Option(help="digits (a small perceptron) or mlp (a deeper one).")] = "digits",
        workers: Annotated[int, typer.Option(help="Processes that train together.")] = 6,
        mantissas: Annotated[str, typer.Option(help="Mantissa bits of bfp, 2 to 7; several, with commas.")] = "7,5,3",
        epochs: Annotated[int, typer.Option(help="Passes over the training set.")] = 40,
        batch: Annotated[int, typer.Option(help="Samples of a worker in a step.")] = 16,
        seeds: Annotated[int, typer.Option(help="Trainings of each run, each with a seed of its own.")] = 3,
        algorithm: Annotated[str, typer.Option(help="ring, halving-doubling, in-network, ...")] = "ring",
        timeout_s: Annotated[float, typer.Option(help="Longest time for an epoch or the start, in seconds.")] = 60.0,
        out: Annotated[Path | None, output("Draw the result to this file (.png, .svg).")] = None,
        json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
    ) -> None:
        """Train to the end with gradients in fp32 and in coarser formats of bfp, without and with error feedback."""
        from netfold.json_output import envelope, print_json
        from netfold_lab.bench.convergence import measure, picture
        from netfold_lab.bench.convergence.runs import runs_of
        from netfold_lab.bench.screen import progress_bar
        from netfold_lab.bench.train import pictures
        from netfold_lab.bench.train.variants import algorithms_of

        with sentences():
            pictures.check(out)
            (served,) = algorithms_of(algorithm, workers, several=False)
            settings = measure.ConvergenceSettings(
                tuple(runs_of(mantissas)), task, workers, epochs, batch, seeds, served, timeout_s
            )
            with progress_bar(settings.steps()) as progress:
                entries = measure.train_all(settings, progress)
            title = f"{task}, {workers} workers, {served}, {epochs} epochs of {batch} samples a worker, {seeds} seeds"
            if json:
                parameters = asdict(settings) | {"runs": [run.name for run in settings.runs]}
                print_json(envelope("bench convergence", parameters, entries))
            else:
                Console().print(table(title, entries))
            if out:
                picture.draw(entries, title, out)


def table(title: str, entries: Sequence[dict[str, Any]]) -> Table:
    """The table: a row for each run."""
    found = Table(title=title, caption=EXPLAINED, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in ("gradients", "accuracy", "vs fp32", "lowest", "highest", "last loss", "same"):
        found.add_column(name, justify="left" if name == "gradients" else "right")
    for one in entries:
        seeds = one["accuracy_of_seeds"]
        found.add_row(
            one["name"],
            *(f"{one['accuracy']:.2%}", f"{one['points_from_fp32']:+.2f}", f"{min(seeds):.1%}", f"{max(seeds):.1%}"),
            f"{one['loss_last']:.2g}",
            "yes" if one["same_bits"] else "NO",
        )
    return found
