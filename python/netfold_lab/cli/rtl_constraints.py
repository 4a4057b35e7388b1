"""`netfold rtl constraints`: what holds between clocks, for the tools of vendors."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from netfold_lab.cli.rtl_screen import errors, finish_lines
from netfold_lab.outputs import output_folder


def constraints(
    out: Annotated[Path, output_folder("Folder for the files.")] = Path("constraints"),
    design: Annotated[
        str, typer.Option(help="switch, switch25, switch100 or nic, of rtl/constraints.toml.")
    ] = "switch",
    ports: Annotated[int, typer.Option(min=1, max=16, help="Ethernet ports.")] = 8,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Write the clocks and clock crossings for Vivado (XDC), Quartus (SDC) and nextpnr (LPF), from
    rtl/constraints.toml."""
    from netfold_lab.rtl import constraints as crossings

    with errors():
        found = crossings.read(design, ports)
        written = [str(path) for path in crossings.write(found, out)]
    parameters = {"design": design, "ports": ports}
    rows = [{"file": path, "clocks": len(found.clocks), "crossings": len(found.crossings)} for path in written]
    finish_lines("constraints", parameters, rows, written, as_json)
