"""`netfold plan`: predicts the time of a training step on a cluster, its causes, and the gain of a change."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from netfold_lab.cli import plan_train
from netfold_lab.cli.numbers import Group
from netfold_lab.errors import UsageError
from netfold_lab.guard import sentences
from netfold_lab.outputs import output, output_folder

DEFAULT = "step"


class Plans(Group):
    """A group with a default command (`netfold plan cluster.yaml`). A command may also be an option (`--calibrate`)."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert the name of the command."""
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
    """Predict the time of a training step on a cluster, its causes, and the gain of changes.

    `netfold plan CLUSTER` is `netfold plan step CLUSTER`; `netfold plan step --help` lists its options.
    """


def register(app: typer.Typer) -> None:
    """Add `plan` to the program."""
    app.add_typer(plan_app, name="plan")


@plan_app.command(name=DEFAULT)
def step(
    cluster: Annotated[
        Path | None,
        typer.Argument(help="A cluster file (YAML), HPCC topology.txt or GraphML; without it: closed forms."),
    ] = None,
    model: Annotated[str, typer.Option(help="mlp, resnet50, ..., or package.module:callable@SHAPE.")] = "resnet50",
    layers: Annotated[int | None, typer.Option(help="mlp: layers.", show_default="20")] = None,
    width: Annotated[int | None, typer.Option(help="mlp: width of a layer.", show_default="2048")] = None,
    batch: Annotated[int, typer.Option(help="Samples per worker and step.")] = 64,
    sharding: Annotated[
        str,
        typer.Option(
            help="What workers share: none (DDP), zero1, zero2, zero3 (FSDP; not with --pipeline).", show_default="none"
        ),
    ] = "",
    accumulate: Annotated[
        int | None, typer.Option(min=1, help="Batches whose gradients are added up in a step.", show_default="1")
    ] = None,
    optimizer: Annotated[
        str, typer.Option(help="Its state counts as memory: sgd, momentum or adam.", show_default="adam")
    ] = "",
    tensor_parallel: Annotated[
        int | None, typer.Option(min=1, help="GPUs of a server that divide every matrix.", show_default="1")
    ] = None,
    recompute: Annotated[
        str,
        typer.Option(
            help="Activations that are computed again: none, selective, full. They then count as memory.",
            show_default="not counted",
        ),
    ] = "",
    pipeline: Annotated[
        int | None,
        typer.Option(min=1, help="Stages of a pipeline; --accumulate is the micro-batches.", show_default="1"),
    ] = None,
    schedule: Annotated[
        str, typer.Option(help="Of the pipeline: gpipe, 1f1b or interleaved.", show_default="1f1b")
    ] = "",
    virtual_stages: Annotated[
        int | None, typer.Option(min=1, help="Chunks of the model at a stage, if interleaved.", show_default="2")
    ] = None,
    expert_parallel: Annotated[
        int | None, typer.Option(min=1, help="GPUs that share the experts of a layer.", show_default="1")
    ] = None,
    expert_load: Annotated[
        float | None, typer.Option(help="Tokens of the busiest of them over the mean.", show_default="1")
    ] = None,
    shard_group: Annotated[
        int | None, typer.Option(min=2, help="Workers that share a copy of the state (HSDP).", show_default="all")
    ] = None,
    offload: Annotated[bool, typer.Option("--offload", help="The optimizer is in the host's memory.")] = False,
    nodes: Annotated[str, typer.Option(help="Without a cluster: numbers of nodes, such as 3..32 or 4,8,16.")] = "",
    algorithm: Annotated[
        str, typer.Option(help="Algorithms to compare, with commas; default: those that fit the cluster.")
    ] = "",
    seeds: Annotated[
        int | None,
        typer.Option(min=1, help="Number of route hashes to try; the result is their median.", show_default="3"),
    ] = None,
    measured: Annotated[
        Path | None,
        typer.Option(help="Output of all_reduce_perf or osu_allreduce on this cluster: a curve is fitted to it."),
    ] = None,
    page: Annotated[Path, output("Write an HTML page to this file.")] = Path("out/plan.html"),
    picture: Annotated[Path | None, output("Draw it to this file (.png, .svg, .pdf).")] = None,
    csv: Annotated[Path | None, output("Write all results as CSV.")] = None,
    trace: Annotated[Path | None, output("Write the step for Perfetto (ui.perfetto.dev).")] = None,
    mapping: Annotated[
        Path | None,
        output("Write a file for NETFOLD_TOPOLOGY, if the cluster is a BiGraph."),
    ] = None,
    json: Json = False,
) -> None:
    """Predict the time of a step on a cluster. Without a cluster, use closed forms for numbers of nodes."""
    with sentences():
        from netfold_lab.plan.models.zoo import model_of
        from netfold_lab.plan.report import charts

        charts.check_picture(picture)
        if model != "mlp":
            _refuse({"--layers": layers, "--width": width}, f"{model} has layers of its own; only mlp takes them")
        trained = model_of(model, 20 if layers is None else layers, 2048 if width is None else width)
        if cluster is not None:
            _refuse({"--nodes": nodes}, f"{cluster} has its own number of workers")
            wanted = [name for name in algorithm.split(",") if name]
            training = {"sharding": sharding or "none", "accumulate": accumulate or 1, "optimizer": optimizer or "adam"}
            training |= {"tensor": tensor_parallel or 1, "recompute": recompute, "pipeline": pipeline or 1}
            training |= {"schedule": schedule, "virtual": virtual_stages or 0}
            training |= {"experts": expert_parallel or 1, "load": expert_load or 0.0}
            training |= {"group": shard_group or 0, "offload": offload}
            told = _planned(cluster, trained, batch, wanted, seeds or 3, training, measured)
            _tell(told, page, picture, csv, trace, mapping, json)
        elif nodes:
            refused: dict[str, Any] = {"--sharding": sharding, "--accumulate": accumulate, "--optimizer": optimizer}
            refused |= {"--tensor-parallel": tensor_parallel, "--recompute": recompute}
            refused |= {"--pipeline": pipeline, "--schedule": schedule}
            refused |= {"--virtual-stages": virtual_stages}
            refused |= {"--expert-parallel": expert_parallel, "--expert-load": expert_load}
            refused |= {"--shard-group": shard_group, "--offload": offload or None}
            refused |= {"--seeds": seeds, "--csv": csv, "--trace": trace, "--mapping": mapping, "--measured": measured}
            _refuse(refused, "the closed forms have no network; name a cluster file")
            _closed_forms(trained, batch, nodes, algorithm or "halving-doubling,in-network", page, picture, json)
        else:
            raise UsageError("name a cluster file, or give --nodes for the closed forms, such as --nodes 3..32")


