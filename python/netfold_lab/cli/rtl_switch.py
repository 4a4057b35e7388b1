"""`netfold rtl switch`: simulates the folding switch of rtl/, compares it with the software's, and measures it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from netfold_lab.cli.rtl_screen import errors, finish, finish_lines, progress
from netfold_lab.outputs import output

Ports = Annotated[int, typer.Option(min=2, max=16, help="Ports of the switch.")]
OneClock = Annotated[
    bool, typer.Option(help="One clock for the whole switch: faster to simulate, but without clock crossings.")
]
Version = Annotated[
    int, typer.Option(min=1, max=2, help="Version of RoCE: 1 (over Ethernet), or 2 (over IPv4 and UDP).")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def register(rtl: typer.Typer) -> None:
    """Add the group to `netfold rtl`."""
    switch = typer.Typer(
        help="Build, test and measure the hardware switch that folds RoCE v1 and v2, and train through it."
    )
    for command in (build, test, bench, train, report):
        switch.command()(command)
    rtl.add_typer(switch, name="switch", no_args_is_help=True)


def build(ports: Ports = 4, one_clock: OneClock = False, as_json: AsJson = False) -> None:
    """Build the simulation and the engine of `netfold switch --engine rtl` for a number of ports. The first build takes
    minutes."""
    from netfold_lab.rtl import simulation

    with errors(), progress() as say:
        shape = simulation.SwitchShape(ports, not one_clock)
        say(f"building {shape.name}")
        built = simulation.build(shape, ("netfold-rtl-switch", "_rtl_switch"))
    parameters = {"ports": ports, "one_clock": one_clock}
    finish_lines("switch build", parameters, [{"folder": str(built)}], [f"built: {built}"], as_json)


def test(
    runs: Annotated[int, typer.Option(min=0, help="Random jobs, with random frames one at a time.")] = 20,
    frames_a_run: Annotated[int, typer.Option(min=1, help="Frames of each run.")] = 1000,
    frames: Annotated[int, typer.Option(min=0, help="Aggregated frames at line rate, for each format.")] = 10_000,
    formats: Annotated[
        str, typer.Option(help="Formats of gradients, with commas: fp32, int32, bfp, fp16, bf16.", show_default="all")
    ] = "fp32,int32,bfp,fp16,bf16",
    messages: Annotated[int, typer.Option(min=0, help="Messages of each endpoint on cables that lose frames.")] = 4,
    loss: Annotated[float, typer.Option(min=0, max=0.3, help="Fraction of frames lost, each way.")] = 0.05,
    version: Annotated[
        int, typer.Option(min=0, max=2, help="Version of RoCE: 1, or 2 (over IPv4 and UDP). 0: both.")
    ] = 0,
    seed: Annotated[int, typer.Option(help="Seed; the same seed repeats a run.")] = 1,
    ports: Ports = 8,
    one_clock: OneClock = True,
    as_json: AsJson = False,
) -> None:
    """Compare the hardware with the software's switch: frame by frame, sum by sum, with loss. Any difference is a
    failure. With both versions of RoCE, each job of random frames draws its version, and sums and loss are tested once
    for each version."""
    from netfold_lab.rtl import simulation, switch_bench

    shape = simulation.SwitchShape(ports, not one_clock)
    wires = formats.split(",")
    if not set(wires) <= set(switch_bench.FORMATS):
        raise typer.BadParameter(
            f"write some of {', '.join(switch_bench.FORMATS)}, with commas", param_hint="--formats"
        )
    versions = (version,) if version else switch_bench.VERSIONS
    results: list[dict[str, Any]] = []
    with errors(), progress() as say:
        say(f"building {shape.name}")
        simulation.build(shape)
        for wire in wires:
            if runs:
                say(f"{runs} times {frames_a_run} random frames, {wire}")
                results.append(switch_bench.mixtures(shape, runs, frames_a_run, seed, wire, version or None))
            for each in versions if frames else []:
                say(f"{frames} sums of {wire} at line rate, RoCE v{each}")
                results.append(switch_bench.sums(shape, wire, frames, wire not in ("int32", "bfp"), seed, each))
        for each in versions if messages else []:
            say(f"{messages} messages per worker of RoCE v{each}, with {loss:g} of the frames lost")
            results.append(switch_bench.losses(shape, "fp32", messages, loss, seed, version=each))
            say("the same with neighbours that stall by pause frames")
            results.append(switch_bench.losses(shape, "fp32", messages, loss, seed, stall=loss, version=each))
    failed = any(result["differences"] for result in results)
    for example in [example for result in results for example in result.get("examples", [])]:
        typer.echo(example, err=True)
    parameters = {"runs": runs, "frames_a_run": frames_a_run, "frames": frames, "messages": messages, "loss": loss}
    parameters |= {"version": version, "seed": seed, "ports": ports, "one_clock": one_clock}
    finish("switch test", parameters, results, as_json, failed)


def bench(
    frames: Annotated[int, typer.Option(min=128, help="Aggregated frames per port at line rate.")] = 10_000,
    workers: Annotated[str, typer.Option(help="Numbers of workers of the all-reduces to time.")] = "2,3,4,5,6,7,8",
    loads: Annotated[str, typer.Option(help="Loads of the line at which to measure latencies.")] = "0.1,0.5,0.9,1",
    plot: Annotated[Path | None, output("Draw histograms of the latencies to this file (.png, .svg).")] = None,
    version: Version = 1,
    ports: Ports = 8,
    one_clock: OneClock = False,
    as_json: AsJson = False,
) -> None:
    """Measure in simulated time: line rate and bubbles, latencies under load, and the models of Table VIII by folding
    and by a ring. Fails if a frame is lost or wrong. It takes minutes."""
    from netfold_lab.rtl import simulation, switch_bench, switch_plots

    shape = simulation.SwitchShape(ports, not one_clock)
    worlds = [int(word) for word in workers.split(",") if word.strip()]
    if any(not 2 <= world <= ports for world in worlds):
        raise typer.BadParameter(f"a job has 2 to {ports} workers here", param_hint="--workers")
    results: list[dict[str, Any]] = []
    with errors(), progress() as say:
        say(f"building {shape.name}")
        simulation.build(shape)
        scenes = (("fp32", 0), ("fp32", 1), ("bfp", 0), ("bf16", 0))
        rates = [switch_bench.line_rate(shape, wire, frames, every, say, version) for wire, every in scenes]
        timed = [
            row for load in loads.split(",") for row in switch_bench.latencies(shape, 4, float(load), say, version)
        ]
        results += rates + timed + switch_bench.ratios(shape, worlds, say, version)
    if plot is not None:
        switch_plots.draw_latencies(timed, plot)
    failed = any(rate["differences"] for rate in rates)
    parameters = {"frames": frames, "workers": worlds, "loads": loads, "version": version}
    parameters |= {"ports": ports, "one_clock": one_clock}
    finish("switch bench", parameters, results, as_json, failed)


def train(
    workers: Annotated[int, typer.Option(min=2, max=16, help="Ranks, each at a port of the switch.")] = 4,
    format_: Annotated[str, typer.Option("--format", help="fp32, fp16, bf16 or bfp.")] = "fp32",
    steps: Annotated[int, typer.Option(min=1, help="Optimizer steps.")] = 20,
    batch: Annotated[int, typer.Option(min=1, help="Pictures per rank and step.")] = 32,
    version: Version = 1,
    as_json: AsJson = False,
) -> None:
    """Train the digits classifier over veth ports through the simulated switch, and through the software's. Fails
    unless the parameters are equal. It needs root."""
    from netfold_lab.bench import switch_training
    from netfold_lab.rtl import simulation

    if format_ not in ("fp32", "fp16", "bf16", "bfp"):
        raise typer.BadParameter("write fp32, fp16, bf16 or bfp")
    with errors(), progress() as say:
        say("building")
        simulation.build(simulation.SwitchShape(workers, has_crossings=False), ("_rtl_switch",))
        say(f"training {workers} workers for {steps} steps by RoCE v{version}, twice")
        result = switch_training.compare(format_, workers, steps, batch, version)
    parameters = {"workers": workers, "format": format_, "steps": steps, "batch": batch, "version": version}
    finish("switch train", parameters, [result], as_json, not result["same"])


def report(
    ports: Annotated[str, typer.Option(help="Numbers of ports, with commas.")] = "2,3,4,5,6,7,8,16",
    half: Annotated[bool, typer.Option(help="A switch that also folds fp16 and bf16.")] = False,
    plot: Annotated[Path | None, output("Draw the size over the number of ports to this file (.png, .svg).")] = None,
    as_json: AsJson = False,
) -> None:
    """Synthesise with yosys: LUT, FF and block RAM by module and number of ports, beside the paper's values. The first
    run takes many minutes; later runs synthesise only changed parts."""
    from netfold_lab.rtl import switch_plots, switch_report

    sizes = [int(word) if word.strip().isdecimal() else 0 for word in ports.split(",")]
    if any(not 2 <= size <= 16 for size in sizes):
        raise typer.BadParameter("a switch has 2 to 16 ports", param_hint="--ports")
    results: list[dict[str, Any]] = []
    with errors(), progress() as say:
        for size in sizes:
            say(f"{size} ports")
            results += switch_report.switch(size, say, half)
    totals = [row for row in results if row["module"] == "all"]
    for row in totals:
        row["share_of_xcvu190"] = switch_report.shares(row)
    if plot is not None:
        switch_plots.draw_areas(totals, switch_report.PAPER, plot)
    finish("switch report", {"ports": sizes, "half": half, "paper": switch_report.PAPER}, results, as_json, False)
