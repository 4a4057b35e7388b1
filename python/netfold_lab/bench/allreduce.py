"""`netfold bench allreduce`: Netfold and its peers on this machine, over loopback; `--tune`: the chooser's table."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from netfold_lab.errors import UsageError
from netfold_lab.guard import sentences
from netfold_lab.lab.spec import WORKERS_MAX
from netfold_lab.outputs import output
from netfold_lab.sizes import by_name, sizes_of, words_in

ALGORITHM_HELP = (
    "Netfold's algorithms: in-network, ring, ... or auto; several with commas. `none` measures only the peers."
)
TUNE_HELP = (
    "Measure the host algorithms at 2 to --ranks ranks, for `auto`. After an interruption the same command continues."
)
GRID = "with --tune, 1 KiB to 64 MiB by factors of 4"
TUNING = "Tuning"


def register(app: typer.Typer) -> None:
    """Add the command to `netfold bench`."""

    @app.command("allreduce")
    def allreduce(
        ranks: Annotated[int, typer.Option("--ranks", "--workers", help="Number of processes.")] = 8,
        size_bytes: Annotated[
            str,
            typer.Option(
                help="Size of the fp32 gradients, such as 16MiB; several with commas.", show_default=f"16777216; {GRID}"
            ),
        ] = "",
        algorithm: Annotated[
            str,
            typer.Option(help=ALGORITHM_HELP, show_default="in-network; with --tune, all that do not need a topology"),
        ] = "",
        bigraph: Annotated[str, typer.Option(help="hdrm: sub-nodes x switches, such as 4x8.")] = "",
        group: Annotated[int, typer.Option(min=0, help="hierarchical: number of ranks per machine.")] = 0,
        engine: Annotated[str, typer.Option(help="Engine of host algorithms: caller, thread or agent.")] = "thread",
        wire: Annotated[str, typer.Option("--format", help="fp32, bfp, fp16, bf16 or int32.")] = "fp32",
        against: Annotated[str, typer.Option(help="Peers in the same run: gloo,openmpi, or none.")] = "gloo,openmpi",
        repeat: Annotated[int, typer.Option(help="Timed repetitions of each, after one warm-up.")] = 5,
        interface: Annotated[
            str,
            typer.Option(help="Interface through which Netfold is called: python, c (in the caller's thread) or mpi."),
        ] = "python",
        iterations: Annotated[int, typer.Option(help="All-reduces in a repetition; 0: enough for 64 MiB.")] = 0,
        timeout_s: Annotated[float, typer.Option(help="Longest time for any step, in seconds.")] = 60.0,
        seed: Annotated[int, typer.Option(help="Seed of the gradients.")] = 1,
        json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
        tune: Annotated[bool, typer.Option("--tune", help=TUNE_HELP, rich_help_panel=TUNING)] = False,
        show: Annotated[
            bool, typer.Option("--show", help="With --tune: only show the table.", rich_help_panel=TUNING)
        ] = False,
        again: Annotated[
            bool, typer.Option("--again", help="With --tune: measure all points again.", rich_help_panel=TUNING)
        ] = False,
        link: Annotated[
            str, typer.Option(help="With --tune: shm, or tcp (the link between machines).", rich_help_panel=TUNING)
        ] = "shm",
        picture: Annotated[
            Path | None,
            output("With --tune: draw the choices (.png, .svg, .pdf).", rich_help_panel=TUNING),
        ] = None,
    ) -> None:
        """Measure all-reduces between processes of this machine: Netfold and its peers, interleaved in one run.

        With --tune: measure which algorithm is fastest here at each size and number of ranks. NETFOLD_ALGORITHM=auto
        uses the result. It is kept in the user's cache folder, or in the file that NETFOLD_TUNING names.
        """
        from netfold.algorithms import IN_NETWORK
        from netfold_lab.bench import comparison
        from netfold_lab.bench.screen import progress_bar
        from netfold_lab.bench.screen import show as show_results

        with sentences():
            sizes = by_name(sizes_of(size_bytes or str(comparison.SIZE_DEFAULT)))
            settings = comparison.ComparisonSettings(
                sizes,
                algorithm or IN_NETWORK,
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
                names = words_in(algorithm)
                _tune(settings, ranks, chosen, names, link, show, again, picture, json)
                return
            if show or again or picture or link != "shm":
                raise UsageError("--show, --again, --link and --picture need --tune")
            if not 1 <= ranks <= WORKERS_MAX:
                raise UsageError(f"--ranks must be from 1 to {WORKERS_MAX}, not {ranks}")
            settings.check(ranks)
            with progress_bar(settings.steps()) as progress:
                entries = comparison.locally(ranks, settings, progress)
            show_results(
                "bench allreduce",
                f"{ranks} ranks over loopback",
                {"workers": ranks, **settings.parameters()},
                entries,
                json,
            )


def _tune(
    settings: Any,
    ranks: int,
    sizes: tuple[int, ...],
    names: tuple[str, ...],
    link: str,
    only_show: bool,
    again: bool,
    picture: Path | None,
    as_json: bool,
) -> None:
    """Measure the missing points of the table (unless `only_show`), then show it. `plan` has checked the shared
    options."""
    from netfold.chooser.lookup import named_table
    from netfold.chooser.table import LINKS, conditions_here
    from netfold.json_output import envelope, print_json
    from netfold_lab.bench import tuning, tuning_report

    if link not in LINKS:
        raise UsageError(f"--link must be one of {', '.join(LINKS)}, not {link}")
    if picture is not None and picture.suffix.lower() not in tuning_report.PICTURES:
        raise UsageError(f"--picture must end in {', '.join(tuning_report.PICTURES)}, not {picture.name}")
    conditions = conditions_here(link, settings.wire, settings.repeat)
    if only_show:
        table, path = tuning.kept(conditions, named_table())
    else:
        grid = tuning.grid_of(ranks, sizes or tuning.SIZES, names)
        notebook = tuning.Notebook(conditions, named_table(), again)
        table, path = tuning.tune_with_bar(notebook, grid, settings.timeout_s), notebook.path
    if not table.points:
        raise tuning.TuningError(f"{path} has no points: no algorithm worked")
    if picture is not None:
        tuning_report.draw(table, picture)
    if as_json:
        told = {"tune": True, "workers": ranks, "table": str(path), **tuning_report.parameters(table)}
        print_json(envelope("bench allreduce", told, tuning_report.entries(table)))
    else:
        tuning_report.show(table, path)
        if picture is not None:
            print(f"written: {picture}", file=sys.stderr)
