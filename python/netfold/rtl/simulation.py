"""The C++ simulations of the hardware: built for one shape each, then called for one JSON object a run. A shape is the
smart NIC's (Shape) or the switch's (SwitchShape); each has a build folder of its own."""

from __future__ import annotations

import fcntl
import json
import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from netfold.rtl.places import BUILD, ROOT, RtlError, call, tool

BUILD_TIMEOUT_S = 1800.0
RUN_TIMEOUT_S = 3600.0


class Built(ABC):
    """What a simulation is built for: each has a folder and a program of its own."""

    program: ClassVar[str]  # within the folder

    @property
    @abstractmethod
    def settings(self) -> list[str]:
        """As cmake is told."""

    @property
    @abstractmethod
    def name(self) -> str:
        """As its build folder is called."""

    @property
    def folder(self) -> Path:
        """Where it is built."""
        return BUILD / self.name


@dataclass(frozen=True)
class Shape(Built):
    """What a device is built for: FP32 numbers a beat, elements a block, bits of a mantissa."""

    lanes: int = 8
    block: int = 16
    mantissa: int = 7
    covers: bool = False  # counts which lines and bits of the sources were reached
    program: ClassVar[str] = "rtl/sim/netfold-rtl"

    @property
    def settings(self) -> list[str]:
        told = [f"-DNETFOLD_RTL_LANES={self.lanes}", f"-DNETFOLD_RTL_BLOCK={self.block}"]
        told.append(f"-DNETFOLD_RTL_MANTISSA={self.mantissa}")
        if self.covers:
            told.append("-DNETFOLD_RTL_FLAGS=--coverage-line;--coverage-toggle")
        return told

    @property
    def name(self) -> str:
        return f"rtl-l{self.lanes}-b{self.block}-m{self.mantissa}" + ("-coverage" if self.covers else "")


@dataclass(frozen=True)
class SwitchShape(Built):
    """A switch of so many ports, with clocks of their own at the ports or, faster to simulate, one clock for all."""

    ports: int = 8
    has_crossings: bool = True
    program: ClassVar[str] = "rtl/sim/switch/netfold-rtl-switch"

    @property
    def settings(self) -> list[str]:
        return [f"-DNETFOLD_RTL_PORTS={self.ports}", f"-DNETFOLD_RTL_CROSSINGS={int(self.has_crossings)}"]

    @property
    def name(self) -> str:
        return f"rtl-switch-p{self.ports}" + ("" if self.has_crossings else "-one-clock")


def build(shape: Built, targets: tuple[str, ...] = ()) -> Path:
    """Build what changed (no targets: its program) and return the folder; the first time takes minutes. Raises
    RtlError."""
    cmake, ninja = tool("cmake", "cmake"), tool("ninja", "ninja")
    shape.folder.mkdir(parents=True, exist_ok=True)
    with (shape.folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests and commands of one tree share it
        configure = [cmake, "-S", str(ROOT), "-B", str(shape.folder), "-G", "Ninja", "-DNETFOLD_RTL=ON"]
        configure.append("-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O1 -g0 -DNDEBUG")  # models and devices have -O2
        configure += [f"-DPython_EXECUTABLE={sys.executable}", *shape.settings]
        if not (shape.folder / "build.ninja").exists():
            call(configure, BUILD_TIMEOUT_S)
        call([ninja, "-C", str(shape.folder), *(targets or (Path(shape.program).name,))], BUILD_TIMEOUT_S)
    return shape.folder


def run(shape: Built, *arguments: str, timeout_s: float = RUN_TIMEOUT_S, where: Path = ROOT) -> dict[str, Any]:
    """One run of a shape's program, which must have been built, in the folder `where`. Raises RtlError."""
    program = shape.folder / shape.program
    if not program.exists():
        raise RtlError(f"{program.name} is not built for {shape}: netfold rtl build, or netfold rtl switch build")
    return json.loads(call([str(program), *arguments], timeout_s, where))
