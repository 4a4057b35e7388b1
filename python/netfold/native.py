"""Where what was built lies: the switch's program, the libraries for C and MPI programs, and their header."""

from __future__ import annotations

import os
import shutil
import sysconfig
from pathlib import Path

SWITCH = "bin/netfold-switch"
C_LIBRARY = "lib/libnetfold.so"
C_HEADER = "include/netfold.h"
MPI_LIBRARY = "lib/libnetfold-mpi.so"
# In a build folder of the source tree.
_BUILT = {SWITCH: "apps/netfold-switch", C_LIBRARY: "bindings/c/libnetfold.so"}
_BUILT[MPI_LIBRARY] = "bindings/mpi/libnetfold-mpi.so"


def find(what: str) -> Path | None:
    """A file: installed beside the package, or (an editable install) in its site folder, or built in the tree, or (a
    program) on the path; None where it is not."""
    source = Path(__file__).resolve().parent
    folders = [source, *(Path(sysconfig.get_path(name)) / "netfold" for name in ("platlib", "purelib"))]
    places = [folder / what for folder in folders]
    if what in _BUILT:
        builds = (source.parents[1] / "build").glob(f"*/{_BUILT[what]}")
        places += sorted(builds, key=lambda place: place.stat().st_mtime, reverse=True)
    if what == C_HEADER:
        places.append(source.parents[1] / "core" / what)
    is_program = what == SWITCH
    if is_program and (on_path := shutil.which(Path(what).name)):
        places.append(Path(on_path))
    return next((place for place in places if os.access(place, os.X_OK if is_program else os.R_OK)), None)
