"""The C++ simulations of the hardware. Each is built for one shape; a run prints one JSON object. A shape is the smart
NIC's (Shape) or the switch's (SwitchShape), and has a build folder of its own."""

from __future__ import annotations

import json
import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from netfold_lab.rtl.paths import BUILD, ROOT, RtlError, call, locked, tool

BUILD_TIMEOUT_S = 1800.0
RUN_TIMEOUT_S = 3600.0


class Built(ABC):
    """The parameters of a simulation. Each shape has a folder and a program of its own."""

    program: ClassVar[str]  # within the folder

    @property
    @abstractmethod
    def settings(self) -> list[str]:
        """The options for cmake."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of its build folder."""

    @property
    def folder(self) -> Path:
        """Its build folder."""
        return BUILD / self.name


@dataclass(frozen=True)
class Shape(Built):
    """The parameters of a NIC: FP32 numbers per beat, elements per block, bits of a mantissa."""

    lanes: int = 8
    block: int = 16
    mantissa: int = 7
    covers: bool = False  # whether it counts the lines and bits of the sources that were reached
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
    """The parameters of a switch: the number of ports, and a clock for each port or, faster to simulate, one clock for
    all."""

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
    """Build changed parts (default target: its program) and return the folder. The first build takes minutes. Raises
    RtlError."""
    cmake, ninja = tool("cmake", "cmake"), tool("ninja", "ninja")
    with locked(shape.folder):
        configure = [cmake, "-S", str(ROOT), "-B", str(shape.folder), "-G", "Ninja", "-DNETFOLD_RTL=ON"]
        configure.append("-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O1 -g0 -DNDEBUG")  # models and devices have -O2
        configure += [f"-DPython_EXECUTABLE={sys.executable}", *shape.settings]
        if not (shape.folder / "build.ninja").exists():
            call(configure, BUILD_TIMEOUT_S)
        call([ninja, "-C", str(shape.folder), *(targets or (Path(shape.program).name,))], BUILD_TIMEOUT_S)
    return shape.folder


def run(shape: Built, *arguments: str, timeout_s: float = RUN_TIMEOUT_S, where: Path = ROOT) -> dict[str, Any]:
    """Run a shape's program, which must be built, in the folder `where`. Raises RtlError."""
    program = shape.folder / shape.program
    if not program.exists():
        raise RtlError(f"{program.name} is not built for {shape}: run netfold rtl build, or netfold rtl switch build")
    return json.loads(call([str(program), *arguments], timeout_s, where))
