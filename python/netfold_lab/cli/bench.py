"""`netfold bench`: measurements. Each is a module of netfold_lab.bench."""

from __future__ import annotations

import importlib
import importlib.util

import typer

MEASUREMENTS = (
    "codec",
    "allreduce",
    "switch",
    "roce",
    "case1",
    "train",
    "gpu",
    "outages",
    "deaths",
    "convergence",
    "claims",
)

bench_app = typer.Typer(no_args_is_help=True, help="Measure on this machine, with the peers in the same run.")


@bench_app.callback()
def bench() -> None:
    """Measure on this machine, with the peers in the same run."""


def register(app: typer.Typer) -> None:
    """Add `bench` to the program, with the measurements that this installation has."""
    for name in MEASUREMENTS:
        if importlib.util.find_spec(f"netfold_lab.bench.{name}"):
            importlib.import_module(f"netfold_lab.bench.{name}").register(bench_app)
    app.add_typer(bench_app, name="bench")
