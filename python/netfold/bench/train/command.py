"""`netfold bench train`: its options, and what it prints."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from netfold.lab.guard import sentences


def register(app: typer.Typer) -> None:
    """Add the command to `netfold bench`."""

    @app.command("train")
    def train(
        model: Annotated[str, typer.Option(help="mlp, resnet50 or face.")] = "mlp",
        repeat: Annotated[int, typer.Option(help="Timed steps of each variant, after one warm-up.")] = 5,
    ) -> None:
        """Take training steps apart."""
        from netfold.bench.screen import progress_bar
        from netfold.bench.train import profile, profiles, results, variants

        with sentences():
            p = profiles.make_profile(model, "tiny")
            plan = profile.Plan(p, tuple(variants.variants_of(["alone", "naive", "overlapped", "offloaded"], ["ring", "in-network"])), repeat)
            with progress_bar(plan.steps()) as progress:
                out = profile.in_lab(plan, progress)
            for e in results.entries(out, p.workers):
                print(e)
