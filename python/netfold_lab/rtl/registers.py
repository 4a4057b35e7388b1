"""The register maps: each is read from its toml file, and written as a SystemVerilog package, a C header and a page."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from netfold_lab.rtl.paths import ROOT

WORD_BYTES = 4
ACCESS = {"ro": "read", "rw": "read, write", "wo": "write", "rc": "read, which removes it"}


@dataclass(frozen=True)
class Device:
    """One device: the source of its map in rtl/, and the files written from it."""

    name: str  # part of the names of files and of constants
    title: str
    source: str
    page: str  # in docs/reference
    first_counter: int
    address_bits: int
    port_stride: int = 0  # distance between the counters of two ports; 0: only one set

    @property
    def prefix(self) -> str:
        """The prefix of constants in C."""
        return f"NETFOLD_{self.name.upper()}"

    @property
    def package(self) -> Path:
        """The SystemVerilog package."""
        return ROOT / "rtl" / "src" / self.name / f"{self.name}_registers_pkg.sv"

    @property
    def header(self) -> Path:
        """The C header."""
        return ROOT / "rtl" / "include" / f"netfold_{self.name}.h"


NIC = Device("nic", "smart NIC", "registers.toml", "nic-registers.md", 0x080, 12)
SWITCH = Device("switch", "aggregation switch", "switch_registers.toml", "switch-registers.md", 0x1000, 13, 0x100)
DEVICES = (NIC, SWITCH)


@dataclass(frozen=True)
class Field:
    """Bits `high` to `low` of a register."""

    name: str
    high: int
    low: int
    about: str


@dataclass(frozen=True)
class Register:
    """One word of the map."""

    name: str
    offset: int
    access: str
    reset: int
    about: str
    fields: tuple[Field, ...]
    is_counter: bool = False


@dataclass(frozen=True)
class Map:
    """Every register by offset, the map's version, and named values of registers."""

    device: Device
    version: int
    registers: tuple[Register, ...]
    constants: dict[str, int]

    @property
    def counters(self) -> list[Register]:
        """Registers that count events, in order."""
        return [register for register in self.registers if register.is_counter]


def _registers(entry: dict[str, Any]) -> list[Register]:
    """One register, or `times` registers `stride` bytes apart; their number replaces the {} of the name."""
    fields = tuple(
        Field(field["name"], int(high), int(low), field["about"])
        for field in entry.get("fields", [])
        for high, low in [field["bits"].split(":")]
    )
    return [
        Register(
            name=entry["name"].format(i),
            offset=entry["offset"] + i * entry.get("stride", 0),
            access=entry["access"],
            reset=entry.get("reset", 0),
            about=entry["about"],
            fields=fields,
        )
        for i in range(entry.get("times", 1))
    ]


def read(device: Device) -> Map:
    """Read the map. Raises ValueError if registers overlap or are not aligned to words."""
    text = tomllib.loads((ROOT / "rtl" / device.source).read_text())
    registers = [register for entry in text["register"] for register in _registers(entry)]
    registers += [
        Register(entry["name"], device.first_counter + WORD_BYTES * i, "ro", 0, entry["about"], (), is_counter=True)
        for i, entry in enumerate(text["counter"])
    ]
    offsets = [register.offset for register in registers]
    if len(set(offsets)) < len(offsets) or any(offset % WORD_BYTES for offset in offsets):
        raise ValueError(f"{device.source}: each register needs a separate offset, a multiple of {WORD_BYTES}")
    constants = {entry["name"]: entry["value"] for entry in text.get("constant", [])}
    return Map(device, text["version"], tuple(registers), constants)


