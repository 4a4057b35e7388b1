"""`netfold bench train`: its options, and what it prints."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from netfold_lab.errors import UsageError
from netfold_lab.guard import sentences
from netfold_lab.outputs import output
from netfold_lab.packages import need

ALGORITHMS_HELP = (
    "Algorithm of the offloaded variants: ring, halving-doubling, in-network, ...; several with commas (default: "
    "ring,in-network on a star, else ring,hdrm)."
)
FABRIC_HELP = "star: one switch. bigraph, fat-tree: every switch a router, every cable a shaped link."
PLACEMENT_HELP = "block: neighbouring ranks on neighbouring workers. shuffled: random places."
VARIANTS_HELP = "naive, overlapped (the baseline), offloaded, offloaded-bfp; several, with commas."
PROPORTION_HELP = "Seconds to send a worker's gradients once, per second of computation; 0: the paper's."
RATE_HELP = "Rate of each worker's link; 0: the rate that gives --proportion, from a measurement of computation."
MATCH_HELP = (
    "What to match to the paper: network (its speed relative to computation), or baseline (the parts of its step)."
)
SWEEP_HELP = "Compare places of the engine: the caller's thread, threads on their own cores, the agent process."


def register(app: typer.Typer) -> None:
    """Add the command to `netfold bench`."""

    @app.command("train")
    def train(
        model: Annotated[str, typer.Option(help="mlp, resnet50, or face (eflops.md VII-B).")] = "mlp",
        preset: Annotated[str, typer.Option(help="Default sizes: paper, small or tiny.")] = "small",
        workers: Annotated[int | None, typer.Option(help="Workers, each in a namespace of its own.")] = None,
        batch: Annotated[int | None, typer.Option(help="Samples per worker and step.")] = None,
        layers: Annotated[int | None, typer.Option(help="mlp: number of layers.")] = None,
        width: Annotated[int | None, typer.Option(help="mlp: rows and columns of a layer's matrix.")] = None,
        image: Annotated[int | None, typer.Option(help="resnet50, face: pixels of a picture's side.")] = None,
        classes: Annotated[int | None, typer.Option(help="face: number of classes.")] = None,
        features: Annotated[int | None, typer.Option(help="face: length of a picture's feature vector.")] = None,
        bucket_bytes: Annotated[
            int | None, typer.Option(help="Size of a bucket; 0: one tensor in each bucket.")
        ] = None,
        variants: Annotated[
            str, typer.Option(help=VARIANTS_HELP, show_default="all")
        ] = "naive,overlapped,offloaded,offloaded-bfp",
        algorithm: Annotated[str | None, typer.Option(help=ALGORITHMS_HELP, show_default=False)] = None,
        fabric: Annotated[str, typer.Option(help=FABRIC_HELP)] = "star",
        shape: Annotated[
            str, typer.Option(help="Shape of a bigraph or fat-tree: sub-nodes x switches, such as 2x4.")
        ] = "",
        places: Annotated[str, typer.Option("--placement", help=PLACEMENT_HELP)] = "block",
        rate_mbit_s: Annotated[float, typer.Option("--rate", "--rate-mbit-s", help=RATE_HELP)] = 0.0,
        proportion: Annotated[float, typer.Option(help=PROPORTION_HELP)] = 0.0,
        match: Annotated[str, typer.Option(help=MATCH_HELP)] = "network",
        mtu: Annotated[int, typer.Option(help="MTU of every link in bytes.")] = 1500,
        repeat: Annotated[int, typer.Option(help="Timed steps of each variant, after one warm-up.")] = 5,
        sweep_cores: Annotated[bool, typer.Option("--sweep-cores", help=SWEEP_HELP)] = False,
        sweep_workers: Annotated[
            str, typer.Option(help="Numbers of workers at which to measure the speed-up, such as 2,4,6.")
        ] = "",
        timeout_s: Annotated[float, typer.Option(help="Longest time for a step or the start, in seconds.")] = 120.0,
        out: Annotated[Path | None, output("Draw the result to this file (.png, .svg).")] = None,
        json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
    ) -> None:
        """Measure the parts of a training step: forward, backward, exposed all-reduce, weight update.

        Trains a real model in a lab of shaped links, with Netfold and with Gloo. The links are as fast, relative to
        this machine's computation, as those of the paper. `--preset paper` trains its 20 layers of 2048 x 2048.
        """
        need("torch")
        from netfold_lab.bench import sweep
        from netfold_lab.bench.screen import progress_bar
        from netfold_lab.bench.train import pictures, placement, profile, profiles, results
        from netfold_lab.bench.train.report import show
        from netfold_lab.bench.train.variants import Variant, algorithms_of, variants_of
        from netfold_lab.lab import kept

        with sentences():
            if sweep_cores and (sweep_workers or model == "face"):
                raise UsageError("--sweep-cores cannot be combined with --sweep-workers or --model face")
            pictures.check(out)
            network = profile.Network(fabric, shape, places, mtu)
            bigraph = network.bigraph()
            if workers is None and any(bigraph):
                workers = bigraph[0] * bigraph[1]
            given = {"workers": workers, "batch": batch, "layers": layers, "width": width, "image": image}
            given |= {"classes": classes, "features": features, "bucket_bytes": bucket_bytes}
            trained = profiles.make_profile(model, preset, **given)
            counts = sweep.counts_of(sweep_workers) if sweep_workers else [trained.workers]
            chosen: list[Variant] = []
            remarks: list[str] = []
            for count in counts:
                served = algorithms_of(algorithm or network.usual_algorithms(), count, bigraph=bigraph)
                chosen = variants_of(variants, served, prefetching=model == "face")
                if sweep_cores:
                    chosen, remarks = placement.variants_of(served)
            plans = [
                profile.ProfileSettings(
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
            with progress_bar(sum(settings.steps() for settings in plans)) as progress:
                for settings in plans:
                    outcomes.append(profile.in_lab(settings, progress))
            entries = [
                one
                for settings, outcome in zip(plans, outcomes, strict=True)
                for one in results.entries(outcome, settings.profile.workers)
            ]
            if sweep_cores:
                remarks.append(placement.best(entries))
            show(plans[-1], outcomes, entries, remarks, out, json)
