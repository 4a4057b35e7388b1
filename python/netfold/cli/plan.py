"""`netfold plan`: how long a training step takes on a cluster, why, and what a change would bring."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from netfold.lab.errors import UsageError
from netfold.lab.guard import sentences
from netfold.outputs import output, output_folder

DEFAULT = "step"


class Plans(TyperGroup):
    """A group whose command may be left out (`netfold plan cluster.yaml`), or written as an option (`--calibrate`)."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the command in its place."""
        first = args[0] if args else "--help"
        if first.startswith("--") and first[2:] in self.commands:
            args = [first[2:], *args[1:]]
        elif first not in (*self.commands, "--help"):
            args = [DEFAULT, *args]
        return super().parse_args(ctx, args)


plan_app = typer.Typer(cls=Plans, no_args_is_help=True)
Json = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]


@plan_app.callback()
def plan() -> None:
    """How long a training step takes on a cluster, why, and what a change would bring."""


def register(app: typer.Typer) -> None:
    """Add `plan` to the program."""
    app.add_typer(plan_app, name="plan")


@plan_app.command(name=DEFAULT)
def step(
    cluster: Annotated[
        Path | None, typer.Argument(help="A cluster file (YAML), HPCC topology.txt or GraphML; none: closed forms.")
    ] = None,
    model: Annotated[str, typer.Option(help="mlp, resnet50, ..., or package.module:callable@SHAPE.")] = "resnet50",
    layers: Annotated[int, typer.Option(help="mlp: layers.")] = 20,
    width: Annotated[int, typer.Option(help="mlp: width of a layer.")] = 2048,
    batch: Annotated[int, typer.Option(help="Samples a worker and step.")] = 64,
    nodes: Annotated[str, typer.Option(help="Without a cluster: how many, as 3..32 or 4,8,16.")] = "",
    algorithm: Annotated[str, typer.Option(help="Which to compare, with commas; none: those that are worth it.")] = "",
    seeds: Annotated[int, typer.Option(min=1, help="Hashes of routes to try; their median counts.")] = 3,
    page: Annotated[Path, output("Where the HTML page goes.")] = Path("out/plan.html"),
    picture: Annotated[Path | None, output("Draw it to this file (.png, .svg, .pdf).")] = None,
    csv: Annotated[Path | None, output("Write all results as CSV.")] = None,
    trace: Annotated[Path | None, output("Write the step for Perfetto (ui.perfetto.dev).")] = None,
    mapping: Annotated[
        Path | None,
        output("Write the file that NETFOLD_TOPOLOGY reads, where it is a BiGraph."),
    ] = None,
    json: Json = False,
) -> None:
    """How long a step takes on a cluster; without one, the closed forms over numbers of nodes."""
    with sentences():
        from netfold.plan.models.zoo import model_of
        from netfold.plan.report import charts

        charts.check_picture(picture)
        trained = model_of(model, layers, width)
        if cluster is not None:
            wanted = [name for name in algorithm.split(",") if name]
            told = _planned(cluster, trained, batch, wanted, seeds)
            _tell(told, page, picture, csv, trace, mapping, json)
        elif nodes:
            _closed_forms(trained, batch, nodes, algorithm or "halving-doubling,in-network", page, picture, json)
        else:
            raise UsageError("name a cluster file, or --nodes for the closed forms, as --nodes 3..32")


def _planned(path: Path, model: Any, batch: int, wanted: list[str], seeds: int) -> Any:
    from netfold import _core
    from netfold.bench.screen import waiting
    from netfold.plan.cluster import spec
    from netfold.plan.step.answer import answer

    known = [name for name, _ in _core.algorithms()]
    if strange := [name for name in wanted if name not in known]:
        raise UsageError(f"--algorithm takes {', '.join(known)}, not {strange[0]}")
    with waiting("reading the cluster") as tell:
        return answer(spec.read(path), model, batch, wanted, seeds, tell)


