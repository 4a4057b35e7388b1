"""`netfold rtl timing`: does every module meet its clock?"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from netfold_lab.cli.rtl_screen import errors, finish

SHOWN = ("design", "module", "mhz", "budget", "levels", "met", "start", "end", "port_levels", "ecp5_mhz", "ecp5_remark")


def timing(
    module: Annotated[list[str] | None, typer.Argument(help="Modules; default: all of the designs.")] = None,
    design: Annotated[
        list[str] | None,
        typer.Option(
            help="switch (200 MHz), nic40 or nic100 (250 MHz), in25 or out25 (390.625 MHz), in100 or out100 "
            "(322.265625 MHz); default: all."
        ),
    ] = None,
    ports: Annotated[int, typer.Option(min=2, max=16, help="Ethernet ports of the switch.")] = 2,
    mhz: Annotated[float | None, typer.Option(min=1, help="Judge by this clock instead.")] = None,
    place: Annotated[bool, typer.Option(help="Also place and route for an ECP5 (LFE5U-85F, speed 8).")] = True,
    jobs: Annotated[int, typer.Option(min=1, help="Modules measured at a time.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Count the LUT levels of the longest path of each module on UltraScale+ (yosys), beside its clock on an ECP5 after
    place and route (nextpnr). Exits with status 1 if a module has more levels than its clock allows. The first run
    takes many minutes; results are kept until a source changes."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from netfold_lab.rtl import timing_closure

    names = design or list(timing_closure.DESIGNS)
    unknown = sorted(set(names) - set(timing_closure.DESIGNS))
    if unknown:
        raise typer.BadParameter(f"--design takes {', '.join(timing_closure.DESIGNS)}, not {', '.join(unknown)}")
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with errors(), Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("elaborating", total=None)

        def say(name: str, done: int, total: int) -> None:
            bar.update(task, description=name, completed=done, total=total)

        rows = list(timing_closure.measure(names, ports, module or [], mhz, place, jobs, say))
    shown: list[dict[str, Any]] = rows if as_json else [{k: row.get(k, "") for k in SHOWN if k in row} for row in rows]
    failed = not all(row["met"] for row in rows)
    parameters = {"designs": names, "ports": ports, "modules": module or [], "mhz": mhz, "place": place}
    if not as_json:
        missed = [f"{row['design']} {row['module']}" for row in rows if not row["met"]]
        typer.echo(f"over budget: {', '.join(missed)}" if missed else "every module is within its budget", err=True)
    finish("timing", parameters, shown, as_json, failed)
