"""`netfold bench`: measurements, one module of netfold.bench each."""

from __future__ import annotations

import importlib
import importlib.util

import typer

MEASUREMENTS = ("codec", "allreduce", "switch", "roce", "case1", "train", "convergence", "claims")

bench_app = typer.Typer(no_args_is_help=True, help="Measurements on this machine, with the peers in the same run.")


@bench_app.callback()
def bench() -> None:
    """Measurements on this machine, with the peers in the same run."""


def register(app: typer.Typer) -> None:
    """Add `bench` to the program, with those measurements that this installation has."""
    for name in MEASUREMENTS:
        if importlib.util.find_spec(f"netfold.bench.{name}"):
            importlib.import_module(f"netfold.bench.{name}").register(bench_app)
    app.add_typer(bench_app, name="bench")
