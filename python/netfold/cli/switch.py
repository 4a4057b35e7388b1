"""`netfold switch`: hands over to the program netfold-switch, which folds."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from pathlib import Path

import typer

import netfold

PROGRAM = "netfold-switch"


def register(app: typer.Typer) -> None:
    """Add `switch` to the program. All of its arguments, --help too, are the switch's own."""
    app.command(
        "switch",
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
        add_help_option=False,
    )(switch)


def switch(context: typer.Context) -> None:
    """Fold the gradients of workers that connect: run this on the box in the middle. See `netfold switch --help`."""
    program = find_program()
    if program is None:
        print(
            f"netfold switch: {PROGRAM} is not built; `make build` builds and installs it where you have the source",
            file=sys.stderr,
        )
        raise typer.Exit(1)
    sys.stdout.flush()
    os.execv(program, [PROGRAM, *context.args])


def find_program() -> Path | None:
    """The binary: installed beside the package, or (an editable install) in its site folder, or built in the tree."""
    source = Path(netfold.__file__).resolve().parent
    installed = [source, *(Path(sysconfig.get_path(name)) / "netfold" for name in ("platlib", "purelib"))]
    places = [folder / "bin" / PROGRAM for folder in installed]
    builds = source.parents[1] / "build"
    places += sorted(builds.glob(f"*/apps/{PROGRAM}"), key=lambda place: place.stat().st_mtime, reverse=True)
    on_path = shutil.which(PROGRAM)
    if on_path is not None:
        places.append(Path(on_path))
    return next((place for place in places if os.access(place, os.X_OK)), None)
