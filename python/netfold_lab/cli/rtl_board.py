"""`netfold rtl board`: the switch as a bitstream for a board."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from netfold_lab.cli.rtl_screen import errors, finish, progress
from netfold_lab.outputs import output_folder


def board(
    out: Annotated[Path, output_folder("Folder for the bitstream and the reports.")] = Path("board"),
    name: Annotated[str, typer.Option("--board", help="The board; so far only versa_ecp5.")] = "versa_ecp5",
    device: Annotated[str, typer.Option(help="The board's part: LFE5UM5G-45F or LFE5UM-45F.")] = "LFE5UM5G-45F",
    seed: Annotated[int, typer.Option(min=0, help="Seed of place and route; the same seed repeats a build.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Build a bitstream of the switch with two gigabit ports: yosys, nextpnr and ecppack. Prints every clock beside
    the rate that it needs, and how full the part is. Exits with status 1, without a bitstream, if a clock is missed. It
    takes many minutes."""
    from netfold_lab.rtl import board as boards

    if name not in boards.BOARDS:
        raise typer.BadParameter(f"write one of {', '.join(boards.BOARDS)}", param_hint="--board")
    with errors(), progress() as say:
        rows = boards.build(name, device, seed, out, say)
    missed = [row["clock"] for row in rows if not row.get("met", True)]
    if missed:
        said = f"no bitstream: {', '.join(missed)} missed; {out / name}.report.json has the paths. Try another --seed"
    else:
        said = f"written: {out / name}.bit and {out / name}.svf"
    typer.echo(said, err=True)
    finish("board", {"board": name, "device": device, "seed": seed}, rows, as_json, bool(missed))
