"""`netfold rtl`: the hardware of rtl/, simulated, measured, proved, linted and synthesised."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from netfold_lab.cli import rtl_switch
from netfold_lab.cli.rtl_board import board
from netfold_lab.cli.rtl_constraints import constraints
from netfold_lab.cli.rtl_mutate import mutate
from netfold_lab.cli.rtl_screen import errors, finish, finish_lines, progress
from netfold_lab.cli.rtl_timing import timing

Lanes = Annotated[int, typer.Option(help="FP32 numbers per beat: 8 (40G) or 16 (100G).")]
Block = Annotated[int, typer.Option(help="Elements that share an exponent.")]
Mantissa = Annotated[int, typer.Option(help="Bits of a mantissa without its sign.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def register(app: typer.Typer) -> None:
    """Add the command and its subcommands."""
    rtl = typer.Typer(help="Simulate, measure, prove, lint and synthesise the hardware.")
    for command in (
        build,
        test,
        bench,
        train,
        nic,
        coverage,
        report,
        timing,
        constraints,
        board,
        lint,
        prove,
        mutate,
        registers,
        drawings,
    ):
        rtl.command()(command)
    rtl_switch.register(rtl)
    app.add_typer(rtl, name="rtl", no_args_is_help=True)


def _shape(lanes: int, block: int, mantissa: int) -> Any:
    from netfold_lab.rtl.simulation import Shape

    if lanes not in (8, 16) or block not in (8, 16, 32, 64, 128) or not 2 <= mantissa <= 7:
        raise typer.BadParameter("--lanes takes 8 or 16, --block a power of two from 8 to 128, --mantissa 2 to 7")
    return Shape(lanes, block, mantissa)


def build(lanes: Lanes = 8, block: Block = 16, mantissa: Mantissa = 7, as_json: AsJson = False) -> None:
    """Build the simulations of one shape: netfold-rtl, and the NIC behind NETFOLD_NIC=simulated. The first build takes
    minutes."""
    from netfold_lab.rtl import simulation

    with errors(), progress() as say:
        shape = _shape(lanes, block, mantissa)
        say(f"building {shape.name}")
        built = simulation.build(shape, ("netfold-rtl", "netfold-nic"))
    parameters = {"lanes": lanes, "block": block, "mantissa": mantissa}
    finish_lines("build", parameters, [{"folder": str(built)}], [f"built: {built}"], as_json)


def test(
    values: Annotated[int, typer.Option(min=1, help="Numbers for each arithmetic module.")] = 100_000,
    rings: Annotated[int, typer.Option(min=0, help="Random ring runs.")] = 20,
    world_max: Annotated[int, typer.Option(min=2, max=32, help="Devices of the largest ring.")] = 8,
    count_max: Annotated[int, typer.Option(min=1, help="Elements of the largest request.")] = 20_000,
    loss: Annotated[
        float, typer.Option(min=0, max=0.5, help="Largest fraction of frames lost (and damaged, repeated, delayed).")
    ] = 0.05,
    seed: Annotated[int, typer.Option(help="Seed; the same seed repeats a run.")] = 1,
    lanes: Lanes = 8,
    block: Block = 16,
    mantissa: Mantissa = 7,
    as_json: AsJson = False,
) -> None:
    """Fuzz modules against the reference kernels, and rings with loss against the software's. Any difference is a
    failure."""
    from netfold_lab.rtl import bench as measurements
    from netfold_lab.rtl import simulation

    shape = _shape(lanes, block, mantissa)
    with errors(), progress() as say:
        say(f"building {shape.name}")
        simulation.build(shape)
        results = measurements.modules(shape, values, seed, 0.2, say)
        if rings:
            say(f"{rings} rings")
            options = [f"--runs={rings}", f"--world-max={world_max}", f"--count-max={count_max}", f"--loss={loss}"]
            results.append({"module": "rings", **simulation.run(shape, "rings", *options, f"--seed={seed}")})
    failed = any(result["differences"] or result.get("failed") for result in results)
    parameters = {"values": values, "rings": rings, "world_max": world_max, "count_max": count_max, "loss": loss}
    finish("test", {**parameters, "seed": seed, "lanes": lanes}, results, as_json, failed)


def bench(
    worlds: Annotated[str, typer.Option(help="Sizes of the rings to time.")] = "2,3,4,5,6,7,8",
    count: Annotated[int, typer.Option(min=1, help="Elements of the all-reduce.")] = 262_144,
    link_bytes_per_cycle: Annotated[
        float, typer.Option(min=0, help="Rate of a slow link, to show the gain of bfp; 0: a quarter of a beat.")
    ] = 0,
    values: Annotated[int, typer.Option(min=0, help="Numbers for each module; 0: 10^5 beats.")] = 0,
    lanes: Lanes = 8,
    block: Block = 16,
    mantissa: Mantissa = 7,
    as_json: AsJson = False,
) -> None:
    """Time modules (beats per cycle, latency) and all-reduces (cycles, beside the paper's model IV-C)."""
    from netfold_lab.rtl import bench as measurements
    from netfold_lab.rtl import simulation

    shape = _shape(lanes, block, mantissa)
    slow = link_bytes_per_cycle or float(lanes)
    sizes = [int(world) if world.strip().isdecimal() else 0 for world in worlds.split(",")]
    if any(not 2 <= world <= 32 for world in sizes):
        raise typer.BadParameter("write numbers of devices with commas: a ring has 2 to 32", param_hint="--worlds")
    with errors(), progress() as say:
        say(f"building {shape.name}")
        simulation.build(shape)
        results = measurements.modules(shape, values or 100_000 * lanes, 1, 0.0, say)
        for world in sizes:
            for rate in (0.0, slow):
                pair = [measurements.all_reduce(shape, world, count, bfp, rate, say) for bfp in (False, True)]
                for timed in pair:
                    timed["speedup"] = pair[0]["cycles"] / timed["cycles"]
                results += pair
        results.append(measurements.requests_in_flight(shape, sizes[-1], count // 8, 8, say))
    failed = any(result["differences"] or result.get("failed") for result in results)
    finish("bench", {"worlds": sizes, "count": count, "lanes": lanes}, results, as_json, failed)


def train(
    workers: Annotated[int, typer.Option(min=2, max=32, help="Ranks, each with a NIC.")] = 4,
    format_: Annotated[str, typer.Option("--format", help="fp32 or bfp.")] = "bfp",
    steps: Annotated[int, typer.Option(min=1, help="Optimizer steps.")] = 40,
    batch: Annotated[int, typer.Option(min=1, help="Pictures per rank and step.")] = 32,
    as_json: AsJson = False,
) -> None:
    """Train the digits classifier through simulated NICs and in software. Fails unless the parameters are equal."""
    from netfold_lab.bench import nic_training
    from netfold_lab.rtl import simulation

    if format_ not in ("fp32", "bfp"):
        raise typer.BadParameter("the NICs support fp32 and bfp")
    with errors(), progress() as say:
        say("building")
        simulation.build(simulation.Shape(), ("netfold-nic",))
        say(f"training {workers} workers for {steps} steps, twice")
        result = nic_training.compare(format_, workers, steps, batch)
    parameters = {"workers": workers, "format": format_, "steps": steps, "batch": batch}
    finish("train", parameters, [result], as_json, not result["same"])


def nic(
    socket: Annotated[str, typer.Argument(help="Path of the socket, as NETFOLD_NIC or QEMU names it.")],
    interface: Annotated[str, typer.Option(help="Interface that carries its frames (needs CAP_NET_RAW).")] = "",
    ip: Annotated[str, typer.Option(help="IPv4 address of this machine, for frames in UDP.")] = "127.0.0.1",
    faults: Annotated[str, typer.Option(help="Faults of the frames that it sends, such as loss=0.01,seed=7.")] = "",
    lanes: Lanes = 8,
    block: Block = 16,
    mantissa: Mantissa = 7,
) -> None:
    """Run a simulated NIC behind a socket, as a PCI device (vfio-user): for a rank with NETFOLD_NIC, or for a guest of
    QEMU. It ends at Ctrl-C."""
    from netfold_lab.rtl import simulation

    with errors(), progress() as say:
        shape = _shape(lanes, block, mantissa)
        say(f"building {shape.name}")
        program = simulation.build(shape, ("netfold-nic",)) / "rtl" / "sim" / "netfold-nic"
    cable = ["--interface", interface] if interface else ["--ip", ip]
    os.execv(program, [program.name, "--socket", socket, *cable, *(["--faults", faults] if faults else [])])


def coverage(
    runs: Annotated[int, typer.Option(min=1, help="Random rings.")] = 30,
    as_json: AsJson = False,
) -> None:
    """Run modules, rings and failures, and print the share of each source's lines and bits that they reached."""
    from netfold_lab.rtl import coverage as reached

    with errors(), progress() as say:
        results = reached.measure(runs, say)
    finish("coverage", {"runs": runs}, results, as_json, False)


def report(
    gbit_s: Annotated[int, typer.Option(help="40, 100 or 400; 0: all three.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Synthesise with yosys: LUT, FF, RAM and DSP by module, beside Table I of ai-smart-nic. The first run takes
    minutes."""
    from netfold_lab.rtl import report as area

    wanted = [gbit_s] if gbit_s else list(area.DEVICES)
    if any(rate not in area.DEVICES for rate in wanted):
        raise typer.BadParameter("write 40, 100, 400 or 0")
    results: list[dict[str, Any]] = []
    with errors(), progress() as say:
        for rate in wanted:
            say(f"synthesising for {rate} Gbit/s")
            found = area.device(rate)
            for group in area.GROUPS:
                rows = [*sorted(found.modules[group].items()), ("all", found.total(group))]
                results += [{"gbit_s": rate, "group": group, "module": name, **vars(row)} for name, row in rows]
            fifos = area.fifo_bits(found.lanes) * found.ports
            results.append({"gbit_s": rate, "fifo_bits": fifos, "fifo_m20k": fifos / area.M20K_BITS})
    results += [
        {"paper": name, "alms": alms, "m20ks": rams, "dsps": dsps} for name, (alms, rams, dsps) in area.PAPER.items()
    ]
    finish("report", {"gbit_s": wanted}, results, as_json, False)


def lint(as_json: AsJson = False) -> None:
    """Run Verilator -Wall, verible and slang. Fails at any warning."""
    from netfold_lab.rtl.lint import LINTERS

    with errors():
        for run in LINTERS.values():
            run()
    finish_lines("lint", {}, [{"linter": name} for name in LINTERS], [f"{name}: clean" for name in LINTERS], as_json)


def prove(
    harness: Annotated[list[str] | None, typer.Argument(help="Name of a proof; default: all.")] = None,
    as_json: AsJson = False,
) -> None:
    """Prove FIFOs, skid buffers, queues and the replay buffer by induction."""
    from netfold_lab.rtl import prove as proofs

    names = harness or proofs.harnesses()
    unknown = set(names) - set(proofs.harnesses())
    if unknown:
        raise typer.BadParameter(
            f"there is no proof {', '.join(sorted(unknown))}; proofs: {', '.join(proofs.harnesses())}"
        )
    with errors(), progress() as say:
        results = []
        for name in names:
            say(name)
            results.append(vars(proofs.prove(name)))
    finish("prove", {"harnesses": names}, results, as_json, False)


def registers(as_json: AsJson = False) -> None:
    """Write each register map's package, C header and page from its file in rtl/."""
    from netfold_lab.rtl import registers as register_map

    with errors():
        changed = register_map.write()
    _written("registers", changed, as_json)


def drawings(as_json: AsJson = False) -> None:
    """Draw the pictures of the hardware pages: block diagrams from the sources, waveforms from a simulation."""
    from netfold_lab.rtl.drawings import pages

    with errors(), progress() as say:
        say("simulating an all-reduce; the first time takes minutes")
        changed = pages.write()
    _written("drawings", changed, as_json)


def _written(command: str, paths: Sequence[Path], as_json: bool) -> None:
    lines = [f"written: {path}" for path in paths] or ["all files are up to date"]
    finish_lines(command, {}, [{"file": str(path)} for path in paths], lines, as_json)