def _tell(
    told: Any, page: Path, picture: Path | None, csv: Path | None, trace: Path | None, mapping: Path | None, json: bool
) -> None:
    from rich.console import Console

    from netfold.bench.report import envelope, print_json
    from netfold.plan.report import cluster as report

    console = Console(stderr=json)
    written: list[Path] = []

    def to(path: Path | None, write: Any) -> None:
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            if write(path, told) is False:
                raise UsageError(f"--mapping {path}: {told.cluster.name} is no BiGraph with a worker at every port")
            written.append(path)

    to(mapping, report.write_mapping)
    to(page, report.write_report)
    to(picture, report.draw)
    to(csv, report.write_csv)
    to(trace, report.write_trace)
    if json:
        parameters = {"cluster": told.cluster.name, "model": told.model.name, "batch": told.batch}
        parameters |= {"workers": told.workers, "assumptions": dict(report.assumptions(told))}
        print_json(envelope("plan", parameters, report.entries(told)))
    else:
        report.show(console, told)
    for each in written:
        console.print(f"written: {each.resolve()}", highlight=False, soft_wrap=True)


def _closed_forms(
    model: Any, batch: int, nodes: str, algorithm: str, page: Path, picture: Path | None, json: bool
) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    from netfold.bench.report import envelope, print_json
    from netfold.plan.analytic import allreduce, scaling
    from netfold.plan.report import scaling as told

    counts = scaling.nodes_of(nodes)
    wanted = [name for name in algorithm.split(",") if name]
    known = allreduce.algorithms(2)
    if strange := [name for name in wanted if name not in known]:
        raise UsageError(f"--algorithm takes {', '.join(known)}, not {strange[0]}")
    points = scaling.points(model, batch, counts, wanted)
    told.write(page, points, model, batch)
    if picture is not None:
        told.draw(picture, points, f"{model.name}, batch {batch}")
    if json:
        parameters = {"model": model.name, "layers": len(model.layers), "batch": batch, "nodes": counts}
        print_json(envelope("plan", parameters | {"algorithm": wanted}, [point.entry() for point in points]))
        return
    table = Table(title=f"{model.name}, batch {batch}: milliseconds of a step", box=SIMPLE_HEAD, padding=0)
    for head in told.HEADS:
        is_name = head == "system"
        table.add_column(head.removesuffix(", ms"), justify="left" if is_name else "right", min_width=17 * is_name)
    for row in told.rows(points, sorted({counts[0], counts[-1]})):
        table.add_row(*row)
    Console().print(table)
    for written in filter(None, (page, picture)):
        Console().print(f"written: {written.resolve()}", highlight=False, soft_wrap=True)


@plan_app.command(name="check-deadlock")
def check_deadlock(
    cluster: Annotated[Path, typer.Argument(help="A cluster file, HPCC topology.txt or GraphML.")],
    spread: Annotated[str, typer.Option(help="Routes of equal cost: hash or destination; none: the file's.")] = "",
    json: Json = False,
) -> None:
    """Prove or refute that the buffers of a lossless network may wait for each other in a circle."""
    with sentences():
        from netfold.bench.report import envelope, print_json
        from netfold.simulate import deadlock, networks

        network = networks.read(cluster)
        network.spread = spread or network.spread
        try:
            found = list(deadlock.rules(network))
        except ValueError as error:
            raise UsageError(str(error)) from None
        if json:
            print_json(envelope("plan check-deadlock", {"cluster": str(cluster), "spread": network.spread}, found))
        else:
            for one in found:
                typer.echo(deadlock.sentence(one))


@plan_app.command()
def papers(
    out: Annotated[Path, output_folder("The folder of the pages.")] = Path("docs/papers"),
    json: Json = False,
) -> None:
    """Write the papers' pages: every figure and table that a model can produce, theirs beside ours."""
    with sentences():
        from rich.console import Console

        from netfold.bench.report import envelope, print_json
        from netfold.plan.papers import pages

        written = pages.write_pages(out)
        if json:
            figures = [make().entry(paper.name) for paper in pages.PAPERS for make in paper.figures]
            print_json(envelope("plan papers", {"out": str(out)}, figures))
        else:
            for each in written:
                Console().print(f"written: {each}", highlight=False)


