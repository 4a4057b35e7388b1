"""`netfold lab`: emulated clusters on this machine."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from netfold.lab.errors import UsageError
from netfold.lab.guard import sentences
from netfold.lab.spec import Faults, LabSpec

lab_app = typer.Typer(no_args_is_help=True, help="Emulated clusters on this machine: namespaces and shaped links.")

Workers = Annotated[int, typer.Option(help="Workers, each in a namespace of its own.")]
Rate = Annotated[float, typer.Option("--rate-mbit-s", help="Rate of each worker's link, both ways; 0: not shaped.")]
SwitchRate = Annotated[
    float, typer.Option("--switch-rate-mbit-s", help="Rate of the switch box's link; 0: not shaped.")
]
Mtu = Annotated[int, typer.Option(help="MTU of every link in bytes.")]
Burst = Annotated[int, typer.Option("--burst-bytes", help="What a link lets through at once after a rest.")]
Latency = Annotated[float, typer.Option("--latency-ms", help="The longest a packet may queue at a link.")]
Loss = Annotated[float, typer.Option(help="Fraction of the packets lost, each way.")]
Duplicate = Annotated[float, typer.Option(help="Fraction of the packets duplicated, each way.")]
Reorder = Annotated[float, typer.Option(help="Fraction of the packets that others overtake, each way.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]


def register(app: typer.Typer) -> None:
    """Add `lab` to the program."""
    app.add_typer(lab_app, name="lab")


@lab_app.command()
def run(
    workers: Workers = 8,
    rate_mbit_s: Rate = 200.0,
    size_bytes: Annotated[str, typer.Option(help="Bytes of FP32 gradients; several, with commas.")] = "16777216",
    algorithm: Annotated[str, typer.Option(help="in-network, or none for the peers alone.")] = "in-network",
    wire: Annotated[str, typer.Option("--format", help="fp32, bfp, fp16, bf16 or int32.")] = "fp32",
    against: Annotated[str, typer.Option(help="Peers on the same links in the same run.")] = "gloo,openmpi",
    repeat: Annotated[int, typer.Option(help="Timed repetitions of each, after one warm-up.")] = 5,
    loss: Loss = 0.0,
    duplicate: Duplicate = 0.0,
    reorder: Reorder = 0.0,
    faults_by: Annotated[
        str,
        typer.Option(help="kernel: on the links, for everybody. netfold: in our clients, replayed by --seed."),
    ] = "kernel",
    seed: Annotated[int, typer.Option(help="Of the gradients, and of the faults by netfold.")] = 1,
    mtu: Mtu = 1500,
    switch_rate_mbit_s: SwitchRate = 0.0,
    burst_bytes: Burst = 131072,
    latency_ms: Latency = 20.0,
    timeout_s: Annotated[float, typer.Option(help="The longest any step may take, in seconds.")] = 60.0,
    sweep_workers: Annotated[str, typer.Option(help="As 2..8: the same at each number of workers, and a plot.")] = "",
    model_sizes: Annotated[bool, typer.Option("--model-sizes", help="The gradient sizes of six models.")] = False,
    scale: Annotated[float, typer.Option(help="With --model-sizes: a fraction of them.")] = 1.0,
    out: Annotated[Path | None, typer.Option(help="Where the plot goes: .png or .html.")] = None,
    json: Json = False,
) -> None:
    """Build a lab, measure an all-reduce in it against the peers, take it away."""
    from netfold.bench import comparison, models, plots, sweep
    from netfold.bench.screen import progress_bar, show

    with sentences():
        if model_sizes:
            if not 0 < scale <= 1:
                raise UsageError(f"--scale is above 0 and at most 1, not {scale}")
            sizes = {model: models.size_bytes(model, scale) for model in models.MODEL_MB}
        else:
            sizes = comparison.sizes_of(size_bytes)
        if out and out.suffix not in plots.SUFFIXES:
            raise UsageError(f"--out ends in {' or '.join(plots.SUFFIXES)}, not {out.suffix or 'nothing'}")
        faults = Faults(loss, duplicate, reorder)
        counts = sweep.counts_of(sweep_workers) if sweep_workers else [workers]
        labs = [LabSpec(n, rate_mbit_s, switch_rate_mbit_s, mtu, burst_bytes, latency_ms) for n in counts]
        plan = comparison.Plan(
            sizes, algorithm, wire, comparison.peers_of(against), repeat, timeout_s, seed, faults, faults_by
        )
        entries = []
        with progress_bar(plan.steps() * len(labs)) as progress:
            for spec in labs:
                entries += comparison.in_lab(spec, plan, progress)
        parameters = {**asdict(labs[-1]), **asdict(plan), "format": wire, "scale": scale, "sweep_workers": counts}
        show("lab run", f"all-reduce at {rate_mbit_s:g} Mbit/s a link", parameters, entries, json)
        if out:
            plots.draw(entries, out)
