"""Paths of built files: the switch and agent programs, the libraries for C programs, MPI programs and NCCL, the header,
the simulated NIC."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import sysconfig
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import NoReturn

SWITCH = "bin/netfold-switch"
AGENT = "bin/netfold-agent"
SWITCH_BENCH = "bin/netfold-switch-bench"
C_LIBRARY = "lib/libnetfold.so"
C_HEADER = "include/netfold.h"
MPI_LIBRARY = "lib/libnetfold-mpi.so"
NCCL_PLUGIN = "lib/libnccl-net-netfold.so"
# Paths within a build folder of the source tree.
_BUILT = {
    SWITCH: "apps/netfold-switch",
    AGENT: "apps/netfold-agent",
    SWITCH_BENCH: "apps/netfold-switch-bench",
    C_LIBRARY: "bindings/c/libnetfold.so",
    MPI_LIBRARY: "bindings/mpi/libnetfold-mpi.so",
    NCCL_PLUGIN: "bindings/nccl/libnccl-net-netfold.so",
}


def find(what: str) -> Path | None:
    """A built file. It is searched beside the package, in the site folder (editable install), in the source tree's
    build folder, and (a program) in PATH. None if it is missing."""
    source = Path(__file__).resolve().parent
    folders = [source, *(Path(sysconfig.get_path(name)) / "netfold" for name in ("platlib", "purelib"))]
    places = [folder / what for folder in folders]
    if what in _BUILT:
        builds = (source.parents[1] / "build").glob(f"*/{_BUILT[what]}")
        places += sorted(builds, key=lambda place: place.stat().st_mtime, reverse=True)
    if what == C_HEADER:
        places.append(source.parents[1] / "core" / what)
    is_program = what in (SWITCH, AGENT, SWITCH_BENCH)
    if is_program and (on_path := shutil.which(Path(what).name)):
        places.append(Path(on_path))
    return next((place for place in places if os.access(place, os.X_OK if is_program else os.R_OK)), None)


def simulated_nic(block: int, mantissa: int) -> Path:
    """The program of a Verilated smart NIC of this bfp shape: the latest build in the source tree. Raises RuntimeError
    that says how to build it."""
    builds = Path(__file__).resolve().parents[2] / "build"
    shapes = builds.glob(f"rtl-l*-b{block}-m{mantissa}/rtl/sim/netfold-nic")
    found = sorted(shapes, key=lambda path: path.stat().st_mtime)
    if not found:
        raise RuntimeError(
            "netfold: the simulated NIC is not built: run, in the source tree, "
            f"`netfold rtl build --block {block} --mantissa {mantissa}`"
        )
    return found[-1]


@cache
def simulated_switch(ports: int) -> ModuleType:
    """The extension with a Verilated switch of this number of ports or the next larger number that is built. A build
    with one clock is preferred to one with several. Raises RuntimeError that says how to build it."""
    builds = Path(__file__).resolve().parents[2] / "build"
    found: dict[tuple[int, bool], Path] = {}
    for path in builds.glob("rtl-switch-p*/rtl/sim/switch/_rtl_switch*.so"):
        count, _, clocks = path.parents[3].name.removeprefix("rtl-switch-p").partition("-")
        if int(count) >= ports:
            found[int(count), not clocks] = path
    if not found:
        raise RuntimeError(
            f"netfold: the simulated switch of {ports} ports is not built: run, in the source tree, "
            f"`netfold rtl switch build --ports {ports}`"
        )
    return _load("_rtl_switch", found[min(found)])


def _load(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def not_built(what: str) -> str:
    """The advice for a file that `find` did not find."""
    return f"{Path(what).name} is not built; run `make build` in the source tree to build and install it"


def become(program: str, arguments: list[str]) -> NoReturn:
    """Replace this process by a program; exits with status 1 if the program is missing."""
    found = find(program)
    if found is None:
        sys.exit(f"netfold: {not_built(program)}")
    sys.stdout.flush()
    os.execv(found, [found.name, *arguments])
