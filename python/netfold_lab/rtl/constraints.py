"""Constraints of the clock crossings for Vivado, Quartus and nextpnr, from rtl/constraints.toml.

Each instance of a module with a crossing gets a constraint by its path. Vivado and Quartus bound the delay of a Gray
code and the skew of its bits. nextpnr knows clocks only, and places and routes the crossings without a bound. The
LPF names each of them with its limit in a comment.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from netfold_lab.rtl import hierarchy
from netfold_lab.rtl.paths import RTL, RtlError

SOURCE = RTL / "constraints.toml"
KINDS = ("gray", "data", "reset", "input")


@dataclass(frozen=True)
class Clock:
    """A clock by the port that it enters through, one bit of it if `index` is not None."""

    name: str
    port: str
    index: int | None
    mhz: float

    @property
    def pin(self) -> str:
        """The port, or its bit."""
        return self.port if self.index is None else f"{self.port}[{self.index}]"

    @property
    def period_ns(self) -> float:
        """Its period."""
        return 1000 / self.mhz


@dataclass(frozen=True)
class Crossing:
    """A crossing of one instance. `path` holds the names of the instances below the top; `start` and `end` are signals
    in the last, except that `start` of the kind input is a port of the top. One of them can be empty."""

    path: tuple[str, ...]
    kind: str
    start: str
    end: str


@dataclass(frozen=True)
class Constraints:
    """The clocks of a design, its crossings, and their limit: the period of the fastest clock."""

    top: str
    clocks: tuple[Clock, ...]
    crossings: tuple[Crossing, ...]

    @property
    def limit_ns(self) -> float:
        """The longest delay of a crossing, and the largest skew between its bits."""
        return min(clock.period_ns for clock in self.clocks)


def _clocks(rows: list[dict[str, Any]], ports: int) -> Iterator[Clock]:
    for row in rows:
        if row.get("each"):
            yield from (Clock(f"{row['name']}{i}", row["port"], i, row["mhz"]) for i in range(ports))
        else:
            yield Clock(row["name"], row["port"], None, row["mhz"])


def read(design: str, ports: int) -> Constraints:
    """The constraints of a design with this number of Ethernet ports. Raises RtlError for a design or a kind that is
    not in the table above."""
    given = tomllib.loads(SOURCE.read_text())
    if design not in given or design == "crossings":
        raise RtlError(f"{SOURCE.name} has no design {design}")
    rows = given["crossings"]
    unknown = {row["kind"] for row in rows} - set(KINDS)
    if unknown:
        raise RtlError(f"{SOURCE.name}: {', '.join(sorted(unknown))} is none of {', '.join(KINDS)}")
    settings = {"Ports": ports, **given[design].get("settings", {})}
    crossings = [
        Crossing(path, row["kind"], row.get("from", ""), row.get("to", ""))
        for module, path in hierarchy.instances(given[design]["top"], settings)
        for row in rows
        if row["module"] == module
    ]
    return Constraints(given[design]["top"], tuple(_clocks(given[design]["clocks"], ports)), tuple(crossings))


def _created(constraints: Constraints) -> list[str]:
    """The clocks, in the words of Vivado and of Quartus."""
    return [
        f"create_clock -name {clock.name} -period {clock.period_ns:.3f} [get_ports {{{clock.pin}}}]"
        for clock in constraints.clocks
    ]


def vivado(constraints: Constraints) -> str:
    """An XDC file."""
    limit = f"{constraints.limit_ns:.3f}"
    lines = _created(constraints)
    for crossing in constraints.crossings:
        base = "/".join(crossing.path)
        end = f"[get_cells {{{base}/{crossing.end}_reg*}}]"
        start = f"[get_cells {{{base}/{crossing.start}_reg*}}]"
        if crossing.kind == "gray":
            lines.append(f"set_max_delay -datapath_only -from {start} -to {end} {limit}")
            lines.append(f"set_bus_skew -from {start} -to {end} {limit}")
        elif crossing.kind == "data":
            lines.append(f"set_max_delay -datapath_only -from {start} {limit}")
        elif crossing.kind == "reset":
            pins = f"[get_pins -filter {{REF_PIN_NAME == CLR || REF_PIN_NAME == PRE}} -of_objects {end}]"
            lines.append(f"set_false_path -to {pins}")
        else:
            lines.append(f"set_false_path -from [get_ports {{{crossing.start}}}] -to {end}")
    return "\n".join(lines) + "\n"


def quartus(constraints: Constraints) -> str:
    """An SDC file with Quartus's commands for nets and skew. Between the two clocks of a crossing setup and hold do not
    count; the bounds do."""
    limit = f"{constraints.limit_ns:.3f}"
    lines = [*_created(constraints), "derive_clock_uncertainty"]
    for crossing in constraints.crossings:
        base = "|".join(crossing.path)
        end = f"[get_registers {{{base}|{crossing.end}*}}]"
        start = f"[get_registers {{{base}|{crossing.start}*}}]"
        if crossing.kind == "gray":
            lines.append(f"set_false_path -from {start} -to {end}")
            lines.append(f"set_net_delay -max {limit} -from {start} -to {end}")
            lines.append(f"set_max_skew {limit} -from {start} -to {end}")
        elif crossing.kind == "data":
            lines.append(f"set_false_path -from {start}")
            lines.append(f"set_net_delay -max {limit} -from {start}")
        elif crossing.kind == "reset":
            lines.append(f"set_false_path -to [get_pins -compatibility_mode {{{base}|{crossing.end}*|clrn}}]")
        else:
            lines.append(f"set_false_path -from [get_ports {{{crossing.start}}}] -to {end}")
    return "\n".join(lines) + "\n"


def nextpnr(constraints: Constraints) -> str:
    """An LPF file: clocks, and the crossings as comments."""
    lines = [f'FREQUENCY PORT "{clock.pin}" {clock.mhz:g} MHZ;' for clock in constraints.clocks]
    for crossing in constraints.crossings:
        base = ".".join(crossing.path)
        bound = f"at most {constraints.limit_ns:.3f} ns" if crossing.kind in ("gray", "data") else "not timed"
        start = crossing.start if crossing.kind == "input" else f"{base}.{crossing.start}" if crossing.start else "*"
        end = f"{base}.{crossing.end}" if crossing.end else "*"
        lines.append(f"# crossing ({crossing.kind}): {start} -> {end}: {bound}")
    return "\n".join(lines) + "\n"


WRITERS: dict[str, Callable[[Constraints], str]] = {"xdc": vivado, "sdc": quartus, "lpf": nextpnr}


def write(constraints: Constraints, folder: Path) -> list[Path]:
    """Write one file for each tool, named after the top module; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for suffix, text in WRITERS.items():
        path = folder / f"{constraints.top}.{suffix}"
        path.write_text(text(constraints))
        written.append(path)
    return written
