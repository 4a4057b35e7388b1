"""`netfold bench allreduce`: Netfold and its peers on this machine, over loopback; `--tune`: the chooser's table."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from netfold.lab.guard import sentences
from netfold.lab.spec import WORKERS_MAX
from netfold.outputs import output

ALGORITHM_HELP = "Ours: in-network, ring, ... or auto; several, with commas; none: the peers alone."
TUNE_HELP = "Measure our host algorithms at 2 to --ranks ranks for `auto` to go by; goes on where it was interrupted."
GRID = "with --tune, 1 KiB to 64 MiB by factors of 4"
TUNING = "Tuning"


def register(app: typer.Typer) -> None:
    """Add the command to `netfold bench`."""

    @app.command("allreduce")
    def allreduce(
        ranks: Annotated[int, typer.Option("--ranks", "--workers", help="Processes that fold together.")] = 8,
        size_bytes: Annotated[
            str, typer.Option(help="Bytes of FP32 gradients; several, with commas.", show_default=f"16777216; {GRID}")
        ] = "",
        algorithm: Annotated[
            str, typer.Option(help=ALGORITHM_HELP, show_default="in-network; with --tune, all that need no topology")
        ] = "",
        bigraph: Annotated[str, typer.Option(help="hdrm: sub-nodes x switches, as 4x8.")] = "",
        group: Annotated[int, typer.Option(min=0, help="hierarchical: ranks of one machine.")] = 0,
        engine: Annotated[str, typer.Option(help="Of host algorithms: caller, thread or agent.")] = "thread",
        wire: Annotated[str, typer.Option("--format", help="fp32, bfp, fp16, bf16 or int32.")] = "fp32",
        against: Annotated[str, typer.Option(help="Peers in the same run: gloo,openmpi.")] = "gloo,openmpi",
        repeat: Annotated[int, typer.Option(help="Timed repetitions of each, after one warm-up.")] = 5,
        interface: Annotated[
            str,
            typer.Option(help="Ours are called from python, c (in the caller's thread) or mpi."),
        ] = "python",
        iterations: Annotated[
            int, typer.Option(help="All-reduces in a row that a repetition times; 0: as many as make 64 MiB.")
        ] = 0,
        timeout_s: Annotated[float, typer.Option(help="The longest any step may take, in seconds.")] = 60.0,
        seed: Annotated[int, typer.Option(help="Of the gradients.")] = 1,
        json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
        tune: Annotated[bool, typer.Option("--tune", help=TUNE_HELP, rich_help_panel=TUNING)] = False,
        show: Annotated[
            bool, typer.Option("--show", help="With --tune: show the table, measure nothing.", rich_help_panel=TUNING)
        ] = False,
        again: Annotated[
            bool, typer.Option("--again", help="With --tune: keep no point of before.", rich_help_panel=TUNING)
        ] = False,
        link: Annotated[
            str, typer.Option(help="With --tune: shm, or tcp as between machines.", rich_help_panel=TUNING)
        ] = "shm",
        picture: Annotated[
            Path | None,
            output("With --tune: draw the choices (.png, .svg, .pdf).", rich_help_panel=TUNING),
        ] = None,
    ) -> None:
        """Measure an all-reduce between processes of this machine, ours and the peers', interleaved in one run.

        With --tune: find out which algorithm is fastest here at which size and number of ranks.
        NETFOLD_ALGORITHM=auto goes by it. Kept in the user's cache folder, or the file that NETFOLD_TUNING names.
        """
        from netfold.bench import comparison
        from netfold.bench.screen import progress_bar
        from netfold.bench.screen import show as show_results

        with sentences():
            sizes = comparison.sizes_of(size_bytes or str(comparison.SIZE_DEFAULT))
            plan = comparison.Plan(
                sizes,
                algorithm or comparison.IN_NETWORK,
                wire,
                comparison.peers_of(against),
                repeat,
                timeout_s,
                seed,
                bigraph=comparison.bigraph_of(bigraph),
                group=group,
                interface=interface,
                iterations=iterations,
                engine=engine,
            )
            if tune:
                chosen = tuple(sizes.values()) if size_bytes else ()
                names = tuple(dict.fromkeys(filter(None, algorithm.split(","))))
                _tune(plan, ranks, chosen, names, link, show, again, picture, json)
                return
            if show or again or picture or link != "shm":
                raise comparison.UsageError("--show, --again, --link and --picture are for --tune")
            if not 1 <= ranks <= WORKERS_MAX:
                raise comparison.UsageError(f"--ranks is from 1 to {WORKERS_MAX}, not {ranks}")
            plan.check(ranks)
            with progress_bar(plan.steps()) as progress:
                entries = comparison.locally(ranks, plan, progress)
            show_results(
                "bench allreduce",
                f"{ranks} ranks over loopback",
                {"workers": ranks, **plan.parameters()},
                entries,
                json,
            )


def _tune(
    plan: Any,
    ranks: int,
    sizes: tuple[int, ...],
    names: tuple[str, ...],
    link: str,
    only_show: bool,
    again: bool,
    picture: Path | None,
    as_json: bool,
) -> None:
    """Measure what the table lacks (unless `only_show`), then show it. `plan` has checked what both ways share."""
    from netfold.bench import tuning, tuning_report
    from netfold.bench.report import envelope, print_json
    from netfold.chooser.lookup import named_table
    from netfold.chooser.table import LINKS, conditions_here
    from netfold.lab.errors import UsageError

    if link not in LINKS:
        raise UsageError(f"--link is one of {', '.join(LINKS)}, not {link}")
    if picture is not None and picture.suffix.lower() not in tuning_report.PICTURES:
        raise UsageError(f"--picture ends in {', '.join(tuning_report.PICTURES)}, not {picture.name}")
    conditions = conditions_here(link, plan.wire, plan.repeat)
    if only_show:
        table, path = tuning.kept(conditions, named_table())
    else:
        grid = tuning.grid_of(ranks, sizes or tuning.SIZES, names)
        notebook = tuning.Notebook(conditions, named_table(), again)
        table, path = tuning.tune_with_bar(notebook, grid, plan.timeout_s), notebook.path
    if not table.points:
        raise tuning.TuningError(f"{path} has no points: none of the algorithms served")
    if picture is not None:
        tuning_report.draw(table, picture)
    if as_json:
        told = {"tune": True, "workers": ranks, "table": str(path), **tuning_report.parameters(table)}
        print_json(envelope("bench allreduce", told, tuning_report.entries(table)))
    else:
        tuning_report.show(table, path)
        if picture is not None:
            print(f"written: {picture}", file=sys.stderr)