def _refuse(options: dict[str, Any], why: str) -> None:
    """Raises UsageError if one of these options is given: the command would ignore it."""
    if given := [name for name, value in options.items() if value not in (None, "")]:
        raise UsageError(f"leave out {given[0]}: {why}")


def _planned(
    path: Path,
    model: Any,
    batch: int,
    wanted: list[str],
    seeds: int,
    training: dict[str, Any],
    measured: Path | None,
) -> Any:
    from netfold_lab.bench.screen import waiting
    from netfold_lab.plan.step.answer import answer
    from netfold_lab.plan.step.sharded import Training

    known = _known(wanted)
    with waiting("reading the cluster") as tell:
        return answer(_read(path, measured), model, batch, known, seeds, tell, Training(**training))


def _known(wanted: list[str]) -> list[str]:
    """Raises UsageError for the name of an algorithm that does not exist."""
    from netfold import _core
    from netfold_lab.plan.library import mpi
    from netfold_lab.plan.step import closed
    from netfold_lab.plan.step.collectives import AUTO

    known = [AUTO, *(name for name, _ in _core.algorithms()), mpi.NAME, *closed.EVERY]
    if strange := [name for name in wanted if name not in known]:
        raise UsageError(f"--algorithm takes {', '.join(known)}, not {strange[0]}")
    return wanted


def _read(path: Path, measured: Path | None) -> Any:
    from netfold_lab.plan.cluster import spec

    read = spec.read(path)
    return read if measured is None else spec.with_measured(read, measured)


def _tell(
    told: Any, page: Path, picture: Path | None, csv: Path | None, trace: Path | None, mapping: Path | None, json: bool
) -> None:
    from rich.console import Console

    from netfold.json_output import envelope, print_json
    from netfold_lab.plan.report import cluster as report
    from netfold_lab.plan.report.assumptions import assumption_entries

    console = Console(stderr=json)
    written: list[Path] = []

    def to(path: Path | None, write: Any) -> None:
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            if write(path, told) is False:
                raise UsageError(f"--mapping {path}: {told.cluster.name} is not a BiGraph with a worker at every port")
            written.append(path)

    to(mapping, report.write_mapping)
    to(page, report.write_report)
    to(picture, report.draw)
    to(csv, report.write_csv)
    to(trace, report.write_trace)
    if json:
        parameters = {"cluster": told.cluster.name, "model": told.model.name, "batch": told.batch}
        parameters |= asdict(told.job.training) | {
            "workers": told.workers,
            "assumptions": assumption_entries(told),
        }
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

    from netfold.json_output import envelope, print_json
    from netfold_lab.plan.analytic import allreduce, scaling
    from netfold_lab.plan.report import scaling as told

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