@plan_app.command(name="check-lab")
def check_lab(
    fabric: Annotated[str, typer.Option(help="Which, with commas.")] = "star,bigraph,fat-tree",
    shape: Annotated[str, typer.Option(help="Sub-nodes x switches; a star has as many workers.")] = "2x4",
    rate_mbit_s: Annotated[float, typer.Option(help="Of every link. Slow ones leave the cores idle.")] = 20.0,
    size_bytes: Annotated[str, typer.Option(help="Bytes of fp32, with commas.")] = "262144,1048576,4194304,8388608",
    repeat: Annotated[int, typer.Option(min=1, help="Timed repetitions of each.")] = 5,
    json: Json = False,
) -> None:
    """Predict all-reduces in labs on this machine, measure them, and set both side by side.

    Nothing is fitted to what is predicted. Takes minutes, and a quiet machine.
    """
    from netfold.algorithms import bigraph_of
    from netfold.bench.comparison import sizes_of
    from netfold.bench.report import envelope, print_json
    from netfold.bench.screen import progress_bar
    from netfold.lab import kept
    from netfold.plan.report import truth as report
    from netfold.plan.truth import check

    with sentences():
        try:
            parsed = bigraph_of(shape)
        except ValueError as error:
            raise UsageError(f"--shape: {error}") from None
        fabrics = tuple(dict.fromkeys(filter(None, fabric.split(","))))
        sizes = list(sizes_of(size_bytes).values())
        kept.prepare()
        with progress_bar(check.steps(fabrics, sizes, repeat)) as tell:
            machine, cells = check.check(fabrics, parsed, rate_mbit_s, sizes, repeat, tell)
        if json:
            parameters = {"fabric": list(fabrics), "shape": parsed, "rate_mbit_s": rate_mbit_s, "repeat": repeat}
            told = parameters | {"size_bytes": sizes} | report.findings(machine, cells)
            print_json(envelope("plan check-lab", told, check.entries(machine, cells)))
        else:
            report.show(machine, cells)


@plan_app.command()
def calibrate(
    ranks: Annotated[int, typer.Option(min=2, max=256, help="The most processes that fold together.")] = 4,
    link: Annotated[str, typer.Option(help="tcp, as between machines, or shm.")] = "tcp",
    repeat: Annotated[int, typer.Option(min=1, help="Timed repetitions of each point.")] = 5,
    out: Annotated[Path | None, output("Write it, for a cluster file's software.calibration.")] = None,
    json: Json = False,
) -> None:
    """Measure this machine (a message, a byte sent, a byte folded, computing), fit on few points, judge on the
    others."""
    with sentences():
        from netfold.bench.report import envelope, print_json
        from netfold.bench.screen import weighted_bar
        from netfold.plan.report import truth as report
        from netfold.plan.truth import calibrate as calibration

        with weighted_bar(1.0) as tell:
            found = calibration.calibrate(ranks, link, repeat, tell)
        if out is not None:
            calibration.write(out, found)
        if json:
            print_json(envelope("plan calibrate", {"ranks": ranks, "link": link, "repeat": repeat}, [found.told()]))
        else:
            report.show_calibration(found)


