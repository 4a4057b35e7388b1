"""This package: its extension, its kernels, its programs, and the tools that it works with."""

from __future__ import annotations

import ctypes
import importlib.metadata
import os
import shutil
from pathlib import Path

import netfold
from netfold import native, torch_versions
from netfold.chooser.table import TableError, conditions_here, path_of, read
from netfold.cli.checks import MISSING, OK, SLOW, Check

BUILD = "make build"
TUNE = "netfold bench allreduce --tune"


def extension() -> list[Check]:
    """Whether the core can be loaded, and the kernels it will use, fastest first."""
    try:
        from netfold import _core
    except ImportError as error:
        return [Check("extension", MISSING, str(error), BUILD, required=True)]
    found = [Check("extension", OK, f"netfold {netfold.__version__}", required=True)]
    kernels = list(_core.kernel_names())
    chosen = os.environ.get("NETFOLD_KERNELS")
    if chosen:
        found.append(Check("kernels", SLOW, f"NETFOLD_KERNELS={chosen} selects them", "unset NETFOLD_KERNELS"))
    elif kernels[0] == "reference":
        found.append(Check("kernels", SLOW, "this processor has neither AVX2 nor AVX-512", "run on a newer processor"))
    else:
        found.append(Check("kernels", OK, f"{kernels[0]} is in use, out of {', '.join(kernels)}"))
    return found


def own_programs() -> list[Check]:
    """The programs behind `netfold switch` and `netfold agent`."""
    return [
        Check(Path(what).name, OK, "installed", required=True)
        if native.find(what) is not None
        else Check(Path(what).name, MISSING, "the program is not built", BUILD, required=True)
        for what in (native.SWITCH, native.AGENT)
    ]


def libraries() -> list[Check]:
    """The library for C programs, the library that MPI programs preload (built only with an MPI), and NCCL's plugin."""
    found = []
    for name, what, built_by in (
        ("libnetfold.so", native.C_LIBRARY, BUILD),
        ("libnetfold-mpi.so", native.MPI_LIBRARY, f"apt-get install openmpi-bin libopenmpi-dev && {BUILD}"),
    ):
        place = native.find(what)
        if place is None:
            found.append(Check(name, MISSING, "not built", built_by))
        else:
            found.append(Check(name, OK, str(place)))
    return [*found, _nccl_plugin()]


def _nccl_plugin() -> Check:
    """Whether the plugin loads and has the table that NCCL looks for first."""
    name = Path(native.NCCL_PLUGIN).name
    place = native.find(native.NCCL_PLUGIN)
    if place is None:
        return Check(name, MISSING, "not built", BUILD)
    try:
        ctypes.c_char.in_dll(ctypes.CDLL(str(place)), "ncclNetPlugin_v12")
    except (OSError, ValueError) as error:
        return Check(name, MISSING, f"NCCL cannot load it: {error}", BUILD)
    return Check(name, OK, f"loads: {place}")


def tuning() -> list[Check]:
    """Whether this machine has a table for `auto` of this version. `--tune --show` prints its content."""
    here = conditions_here("shm", "fp32")
    path = path_of(here)
    try:
        table = read(path)
    except FileNotFoundError:
        return [Check("tuning", SLOW, "auto uses its built-in rule: this machine has no measurements", TUNE)]
    except (OSError, TableError) as error:
        return [Check("tuning", SLOW, str(error), TUNE)]
    if table.conditions.netfold != here.netfold:
        return [Check("tuning", SLOW, f"measured with netfold {table.conditions.netfold}", TUNE)]
    return [Check("tuning", OK, f"{len(table.points)} points of {table.date}")]


def torch() -> list[Check]:
    """PyTorch, for training."""
    supported = torch_versions.requirement()
    install = f"pip install 'torch{supported}'"
    try:
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return [Check("torch", MISSING, "needed to train, not to fold", install)]
    if torch_versions.refusal(version):
        return [Check("torch", MISSING, f"{version}; the backend needs {supported}", install)]
    return [Check("torch", OK, version)]


def programs() -> list[Check]:
    """The tools that the lab calls, and the peer that it measures against."""
    wanted = (
        ("iproute2", ("ip",), "for the lab", "apt-get install iproute2"),
        ("util-linux", ("nsenter", "unshare"), "for the lab", "apt-get install util-linux"),
        ("nftables", ("nft",), "for faults in the lab", "apt-get install nftables"),
        ("ethtool", ("ethtool",), "for faults in the lab", "apt-get install ethtool"),
        ("OpenMPI", ("mpirun", "mpicc"), "for comparisons", "apt-get install openmpi-bin libopenmpi-dev"),
    )
    checks = []
    for name, commands, why, fix in wanted:
        absent = [command for command in commands if shutil.which(command) is None]
        if absent:
            checks.append(Check(name, MISSING, f"no {' and no '.join(absent)}, {why}", fix))
        else:
            checks.append(Check(name, OK, " and ".join(commands)))
    return checks
