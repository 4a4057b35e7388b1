"""The size of the hardware by yosys for each module, beside Table I of ai-smart-nic.

Limits of the comparison. The paper counts ALMs, 20 kbit RAMs and DSP blocks of an Arria 10 after place and route. This
report counts LUTs, flip-flops and RAMs of an UltraScale part (XCVU190: xcu) after synthesis, because yosys maps to that
family. An ALM holds about two LUTs of six inputs. The paper's eight DSPs for eight lanes suggest adders in hard
floating point. Adders here are LUTs, and the largest part of the sum.

Modules are synthesised separately to count them separately, which costs some per cent. Inverters do not count: LUTs
absorb them.

Each module is synthesised once for each set of its parameters, and counted for each of its instances. Modules that only
connect others are flattened before: abc does not end on hundreds of wires without logic (16 lanes).
"""

from __future__ import annotations

import json
import re
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from netfold_lab.rtl.design import elaborated, reading, yosys
from netfold_lab.rtl.paths import BUILD, NIC, RTL, RtlError, sources

TOP = "netfold_nic"
# LUTs that a distributed RAM takes.
LUT_RAMS = {
    "RAM32M16": 8,
    "RAM64M8": 8,
    "RAM32M": 4,
    "RAM64M": 4,
    "RAM32X1D": 2,
    "RAM64X1D": 2,
    "SRL16E": 1,
    "SRLC32E": 1,
}
RAM_BITS = {"RAMB18E2": 18 * 1024, "RAMB36E2": 36 * 1024}
ALL_REDUCE, BFP, LINK, REGISTERS = GROUPS = ("all-reduce", "bfp", "link", "registers")
# Table I: ALMs, M20Ks, DSPs.
PAPER = {ALL_REDUCE: (2233, 46, 8), BFP: (2857, 120, 0), "OPAE + IKL shim": (64480, 368, 0)}
M20K_BITS = 20 * 1024
# Gbit/s: lanes of a port, ports.
DEVICES = {40: (8, 1), 100: (16, 1), 400: (16, 4)}


@dataclass
class Area:
    """The resources of a part: LUTs (with distributed RAM), flip-flops, bits of block RAM as mapped, DSPs."""

    luts: int = 0
    flip_flops: int = 0
    ram_bits: int = 0
    dsps: int = 0
    instances: int = 0

    def add(self, other: Area, times: int = 1) -> None:
        """Add to this area."""
        self.luts += times * other.luts
        self.flip_flops += times * other.flip_flops
        self.ram_bits += times * other.ram_bits
        self.dsps += times * other.dsps
        self.instances += times * other.instances


@dataclass
class Device:
    """One device: its parts by group, then module, and their sums."""

    gbit_s: int
    lanes: int
    ports: int
    modules: dict[str, dict[str, Area]] = field(default_factory=dict)

    def total(self, group: str) -> Area:
        """All modules of a group, all ports."""
        sum_ = Area()
        for area in self.modules[group].values():
            sum_.add(area)
        return sum_


def _group(path: str) -> str:
    if "u_receive" in path or "u_send" in path:
        return LINK
    if "u_registers" in path:
        return REGISTERS
    return BFP if "gen_bfp" in path else ALL_REDUCE


def area_of(cells: dict[str, int]) -> Area:
    """The resources of these numbers of cells by type."""
    area = Area(instances=1)
    for kind, count in cells.items():
        if re.fullmatch(r"LUT[1-6]", kind):
            area.luts += count
        elif kind in LUT_RAMS:
            area.luts += LUT_RAMS[kind] * count
        elif re.fullmatch(r"FD[CPRS]E", kind):
            area.flip_flops += count
        elif kind in RAM_BITS:
            area.ram_bits += RAM_BITS[kind] * count
        elif kind.startswith("DSP"):
            area.dsps += count
    return area


def _pattern(name: str) -> str:
    """A pattern that selects only this name."""
    return re.sub(r"[][*?]", r"\\\g<0>", name)


def _originals(modules: dict[str, Any]) -> dict[str, str]:
    """For each module: the first module that equals it, with parameters and submodules."""
    found: dict[str, str] = {}
    first: dict[str, str] = {}

    def original(name: str) -> str:
        if name not in modules:
            return name  # it is a cell of yosys
        if name not in found:
            module = modules[name]
            cells = sorted(
                json.dumps([original(cell["type"]), cell["parameters"], cell["connections"]], sort_keys=True)
                for cell in module["cells"].values()
            )
            content = json.dumps([name.partition("$")[0], module["ports"], cells])
            found[name] = first.setdefault(content, name)
        return found[name]

    for name in modules:
        original(name)
    return found


def _connects_only(module: dict[str, Any], modules: dict[str, Any]) -> bool:
    return bool(module["cells"]) and all(cell["type"] in modules for cell in module["cells"].values())


def _synthesise(lanes: int) -> dict[str, dict[str, int]]:
    """Cells by instance path of a netfold_nic. It takes a minute or more; the result is kept until a source changes."""
    newest = max((RTL / name).stat().st_mtime for name in sources(NIC))
    kept = BUILD / f"rtl-cells-l{lanes}.json"
    if not kept.exists() or kept.stat().st_mtime < newest:
        BUILD.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".netfold-area-", dir=RTL) as folder:
            area = f"{Path(folder).name}/area.json"
            modules = elaborated(TOP, lanes)
            originals = _originals(modules)
            copies = [name for name, original in originals.items() if name != original]
            wiring = [name for name, module in modules.items() if _connects_only(module, modules)]
            script = [reading(TOP, lanes), *(f"chtype -set {originals[name]} t:{_pattern(name)}" for name in copies)]
            script += [f"delete {_pattern(name)}" for name in copies]
            script += ["setattr -mod -set keep_hierarchy 1 *"]
            script += [f"setattr -mod -unset keep_hierarchy {_pattern(name)}" for name in wiring if name not in copies]
            script += ["flatten", f"synth_xilinx -family xcu -top {TOP} -noiopad", f"tee -o {area} stat -json"]
            yosys("; ".join(script))
            counted = {
                name.lstrip("\\"): module["num_cells_by_type"]
                for name, module in json.loads((RTL / area).read_text())["modules"].items()
            }
            cells = {name: counted.get(original, {}) for name, original in originals.items()}
            kept.write_text(json.dumps(cells))
    cells = json.loads(kept.read_text())
    if not any(cells.values()):
        raise RtlError("yosys printed no cell counts")
    return cells


def device(gbit_s: int) -> Device:
    """Synthesise the device for 40, 100 or 400 Gbit/s. Raises RtlError."""
    lanes, ports = DEVICES[gbit_s]
    found = Device(gbit_s, lanes, ports, {group: {} for group in GROUPS})
    for name, cells in _synthesise(lanes).items():
        module, _, path = name.partition("$")
        modules = found.modules[_group(path)]
        modules.setdefault(module, Area()).add(area_of(cells), ports)
    return found


def fifo_bits(lanes: int) -> int:
    """Bits of all FIFOs of a port as designed: input, output, Rx and Tx (the replay buffer)."""
    beat = 32 * lanes
    host, chunk = 2048 // lanes, 4096 // lanes
    slots, slot_beats = 32, 1 << (352 // lanes - 1).bit_length()
    return 2 * host * beat + 4 * chunk * (beat + 1) + slots * slot_beats * beat