@plan_app.command()
def export(
    cluster: Annotated[Path, typer.Argument(help="A cluster file.")],
    out: Annotated[Path, output_folder("The folder of the files.")] = Path("out/export"),
    formats: Annotated[
        str, typer.Option("--format", help="goal, chakra, htsim, hpcc, graphml; several, with commas.")
    ] = "goal,chakra",
    algorithm: Annotated[str, typer.Option(help="Of the all-reduce.")] = "ring",
    size_bytes: Annotated[int, typer.Option(min=4, max=1 << 40, help="Bytes of fp32 of the all-reduce.")] = 1 << 20,
    model: Annotated[str, typer.Option(help="Of the step: as `netfold plan`'s.")] = "resnet50",
    batch: Annotated[int, typer.Option(min=1, max=1_000_000, help="Samples a worker and step.")] = 64,
    json: Json = False,
) -> None:
    """Write an all-reduce, a step and the network for other simulators: LogGOPSim, ASTRA-sim, csg-htsim, ns-3."""
    with sentences():
        from rich.console import Console

        from netfold.bench.report import envelope, print_json
        from netfold.plan.cluster import spec
        from netfold.plan.export import command
        from netfold.plan.models.zoo import model_of
        from netfold.plan.step.collectives import contenders

        read = spec.read(cluster)
        chosen = contenders(read, read.graph(), [algorithm])
        if not chosen:
            raise UsageError(f"--algorithm {algorithm} cannot run on {read.name}")
        wanted = [each for each in formats.split(",") if each]
        written = command.export(out, wanted, read, model_of(model), batch, chosen[0], size_bytes // 4)
        if json:
            parameters = {"cluster": read.name, "algorithm": algorithm, "size_bytes": size_bytes}
            print_json(envelope("plan export", parameters, [{"file": str(each)} for each in written]))
        else:
            Console().print(f"written: {len(written)} files in {out.resolve()}", highlight=False, soft_wrap=True)


@plan_app.command()
def sweep(
    file: Annotated[Path, typer.Argument(help="A sweep file (YAML): a cluster, and what of it to vary.")],
    scheduler: Annotated[str, typer.Option(help="Of a Dask cluster, as tcp://head:8786; none: this machine.")] = "",
    workers: Annotated[int, typer.Option(min=0, help="Processes on this machine; 0: one a core.")] = 0,
    out: Annotated[
        Path | None,
        output("Results, a line of JSON a design.", show_default="beside the file, .results.jsonl"),
    ] = None,
    page: Annotated[Path, output("Where the HTML page goes.")] = Path("out/sweep.html"),
    picture: Annotated[Path | None, output("Draw price against speed (.png, .svg, .pdf).")] = None,
    json: Json = False,
) -> None:
    """Plan every combination of what a file varies, in parallel. Interrupted, the same command goes on."""
    with sentences():
        from rich.console import Console

        from netfold.bench.report import envelope, print_json
        from netfold.plan.report import charts
        from netfold.plan.report import sweep as report
        from netfold.plan.sweep import designs
        from netfold.plan.sweep.results import Notebook

        charts.check_picture(picture)
        read = designs.read(file)
        notebook = Notebook(out or file.with_suffix(".results.jsonl"))
        _run_sweep(read, notebook, scheduler, workers)
        wanted = {design.key for design in read.designs()}
        results = [result for key, result in notebook.kept.items() if key in wanted]
        report.write(page, results, file.stem)
        if picture is not None:
            report.draw(picture, results)
        if json:
            parameters = {"file": str(file), "designs": len(read), "results_file": str(notebook.path)}
            print_json(envelope("plan sweep", parameters, results))
            return
        report.show(Console(), results)
        for each in filter(None, (page, picture, notebook.path)):
            Console().print(f"written: {each.resolve()}", highlight=False, soft_wrap=True)


def _run_sweep(read: Any, notebook: Any, scheduler: str, workers: int) -> None:
    from netfold.bench.screen import weighted_bar
    from netfold.plan.sweep import run

    missing = run.lacking(read, notebook)
    if not missing:
        return
    total = len(missing) + len(notebook.kept)
    try:
        with run.client(scheduler, workers) as connected, weighted_bar(total, len(notebook.kept)) as tell:
            run.run(missing, notebook, connected, lambda result: tell(result.get("algorithm", "cannot be"), 1))
    except KeyboardInterrupt:
        kept = len(notebook.kept)
        typer.echo(f"netfold: {kept} of {total} designs are kept; the same command goes on from there", err=True)
        raise
