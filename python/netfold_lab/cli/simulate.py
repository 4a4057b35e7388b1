"""`netfold simulate`: simulates collectives in virtual time, on networks of any size."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from netfold_lab.errors import UsageError
from netfold_lab.guard import sentences
from netfold_lab.outputs import output

simulate_app = typer.Typer(invoke_without_command=True)
Json = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]


def register(app: typer.Typer) -> None:
    """Add `simulate` to the program."""
    app.add_typer(simulate_app, name="simulate")


@simulate_app.callback()
def simulate(
    context: typer.Context,
    topology: Annotated[str, typer.Option(help="Network: bigraph:4x16, cluster.yaml, ... (see above).")] = "",
    algorithm: Annotated[str, typer.Option(help="Algorithms to time, with commas (`netfold schedule list`).")] = "ring",
    size_bytes: Annotated[int, typer.Option(min=4, help="Size of the fp32 tensor.")] = 1 << 26,
    rate_gbit_s: Annotated[
        float | None, typer.Option(help="Rate of every cable; not for a cluster file.", show_default="100")
    ] = None,
    latency_us: Annotated[
        float | None, typer.Option(min=0, help="Latency of every cable; not for a cluster file.", show_default="0.5")
    ] = None,
    step_latency_us: Annotated[
        float | None,
        typer.Option(min=0, help="Time of software and NICs before each transfer; default: 0, or the file's."),
    ] = None,
    start: Annotated[
        str, typer.Option(help="When a transfer may start: lock-step, own-receive, rendezvous, pieces, runtime.")
    ] = "runtime",
    spread: Annotated[str, typer.Option(help="Choice among routes of equal cost: hash or destination.")] = "",
    rehash: Annotated[bool, typer.Option("--rehash", help="Hash each transfer, not each connection.")] = False,
    seeds: Annotated[int, typer.Option(min=1, max=10_000, help="Number of route hashes to try.")] = 20,
    fold_gbit_s: Annotated[
        float | None,
        typer.Option(
            min=0, help="Rate at which switches fold; not for a cluster file.", show_default="they do not fold"
        ),
    ] = None,
    element_bits: Annotated[float, typer.Option(min=1, help="Bits of an element on the wire, with headers.")] = 32.0,
    group: Annotated[int, typer.Option(min=0, help="hierarchical: number of ranks per machine.")] = 0,
    goal: Annotated[Path | None, typer.Option(help="Simulate this GOAL text instead of an algorithm.")] = None,
    packets: Annotated[
        bool, typer.Option("--packets", help="Also simulate packets (cut-through; for few workers).")
    ] = False,
    trace: Annotated[Path | None, output("Write every transfer for Perfetto (ui.perfetto.dev).")] = None,
    check_deadlock: Annotated[
        bool, typer.Option("--check-deadlock", help="Check whether buffers can deadlock.")
    ] = False,
    json: Json = False,
) -> None:
    """Predict the time of a collective on a network, and its busiest links.

    Networks are cluster files, or star:HOSTS, bigraph:SUBNODESxSWITCHES, fat-tree:SUBNODESxSWITCHES,
    leaf-spine:LEAVESxSPINESxHOSTS, torus:ROWSxCOLUMNSxHOSTS, dragonfly:GROUPSxROUTERSxHOSTS.
    """
    if context.invoked_subcommand is not None:
        return
    with sentences():
        from netfold_lab.simulate import networks

        if not topology:
            raise UsageError("name the network by --topology, such as bigraph:4x16; see `netfold simulate --help`")
        try:
            network = networks.find(topology, {"rate_gbit_s": rate_gbit_s, "latency_us": latency_us}, fold_gbit_s)
            if spread:
                network.spread = spread
            parameters = {"topology": topology, "spread": network.spread, "workers": network.world}
            if check_deadlock:
                if goal or packets or trace:
                    raise UsageError("--check-deadlock uses only the routes: leave out --goal, --packets and --trace")
                _deadlock(network, parameters, json)
                return
            if goal is not None:
                _goal(network, goal, parameters, json)
                return
            latency = network.step_latency_s if step_latency_us is None else step_latency_us * 1e-6
            shared = {
                "count": -(-size_bytes // 4),
                "start": start,
                "step_latency_s": latency or 0.0,
                "element_bits": element_bits,
                "group": group,
                "rehash": rehash,
            }
            parameters |= {"size_bytes": size_bytes, "seeds": seeds, **shared}
            names = [name.strip() for name in algorithm.split(",") if name.strip()]
            if not names:
                raise UsageError("--algorithm is empty; `netfold schedule list` prints the names")
            _collectives(network, names, shared, seeds, packets, trace, parameters, json)
        except OSError as error:
            raise UsageError(f"{error.filename}: {error.strerror}") from None
        except ValueError as error:
            raise UsageError(str(error)) from None


def _collectives(
    network: Any,
    names: list[str],
    shared: dict[str, Any],
    seeds: int,
    packets: bool,
    trace: Path | None,
    parameters: dict[str, Any],
    as_json: bool,
) -> None:
    from netfold.json_output import envelope, print_json
    from netfold_lab.simulate import run

    results = []
    with _progress("simulating", len(names)) as advance:
        for name in names:
            question = run.Question(algorithm=name, **shared)
            result = run.simulate(network, question, seeds) | {"size_bytes": parameters["size_bytes"]}
            if packets:
                found = run.packets(network, question, cut_through=True, priorities="hop", priority_count=4)
                result["packets"] = {key: found[key] for key in ("time_s", "packets", "pauses", "is_deadlocked")}
            results.append(result)
            advance()
    if trace is not None:
        import json

        trace.write_text(json.dumps(run.trace(network, run.Question(algorithm=names[0], **shared))) + "\n")
    if as_json:
        print_json(envelope("simulate", parameters, results))
        return
    _print_results(results, f"{parameters['size_bytes']} bytes on {network.name}, {network.world} workers")
    if trace is not None:
        typer.echo(f"written: {trace} (open it in ui.perfetto.dev)")


def _print_results(results: list[dict[str, Any]], title: str) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title)
    for column in ("algorithm", "median", "95% of seeds", "packets", "busiest, of the time"):
        table.add_column(column)
    for result in results:
        packets = result.get("packets")
        table.add_row(
            result["algorithm"],
            f"{result['time_s_median'] * 1e6:.1f} us",
            f"{result['time_s_p95'] * 1e6:.1f} us" if len(result["time_s"]) > 1 else "",
            "" if packets is None else f"{packets['time_s'] * 1e6:.1f} us",
            ", ".join(f"{one['resource']} {one['busy']:.0%}" for one in result["busiest"][:2]),
        )
    Console().print(table)


def _goal(network: Any, path: Path, parameters: dict[str, Any], as_json: bool) -> None:
    from netfold import _core
    from netfold.json_output import envelope, print_json

    try:
        workload = _core.Workload.goal(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UsageError(f"{path}: {error}") from None
    found = _core.simulate_workload(network.topology, workload, hosts=network.hosts, spread=network.spread)
    if as_json:
        result = {"system": "netfold", "algorithm": path.name, "time_s": [found["time_s"]]}
        result["time_s_median"] = found["time_s"]
        print_json(envelope("simulate", parameters | {"goal": str(path)}, [result]))
        return
    typer.echo(f"{path} on {network.name}: {found['time_s'] * 1e6:.3f} us")


def _deadlock(network: Any, parameters: dict[str, Any], as_json: bool) -> None:
    from netfold.json_output import envelope, print_json
    from netfold_lab.simulate import deadlock

    found = list(deadlock.rules(network))
    if as_json:
        print_json(envelope("simulate", parameters | {"check_deadlock": True}, found))
        return
    for one in found:
        typer.echo(deadlock.sentence(one))


@simulate_app.command()
def fig16(
    nodes: Annotated[
        str, typer.Option(help="Sizes, with commas; powers of two from 64.", show_default="64 to 1024")
    ] = "64,128,256,512,1024",
    seeds: Annotated[int, typer.Option(min=1, max=10_000, help="Number of route hashes to try.")] = 20,
    step_latency_us: Annotated[float, typer.Option(min=0, help="Latency of every step; the default is fitted.")] = 7.1,
    farthest: Annotated[
        bool, typer.Option("--farthest", help="Halving-doubling with the farthest partner first.")
    ] = False,
    picture: Annotated[Path | None, output("Draw it to this file (.png, .svg, .pdf).")] = None,
    json: Json = False,
) -> None:
    """Reproduce Figure 16 of the EFLOPS paper: ring, halving-doubling and HDRM on fat trees and BiGraphs of 64 to 1024
    nodes."""
    with sentences():
        from netfold.json_output import envelope, print_json
        from netfold_lab.simulate import figure16

        try:
            sizes = tuple(int(number) for number in nodes.split(","))
        except ValueError:
            raise UsageError(f"--nodes takes numbers with commas, not '{nodes}'") from None
        if strange := [size for size in sizes if size < 64 or size & (size - 1)]:
            raise UsageError(f"--nodes takes powers of two from 64, not {strange[0]}")
        with _progress("simulating", len(sizes) * len(figure16.SIZES_BYTES) * len(figure16.LINES)) as advance:
            found = figure16.points(sizes, seeds, step_latency_us * 1e-6, farthest, advance)
        checks = list(figure16.check(found))
        if picture is not None:
            try:
                figure16.draw(found, picture)
            except ValueError as error:
                raise UsageError(str(error)) from None
        if json:
            parameters = {
                "nodes": list(sizes),
                "seeds": seeds,
                "step_latency_us": step_latency_us,
                "farthest": farthest,
            }
            published = [{"statement": text, "holds": holds} for text, holds in checks]
            print_json(envelope("simulate fig16", parameters, figure16.rows(found)) | {"published": published})
            return
        _print_figure(found, checks)
        if picture is not None:
            typer.echo(f"written: {picture}")


def _print_figure(found: list[Any], checks: list[tuple[str, bool]]) -> None:
    from rich.console import Console
    from rich.table import Table

    from netfold_lab.simulate import figure16

    for size in figure16.SIZES_BYTES:
        sizes = sorted({one.nodes for one in found})
        table = Table(title=f"{figure16.named(size)}: microseconds, median of the seeds")
        for column in ("network", "algorithm", *(str(number) for number in sizes)):
            table.add_column(column)
        for kind, algorithm in figure16.LINES:
            own = {
                p.nodes: p.median_s for p in found if (p.topology, p.algorithm, p.size_bytes) == (kind, algorithm, size)
            }
            table.add_row(kind, algorithm, *(f"{own[number] * 1e6:.0f}" for number in sizes))
        Console().print(table)
    for text, holds in checks:
        typer.echo(f"{'holds' if holds else 'DIFFERS'}: {text}")


@simulate_app.command()
def bench(
    workers: Annotated[
        int, typer.Option(min=64, help="Workers in the comparison with SimGrid; a power of two.")
    ] = 1024,
    large: Annotated[
        int, typer.Option(min=0, help="Workers of one more HDRM run without SimGrid; 0: no such run.")
    ] = 65536,
    repeat: Annotated[int, typer.Option(min=1, help="Number of runs of each.")] = 3,
    json: Json = False,
) -> None:
    """Compare with SimGrid on the same flows: the run time of each simulator, and the difference of their results."""
    with sentences():
        from netfold.json_output import envelope, print_json
        from netfold_lab.simulate import simgrid

        with _progress("simulating", simgrid.cases(large)) as advance:
            results = simgrid.compare(workers, large, repeat, advance)
        if json:
            print_json(envelope("simulate bench", {"workers": workers, "large": large, "repeat": repeat}, results))
            return
        for result in results:
            typer.echo(simgrid.sentence(result))


@simulate_app.command()
def apart(
    start: Annotated[str, typer.Option(help="When a transfer may start: lock-step, own-receive, ...")] = "lock-step",
    json: Json = False,
) -> None:
    """Compare the packet and the flow simulator for 16 to 256 workers, with and without each assumption of flows."""
    with sentences():
        from netfold.json_output import envelope, print_json
        from netfold_lab.simulate import flow_vs_packet

        try:
            with _progress("simulating", sum(1 for _ in flow_vs_packet.cases())) as advance:
                results = flow_vs_packet.measure(start, advance)
        except ValueError as error:
            raise UsageError(str(error)) from None
        if json:
            print_json(envelope("simulate apart", {"start": start}, results))
            return
        for line in flow_vs_packet.sentences(results):
            typer.echo(line)


def _progress(what: str, total: int) -> Any:
    """A context whose value is called after each of `total` steps; shows a bar on standard error if that is a
    terminal."""
    from contextlib import contextmanager

    from rich.console import Console
    from rich.progress import Progress

    @contextmanager
    def shown() -> Any:
        with Progress(console=Console(stderr=True), transient=True) as progress:
            task = progress.add_task(what, total=total)
            yield lambda: progress.advance(task)

    return shown()
