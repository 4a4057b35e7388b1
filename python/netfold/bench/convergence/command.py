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

from netfold.lab.guard import sentences
from netfold.outputs import output

EXPLAINED = (
    "accuracy after the last epoch on samples not trained on, mean over the seeds; beside fp32 in points; feedback: "
    "each worker keeps what its encoding lost for its next gradient"
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
        seeds: Annotated[int, typer.Option(help="Trainings of each run, from other weights in another order.")] = 3,
        algorithm: Annotated[str, typer.Option(help="ring, halving-doubling, in-network, ...")] = "ring",
        timeout_s: Annotated[float, typer.Option(help="The longest an epoch, or the start, may take.")] = 60.0,
        out: Annotated[Path | None, output("Where the picture goes: .png or .svg.")] = None,
        json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
    ) -> None:
        """Train to the end with gradients as fp32 and as ever coarser bfp, without and with error feedback."""
        from netfold.bench.convergence import measure, picture
        from netfold.bench.convergence.runs import runs_of
        from netfold.bench.report import envelope, print_json
        from netfold.bench.screen import progress_bar
        from netfold.bench.train import pictures
        from netfold.bench.train.variants import algorithms_of

        with sentences():
            pictures.check(out)
            (served,) = algorithms_of(algorithm, workers, several=False)
            plan = measure.Plan(tuple(runs_of(mantissas)), task, workers, epochs, batch, seeds, served, timeout_s)
            with progress_bar(plan.steps()) as progress:
                entries = measure.train_all(plan, progress)
            title = f"{task}, {workers} workers, {served}, {epochs} epochs of {batch} samples a worker, {seeds} seeds"
            if json:
                parameters = asdict(plan) | {"runs": [run.name for run in plan.runs]}
                print_json(envelope("bench convergence", parameters, entries))
            else:
                Console().print(table(title, entries))
            if out:
                picture.draw(entries, title, out)


def table(title: str, entries: Sequence[dict[str, Any]]) -> Table:
    """A row a run."""
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
