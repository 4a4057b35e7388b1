"""`netfold bench train`: its options, and what it prints."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from netfold.lab.errors import UsageError
from netfold.lab.guard import sentences
from netfold.outputs import output

ALGORITHMS_HELP = (
    "Of the offloaded variants: ring, halving-doubling, in-network, ...; several, with commas. Star: ring,in-network, "
    "else ring,hdrm."
)
FABRIC_HELP = "star: one switch. bigraph, fat-tree: every switch a router, every cable a shaped link."
PLACEMENT_HELP = "block: neighbouring ranks on neighbouring workers. shuffled: anywhere."
VARIANTS_HELP = "naive, overlapped (the baseline), offloaded, offloaded-bfp; several, with commas."
PROPORTION_HELP = "Seconds to send a worker's gradients once, per second of computation; 0: the paper's."
RATE_HELP = "Rate of each worker's link; 0: the one that gives --proportion, by computation measured alone."
MATCH_HELP = "What is as the paper's: the network beside computation, or what the baseline's step consists of."
SWEEP_HELP = "Where the engine runs: the caller's thread, threads on cores of their own, the agent process."


def register(app: typer.Typer) -> None:
    """Add the command to `netfold bench`."""

    @app.command("train")
    def train(
        model: Annotated[str, typer.Option(help="mlp, resnet50, or face (eflops.md VII-B).")] = "mlp",
        preset: Annotated[str, typer.Option(help="paper, small or tiny: sizes where no option says more.")] = "small",
        workers: Annotated[int | None, typer.Option(help="Workers, each in a namespace of its own.")] = None,
        batch: Annotated[int | None, typer.Option(help="Samples of a worker in a step.")] = None,
        layers: Annotated[int | None, typer.Option(help="mlp: how many.")] = None,
        width: Annotated[int | None, typer.Option(help="mlp: rows and columns of a layer's matrix.")] = None,
        image: Annotated[int | None, typer.Option(help="resnet50, face: pixels of a picture's side.")] = None,
        classes: Annotated[int | None, typer.Option(help="face: of all workers' classifiers together.")] = None,
        features: Annotated[int | None, typer.Option(help="face: length of a picture's feature vector.")] = None,
        bucket_bytes: Annotated[int | None, typer.Option(help="Gradients all-reduced together; 0: a tensor.")] = None,
        variants: Annotated[
            str, typer.Option(help=VARIANTS_HELP, show_default="all")
        ] = "naive,overlapped,offloaded,offloaded-bfp",
        algorithm: Annotated[str | None, typer.Option(help=ALGORITHMS_HELP, show_default=False)] = None,
        fabric: Annotated[str, typer.Option(help=FABRIC_HELP)] = "star",
        shape: Annotated[str, typer.Option(help="Of bigraph and fat-tree: sub-nodes x switches, as 2x4.")] = "",
        places: Annotated[str, typer.Option("--placement", help=PLACEMENT_HELP)] = "block",
        rate_mbit_s: Annotated[float, typer.Option("--rate", "--rate-mbit-s", help=RATE_HELP)] = 0.0,
        proportion: Annotated[float, typer.Option(help=PROPORTION_HELP)] = 0.0,
        match: Annotated[str, typer.Option(help=MATCH_HELP)] = "network",
        mtu: Annotated[int, typer.Option(help="MTU of every link in bytes.")] = 1500,
        repeat: Annotated[int, typer.Option(help="Timed steps of each variant, after one warm-up.")] = 5,
        sweep_cores: Annotated[bool, typer.Option("--sweep-cores", help=SWEEP_HELP)] = False,
        sweep_workers: Annotated[str, typer.Option(help="As 2,4,6: speed-up by the number of workers.")] = "",
        timeout_s: Annotated[float, typer.Option(help="The longest a step, or the start, may take.")] = 120.0,
        out: Annotated[Path | None, output("Where the picture goes: .png or .svg.")] = None,
        json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
    ) -> None:
        """Where a training step's time goes: forward, backward, exposed all-reduce, weight update.

        Trains a real model in a lab of shaped links and sets Netfold beside Gloo. The links are made as fast, beside
        this machine's computation, as those of the paper. `--preset paper` trains its 20 layers of 2048 x 2048.
        """
        from netfold.bench import sweep
        from netfold.bench.screen import progress_bar
        from netfold.bench.train import pictures, placement, profile, profiles, results
        from netfold.bench.train.show import show
        from netfold.bench.train.variants import algorithms_of, variants_of
        from netfold.lab import kept

        with sentences():
            if sweep_cores and (sweep_workers or model == "face"):
                raise UsageError("--sweep-cores goes neither with --sweep-workers nor with --model face")
            pictures.check(out)
            network = profile.Network(fabric, shape, places, mtu)
            bigraph = network.bigraph()
            if workers is None and any(bigraph):
                workers = bigraph[0] * bigraph[1]
            given = {"workers": workers, "batch": batch, "layers": layers, "width": width, "image": image}
            given |= {"classes": classes, "features": features, "bucket_bytes": bucket_bytes}
            trained = profiles.make_profile(model, preset, **given)
            counts = sweep.counts_of(sweep_workers) if sweep_workers else [trained.workers]
            chosen, remarks = [], []
            for count in counts:
                served = algorithms_of(algorithm or network.usual_algorithms(), count, bigraph=bigraph)
                chosen = variants_of(variants, served, prefetching=model == "face")
                if sweep_cores:
                    chosen, remarks = placement.variants_of(served)
            plans = [
                profile.Plan(
                    replace(trained, workers=count),
                    tuple(chosen),
                    repeat,
                    rate_mbit_s,
                    proportion,
                    timeout_s,
                    network,
                    match,
                )
                for count in counts
            ]
            kept.prepare()
            outcomes = []
            with progress_bar(sum(plan.steps() for plan in plans)) as progress:
                for plan in plans:
                    outcomes.append(profile.in_lab(plan, progress))
            entries = [
                one
                for plan, outcome in zip(plans, outcomes, strict=True)
                for one in results.entries(outcome, plan.profile.workers)
            ]
            if sweep_cores:
                remarks.append(placement.best(entries))
            show(plans[-1], outcomes, entries, remarks, out, json)