@plan_app.command()
def collective(
    cluster: Annotated[Path, typer.Argument(help="A cluster file.")],
    collective: Annotated[str, typer.Option(help="all-reduce, reduce-scatter or all-gather.")] = "all-reduce",
    size_bytes: Annotated[
        str, typer.Option(help="Sizes of fp32 tensors, with commas.")
    ] = "1KiB,1MiB,16MiB,256MiB,4GiB",
    algorithm: Annotated[
        str, typer.Option(help="Algorithms to compare, with commas; default: those that fit the cluster.")
    ] = "",
    measured: Annotated[
        Path | None,
        typer.Option(help="Output of all_reduce_perf or osu_allreduce on this cluster: a curve is fitted to it."),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, max=1000, help="Number of route hashes to try.")] = 3,
    json: Json = False,
) -> None:
    """Predict the time of a collective for each size and algorithm, as nccl-tests prints it, and name the library."""
    with sentences():
        from rich.console import Console

        from netfold.json_output import envelope, print_json
        from netfold_lab.plan.report import collective as report
        from netfold_lab.sizes import size_name, sizes_of

        wanted = _known([name for name in algorithm.split(",") if name])
        read = _read(cluster, measured)
        sizes = sizes_of(size_bytes)
        told = report.entries(read, collective, sizes, wanted, seeds)
        if json:
            parameters = {"cluster": read.name, "collective": collective, "algorithm": wanted}
            print_json(envelope("plan collective", parameters, told))
        else:
            report.show(Console(), told, size_name)


@plan_app.command(name="check-deadlock")
def check_deadlock(
    cluster: Annotated[Path, typer.Argument(help="A cluster file, HPCC topology.txt or GraphML.")],
    spread: Annotated[
        str, typer.Option(help="Choice among routes of equal cost: hash or destination; default: the file's.")
    ] = "",
    json: Json = False,
) -> None:
    """Check whether the buffers of a lossless network can deadlock, with a proof or a cycle."""
    with sentences():
        from netfold.json_output import envelope, print_json
        from netfold_lab.simulate import deadlock, networks

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
    out: Annotated[Path, output_folder("The folder of the pages.")] = Path("docs/reference/papers"),
    json: Json = False,
) -> None:
    """Write the pages of the papers: every figure and table that a model can produce, beside the published values."""
    with sentences():
        from rich.console import Console

        from netfold.json_output import envelope, print_json
        from netfold_lab.plan.papers import pages

        written = pages.write_pages(out)
        if json:
            figures = [make().entry(paper.name) for paper in pages.PAPERS for make in paper.figures]
            print_json(envelope("plan papers", {"out": str(out)}, figures))
        else:
            for each in written:
                Console().print(f"written: {each}", highlight=False)


