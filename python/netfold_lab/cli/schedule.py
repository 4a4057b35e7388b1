"""`netfold schedule`: prints, draws and exports schedules: sender, receiver, elements and step of every transfer."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Annotated, Any

import typer

from netfold_lab.outputs import output

LIST_COLUMNS = 80


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("schedule")(schedule)


def schedule(
    algorithm: Annotated[str, typer.Argument(help="Name of the algorithm; `list` prints all names.")],
    workers: Annotated[int, typer.Option(min=1, max=65536, help="Ranks that take part.")] = 4,
    count: Annotated[int, typer.Option(min=0, help="Elements of the tensor.")] = 1024,
    collective: Annotated[
        str, typer.Option(help="all-reduce, reduce-scatter, all-gather, broadcast or barrier.")
    ] = "all-reduce",
    root: Annotated[int, typer.Option(min=0, help="Rank at which a broadcast starts.")] = 0,
    sub_nodes: Annotated[int, typer.Option(min=0, help="hdrm: sub-nodes per switch of the BiGraph.")] = 0,
    switches: Annotated[int, typer.Option(min=0, help="hdrm: switches of the BiGraph, both halves.")] = 0,
    group: Annotated[int, typer.Option(min=0, help="hierarchical: ranks per machine.")] = 0,
    between: Annotated[str, typer.Option(help="hierarchical: the algorithm between machines.")] = "ring",
    picture: Annotated[Path | None, output("Draw it to this file (.png, .svg, .pdf).")] = None,
    goal: Annotated[Path | None, output("Export GOAL text for simulators to this file.")] = None,
    element_bytes: Annotated[int, typer.Option(min=1, help="Bytes of an element on the wire, for GOAL.")] = 4,
    fold_gbyte_s: Annotated[float, typer.Option(min=1e-3, help="Rate of folding, for GOAL.")] = 10.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Print a schedule: the sender, receiver and elements of every transfer by step, and whether they are folded or
    stored."""
    from netfold import _core
    from netfold.json_output import envelope, print_json
    from netfold.timeline import timeline
    from netfold_lab.schedules.picture import FORMATS

    if picture is not None and picture.suffix.lower() not in FORMATS:
        raise typer.BadParameter(f"--picture must end in {', '.join(FORMATS)}, not {picture.suffix or 'nothing'}")
    if algorithm == "list":
        if as_json:
            entries = [{"algorithm": name, "description": what} for name, what in _core.algorithms()]
            print_json(envelope("schedule", {"algorithm": "list"}, entries))
        else:
            _list(_core.algorithms())
        return
    if between not in [name for name, _ in _core.algorithms()]:
        raise typer.BadParameter(
            f"there is no algorithm '{between}': see netfold schedule list", param_hint="--between"
        )
    options: dict[str, Any] = {
        "collective": collective,
        "root": root,
        "sub_nodes": sub_nodes,
        "switches": switches,
        "group": group,
        "between": between,
    }
    try:
        line = timeline(algorithm, workers, count, **options)
        title = f"{collective} of {count} elements by {algorithm}, {workers} ranks"
        if picture is not None:
            from netfold_lab.schedules.picture import draw

            draw(line, title, picture)
        if goal is not None:
            from netfold_lab.schedules.goal import goal as lines

            goal.write_text("\n".join(lines(line, element_bytes, fold_gbyte_s)) + "\n")
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    except OSError as error:
        typer.echo(f"cannot write {error.filename}: {error.strerror}", err=True)
        raise typer.Exit(1) from None
    if as_json:
        parameters = {"algorithm": algorithm, "workers": workers, "count": count, **options}
        ranks = [{"algorithm": algorithm, "rank": rank, "steps": steps} for rank, steps in enumerate(line.steps)]
        print_json(envelope("schedule", parameters, ranks))
        return
    _print(line, title)
    for written in (picture, goal):
        if written is not None:
            typer.echo(f"written: {written}")


def _list(algorithms: list[tuple[str, str]]) -> None:
    width = max(len(name) for name, _ in algorithms)
    for name, what in algorithms:
        first, after = f"{name:<{width}}  ", " " * (width + 2)
        typer.echo(textwrap.fill(what, LIST_COLUMNS, initial_indent=first, subsequent_indent=after))


def _print(line: Any, title: str) -> None:
    from rich.console import Console
    from rich.table import Table

    sent = [sum(c for step in steps for action, _, _, c in step if action == "send") for steps in line.steps]
    table = Table(title=title, caption=f"{line.length} steps; elements sent by a rank: {min(sent)} to {max(sent)}")
    for column in ("rank", "step", "transfers (offset + count)"):
        table.add_column(column)
    for rank, steps in enumerate(line.steps):
        for number, step in enumerate(steps):
            table.add_row(str(rank) if number == 0 else "", str(number), ", ".join(_describe(*t) for t in step))
    Console().print(table)


def _describe(action: str, peer: int, offset: int, count: int) -> str:
    other = "the switch" if peer < 0 else str(peer)
    return f"{action} {'to' if action == 'send' else 'from'} {other}: {offset} + {count}"
