"""`netfold plan check-train`: its options, and what it prints."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from netfold_lab.errors import UsageError
from netfold_lab.guard import FAILED, sentences
from netfold_lab.outputs import output
from netfold_lab.packages import need

WORKERS_MAX, BATCH_MAX = 64, 1_000_000


def register(plan: typer.Typer) -> None:
    """Add the command to `netfold plan`."""
    plan.command(name="check-train")(check_train)


def check_train(
    workers: Annotated[str, typer.Option(help="Numbers of workers, from 3, with commas.")] = "3,4,5,6",
    batch: Annotated[str, typer.Option(help="Samples per worker and step, with commas.")] = "448,1792",
    algorithm: Annotated[str, typer.Option(help="ring, in-network, or both with a comma.")] = "ring,in-network",
    formats: Annotated[str, typer.Option("--format", help="fp32, bfp, or both with a comma.")] = "fp32,bfp",
    rate_mbit_s: Annotated[float, typer.Option("--rate", "--rate-mbit-s", help="Rate of each worker's link.")] = 200.0,
    switch_rate_mbit_s: Annotated[
        float,
        typer.Option(help="In-network, a second time: rate of a narrow link of the switch. 0: not a second time."),
    ] = 400.0,
    layers: Annotated[int, typer.Option(min=1, max=1000, help="Layers of the perceptron.")] = 20,
    width: Annotated[int, typer.Option(min=1, max=16384, help="Rows and columns of a layer's matrix.")] = 512,
    repeat: Annotated[int, typer.Option(min=1, max=1000, help="Timed steps of each case; their median counts.")] = 3,
    attempts: Annotated[
        int, typer.Option(min=1, max=100, help="Attempts to measure a step that other programs disturb.")
    ] = 3,
    timeout_s: Annotated[float, typer.Option(help="Longest time for a step or the start, in seconds.")] = 120.0,
    within: Annotated[
        str,
        typer.Option(help="Largest mean error and largest error in percent, such as 3,8; beyond them the status is 1."),
    ] = "",
    out: Annotated[Path | None, output("Draw the result to this file (.png, .svg).")] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """Predict whole training steps of `netfold bench train` on this machine, measure them, and compare.

    Two workers calibrate computation and links. All combinations of the options are then cases: each is predicted
    before it is measured, with all-reduces within backward and after it. It takes minutes, and needs an idle machine.
    Ctrl-C shows the cases that were measured so far.
    """
    need("torch")
    from netfold_lab.bench.screen import progress_bar
    from netfold_lab.bench.train import pictures
    from netfold_lab.lab import kept
    from netfold_lab.plan.truth.train_cases import CheckSettings
    from netfold_lab.plan.truth.train_check import Findings, check
    from netfold_lab.sizes import numbers_in, words_in

    with sentences():
        pictures.check(out)
        limits = _limits(within)
        settings = CheckSettings(
            tuple(dict.fromkeys(numbers_in(workers, "--workers", WORKERS_MAX))),
            tuple(dict.fromkeys(numbers_in(batch, "--batch", BATCH_MAX))),
            words_in(algorithm),
            words_in(formats),
            rate_mbit_s,
            switch_rate_mbit_s,
            layers,
            width,
            repeat,
            attempts,
            timeout_s,
        )
        findings = Findings()
        kept.prepare()
        try:
            with progress_bar(settings.steps()) as tell:
                check(settings, findings, tell)
        except KeyboardInterrupt:
            if findings.cases:
                _show(settings, findings, limits, out, json)
            raise
        is_right = _show(settings, findings, limits, out, json)
    if not is_right:
        raise typer.Exit(FAILED)


def _limits(text: str) -> tuple[float, float] | None:
    """`3,8` as fractions. Raises UsageError."""
    if not text:
        return None
    try:
        mean, worst = (float(word) / 100 for word in text.split(","))
        if not 0 < mean <= worst < 1:
            raise ValueError
    except ValueError:
        raise UsageError(f"--within takes two percentages, the mean error first, such as 3,8, not {text!r}") from None
    return mean, worst


def _show(settings: Any, findings: Any, limits: tuple[float, float] | None, out: Path | None, json: bool) -> bool:
    """Print and draw; returns whether the errors are within the limits."""
    from rich.console import Console

    from netfold.json_output import envelope, print_json
    from netfold_lab.plan.report import train_check as report

    console = Console(stderr=json)
    if json:
        told = {
            "workers": list(settings.workers),
            "batch": list(settings.batches),
            "algorithm": list(settings.algorithms),
            "format": list(settings.formats),
            "rate_mbit_s": settings.rate_mbit_s,
            "switch_rate_mbit_s": settings.switch_rate_mbit_s,
            "layers": settings.layers,
            "width": settings.width,
            "repeat": settings.repeat,
            "attempts": settings.attempts,
        }
        told |= report.summary(findings, limits)
        print_json(envelope("plan check-train", told, report.entries(settings, findings.cases)))
    else:
        report.show(console, settings, findings, limits)
    if out is not None:
        report.draw(out, findings)
        console.print(f"written: {out.resolve()}", highlight=False, soft_wrap=True)
    return limits is None or report.is_within(findings, limits)