@plan_app.command(name="check-lab")
def check_lab(
    fabric: Annotated[str, typer.Option(help="Fabrics, with commas.")] = "star,bigraph,fat-tree",
    shape: Annotated[str, typer.Option(help="Sub-nodes x switches; a star has the same number of workers.")] = "2x4",
    rate_mbit_s: Annotated[float, typer.Option(help="Rate of every link. Slow links leave the cores idle.")] = 20.0,
    size_bytes: Annotated[
        str, typer.Option(help="Sizes of fp32 tensors, with commas.")
    ] = "262144,1048576,4194304,8388608",
    repeat: Annotated[int, typer.Option(min=1, help="Timed repetitions of each.")] = 5,
    json: Json = False,
) -> None:
    """Predict all-reduces in labs on this machine, measure them, and compare.

    The predictions are not fitted to these measurements. It takes minutes, and needs an idle machine.
    """
    from netfold.algorithms import bigraph_of
    from netfold.json_output import envelope, print_json
    from netfold_lab.bench.screen import progress_bar
    from netfold_lab.lab import kept
    from netfold_lab.plan.report import truth as report
    from netfold_lab.plan.truth import check
    from netfold_lab.sizes import sizes_of, words_in

    with sentences():
        try:
            parsed = bigraph_of(shape)
        except ValueError as error:
            raise UsageError(f"--shape: {error}") from None
        fabrics = words_in(fabric)
        sizes = sizes_of(size_bytes)
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
    ranks: Annotated[int, typer.Option(min=2, max=256, help="Largest number of processes.")] = 4,
    link: Annotated[str, typer.Option(help="tcp (the link between machines) or shm.")] = "tcp",
    repeat: Annotated[int, typer.Option(min=1, help="Timed repetitions of each point.")] = 5,
    out: Annotated[
        Path | None, output("Write the result to this file, for software.calibration in a cluster file.")
    ] = None,
    json: Json = False,
) -> None:
    """Measure the costs of this machine: a message, a byte sent, a byte folded, and computation. It fits them to a few
    points, and reports the error at the others."""
    with sentences():
        from netfold.json_output import envelope, print_json
        from netfold_lab.bench.screen import weighted_bar
        from netfold_lab.plan.report import truth as report
        from netfold_lab.plan.truth import calibrate as calibration

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
    algorithm: Annotated[str, typer.Option(help="Algorithm of the all-reduce.")] = "ring",
    size_bytes: Annotated[int, typer.Option(min=4, max=1 << 40, help="Size of the fp32 tensor of the all-reduce.")] = 1
    << 20,
    model: Annotated[str, typer.Option(help="Model of the step; see `netfold plan step`.")] = "resnet50",
    batch: Annotated[int, typer.Option(min=1, max=1_000_000, help="Samples per worker and step.")] = 64,
    json: Json = False,
) -> None:
    """Write an all-reduce, a step and the network for other simulators: LogGOPSim, ASTRA-sim, csg-htsim, ns-3."""
    with sentences():
        from rich.console import Console

        from netfold.json_output import envelope, print_json
        from netfold_lab.plan.cluster import spec
        from netfold_lab.plan.export import command
        from netfold_lab.plan.models.zoo import model_of
        from netfold_lab.plan.step.collectives import contenders

        read = spec.read(cluster)
        chosen = contenders(read, read.graph(), [algorithm])
        if not chosen:
            raise UsageError(f"--algorithm {algorithm} does not support {read.name}")
        wanted = [each for each in formats.split(",") if each]
        written = command.export(out, wanted, read, model_of(model), batch, chosen[0], size_bytes // 4)
        if json:
            parameters = {"cluster": read.name, "algorithm": algorithm, "size_bytes": size_bytes}
            print_json(envelope("plan export", parameters, [{"file": str(each)} for each in written]))
        else:
            Console().print(f"written: {len(written)} files in {out.resolve()}", highlight=False, soft_wrap=True)


@plan_app.command()
def sweep(
    file: Annotated[Path, typer.Argument(help="A sweep file (YAML): a cluster, and the values to vary.")],
    scheduler: Annotated[
        str, typer.Option(help="Scheduler of a Dask cluster, such as tcp://head:8786; default: this machine.")
    ] = "",
    workers: Annotated[int, typer.Option(min=0, help="Processes on this machine; 0: one per core.")] = 0,
    out: Annotated[
        Path | None,
        output(
            "Write the results to this file, one line of JSON per design.",
            show_default="beside the file, .results.jsonl",
        ),
    ] = None,
    page: Annotated[Path, output("Write an HTML page to this file.")] = Path("out/sweep.html"),
    picture: Annotated[Path | None, output("Draw price against speed (.png, .svg, .pdf).")] = None,
    json: Json = False,
) -> None:
    """Plan every combination of the values in a sweep file, in parallel. After an interruption the same command
    continues."""
    with sentences():
        from rich.console import Console

        from netfold.json_output import envelope, print_json
        from netfold_lab.plan.report import charts
        from netfold_lab.plan.report import sweep as report
        from netfold_lab.plan.sweep import designs, run
        from netfold_lab.plan.sweep.results import Notebook

        charts.check_picture(picture)
        read = designs.read(file)
        notebook = Notebook(out or file.with_suffix(".results.jsonl"))
        _run_sweep(read, notebook, scheduler, workers)
        results = run.results_of(read, notebook)
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
    from netfold_lab.bench.screen import weighted_bar
    from netfold_lab.plan.sweep import run

    missing = run.lacking(read, notebook)
    if not missing:
        return
    total = len(missing) + len(notebook.kept)
    try:
        with run.client(scheduler, workers) as connected, weighted_bar(total, len(notebook.kept)) as tell:
            run.run(missing, notebook, connected, lambda result: tell(result.get("algorithm", "cannot be"), 1))
    except KeyboardInterrupt:
        kept = len(notebook.kept)
        typer.echo(f"netfold: {kept} of {total} designs are saved; the same command continues from there", err=True)
        raise


plan_train.register(plan_app)
