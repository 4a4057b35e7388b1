"""The programs of Netfold that are written in C++, and where to find them."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from pathlib import Path
from typing import NoReturn

SWITCH = "netfold-switch"
AGENT = "netfold-agent"


def find_program(name: str) -> Path | None:
    """The binary: installed beside the package, or (an editable install) in its site folder, or built in the tree."""
    source = Path(__file__).resolve().parent
    installed = [source, *(Path(sysconfig.get_path(path)) / "netfold" for path in ("platlib", "purelib"))]
    places = [folder / "bin" / name for folder in installed]
    builds = source.parents[1] / "build"
    places += sorted(builds.glob(f"*/apps/{name}"), key=lambda place: place.stat().st_mtime, reverse=True)
    on_path = shutil.which(name)
    if on_path is not None:
        places.append(Path(on_path))
    return next((place for place in places if os.access(place, os.X_OK)), None)


def not_built(name: str) -> str:
    """What to do where `find_program` found nothing."""
    return f"{name} is not built; `make build` builds and installs it where you have the source"


def become(name: str, arguments: list[str]) -> NoReturn:
    """Run the program in this process's place; exits with status 1 if it is not there."""
    program = find_program(name)
    if program is None:
        sys.exit(f"netfold: {not_built(name)}")
    sys.stdout.flush()
    os.execv(program, [name, *arguments])