def _camel(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


def package(registers: Map) -> str:
    """The SystemVerilog package."""
    device = registers.device
    address = f"logic [{device.address_bits - 1}:0]"
    lines = [
        f"// The register map. `netfold rtl registers` writes it from rtl/{device.source}.",
        f"package {device.package.stem};",
        "",
        f"  localparam logic [31:0] Version = 32'h{registers.version:08x};",
        f"  localparam int unsigned Counters = {len(registers.counters)};",
        f"  localparam {address} FirstCounter = {device.address_bits}'h{device.first_counter:03x};",
        "",
    ]
    lines += [
        f"  localparam {address} Offset{_camel(register.name)} = {device.address_bits}'h{register.offset:03x};"
        for register in registers.registers
        if not register.is_counter
    ]
    lines.append("")
    lines += [
        f"  localparam logic [31:0] Reset{_camel(register.name)} = 32'h{register.reset:08x};"
        for register in registers.registers
        if register.reset
    ]
    lines += ["", "  // The number of each counter."]
    lines += [
        f"  localparam int unsigned Count{_camel(register.name)} = {i};"
        for i, register in enumerate(registers.counters)
    ]
    return "\n".join([*lines, "", "endpackage", ""])


def header(registers: Map) -> str:
    """The C header."""
    device, prefix = registers.device, registers.device.prefix
    lines = [
        f"// The registers of the {device.title}, for drivers in C. `netfold rtl registers` writes them from",
        f"// rtl/{device.source}. Offsets are in bytes; a field's value is (word >> SHIFT) & MASK.",
        "#pragma once",
        "",
        f"#define {prefix}_MAP_VERSION 0x{registers.version:08x}u",
        "",
    ]
    for register in registers.registers:
        lines.append(f"#define {prefix}_{register.name} 0x{register.offset:03x}u")
        for field in register.fields:
            name = f"{prefix}_{register.name}_{field.name}"
            lines += [
                f"#define {name}_SHIFT {field.low}u",
                f"#define {name}_MASK 0x{(1 << (field.high - field.low + 1)) - 1:x}u",
            ]
    if device.port_stride:
        lines += [
            "",
            "// These are the counters of port 0; the counters of each next port follow at this distance in bytes.",
        ]
        lines += [f"#define {prefix}_PORT_STRIDE 0x{device.port_stride:x}u"]
    if registers.constants:
        lines += ["", "// The values of COMPLETION and STATUS."]
        lines += [f"#define {prefix}_{name} {value}u" for name, value in registers.constants.items()]
    return "\n".join([*lines, ""])


def page(registers: Map) -> str:
    """The page of the docs."""
    device, size_kib = registers.device, (1 << registers.device.address_bits) // 1024
    stride = f" Offsets of counters are those of port 0; each next port's are 0x{device.port_stride:x} higher."
    ports = stride if device.port_stride else ""
    lines = [
        f"# Registers of the {device.title}",
        "",
        f"Written by `netfold rtl registers` from [{device.source}](../../rtl/{device.source}), as are the package and",
        f" the [C header](../../rtl/include/{device.header.name})."
        f" AXI-Lite, 32 bits, {size_kib} KiB; other addresses read",
        f"0. Version {registers.version >> 16}.{registers.version & 0xFFFF}.{ports}",
        "",
        "| offset | register | access | at reset | meaning |",
        "|---|---|---|---|---|",
    ]
    for register in registers.registers:
        lines.append(
            f"| 0x{register.offset:03x} | `{register.name}` | {ACCESS[register.access]} | 0x{register.reset:x} "
            f"| {register.about} |"
        )
        for field in register.fields:
            bits = f"{field.high}:{field.low}" if field.high != field.low else f"{field.low}"
            lines.append(f"| | &nbsp;&nbsp;`{field.name}` [{bits}] | | | {field.about} |")
    return "\n".join([*lines, ""])


def outputs() -> dict[Path, str]:
    """The content of each generated file."""
    files = {}
    for registers in map(read, DEVICES):
        files[registers.device.package] = package(registers)
        files[registers.device.header] = header(registers)
        files[ROOT / "docs" / "reference" / registers.device.page] = page(registers)
    return files


def write() -> list[Path]:
    """Write all files; returns those that changed."""
    changed = []
    for path, text in outputs().items():
        if not path.exists() or path.read_text() != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            changed.append(path)
    return changed
