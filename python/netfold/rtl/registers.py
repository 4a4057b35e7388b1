"""The register maps: each read from its toml file, written as a SystemVerilog package, a C header and a page."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from netfold.rtl.places import ROOT

WORD_BYTES = 4
ACCESS = {"ro": "read", "rw": "read, write", "wo": "write", "rc": "read, which takes it"}


@dataclass(frozen=True)
class Device:
    """One device: its map's source in rtl/, and what is written from it."""

    name: str  # as in names of files and of constants
    title: str
    source: str
    page: str  # in docs/hardware
    first_counter: int
    address_bits: int
    port_stride: int = 0  # from a port's counters to the next port's; 0: one set

    @property
    def prefix(self) -> str:
        """Of constants in C."""
        return f"NETFOLD_{self.name.upper()}"

    @property
    def package(self) -> Path:
        """The SystemVerilog package."""
        return ROOT / "rtl" / "src" / self.name / f"{self.name}_registers_pkg.sv"

    @property
    def header(self) -> Path:
        """The C header."""
        return ROOT / "rtl" / "include" / f"netfold_{self.name}.h"


NIC = Device("nic", "smart NIC", "registers.toml", "registers.md", 0x080, 12)
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
    """Every register by offset, the map's version, and values that registers have, by name."""

    device: Device
    version: int
    registers: tuple[Register, ...]
    constants: dict[str, int]

    @property
    def counters(self) -> list[Register]:
        """Those that count events, in their order."""
        return [register for register in self.registers if register.is_counter]


def _registers(entry: dict[str, Any]) -> list[Register]:
    """One, or as many as `times` says, `stride` bytes apart, with their number in place of the {} of the name."""
    fields = tuple(
        Field(field["name"], *(int(bit) for bit in field["bits"].split(":")), field["about"])
        for field in entry.get("fields", [])
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
    """The map. Raises ValueError where registers overlap or lie between words."""
    text = tomllib.loads((ROOT / "rtl" / device.source).read_text())
    registers = [register for entry in text["register"] for register in _registers(entry)]
    registers += [
        Register(entry["name"], device.first_counter + WORD_BYTES * i, "ro", 0, entry["about"], (), is_counter=True)
        for i, entry in enumerate(text["counter"])
    ]
    offsets = [register.offset for register in registers]
    if len(set(offsets)) < len(offsets) or any(offset % WORD_BYTES for offset in offsets):
        raise ValueError(f"{device.source}: each register needs an offset of its own, a multiple of {WORD_BYTES}")
    constants = {entry["name"]: entry["value"] for entry in text.get("constant", [])}
    return Map(device, text["version"], tuple(registers), constants)


def _camel(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


def package(registers: Map) -> str:
    """The SystemVerilog package."""
    device = registers.device
    address = f"logic [{device.address_bits - 1}:0]"
    lines = [
        f"// The register map. Written by `netfold rtl registers` from rtl/{device.source}: change that.",
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
    lines += ["", "  // Which counter counts what."]
    lines += [
        f"  localparam int unsigned Count{_camel(register.name)} = {i};"
        for i, register in enumerate(registers.counters)
    ]
    return "\n".join([*lines, "", "endpackage", ""])


def header(registers: Map) -> str:
    """The C header."""
    device, prefix = registers.device, registers.device.prefix
    lines = [
        f"// The registers of the {device.title}, for drivers in C. Written by `netfold rtl registers` from",
        f"// rtl/{device.source}: change that. Offsets are bytes; a field's value is (word >> SHIFT) & MASK.",
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
        lines += ["", "// Counters are port 0's: those of the next port lie so many bytes higher, and so on."]
        lines += [f"#define {prefix}_PORT_STRIDE 0x{device.port_stride:x}u"]
    if registers.constants:
        lines += ["", "// What COMPLETION and STATUS name."]
        lines += [f"#define {prefix}_{name} {value}u" for name, value in registers.constants.items()]
    return "\n".join([*lines, ""])


def page(registers: Map) -> str:
    """The page of the docs."""
    device, size_kib = registers.device, (1 << registers.device.address_bits) // 1024
    stride = f" Counters are port 0's; each port's lie 0x{device.port_stride:x} above those of the one before."
    ports = stride if device.port_stride else ""
    lines = [
        f"# Registers of the {device.title}",
        "",
        f"Written by `netfold rtl registers` from [{device.source}](../../rtl/{device.source}), as are the package and",
        f" the [C header](../../rtl/include/{device.header.name})."
        f" AXI-Lite, 32 bits, {size_kib} KiB; what is not listed reads",
        f"0. Version {registers.version >> 16}.{registers.version & 0xFFFF}.{ports}",
        "",
        "| offset | register | access | at reset | what |",
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
    """What each generated file must hold."""
    files = {}
    for registers in map(read, DEVICES):
        files[registers.device.package] = package(registers)
        files[registers.device.header] = header(registers)
        files[ROOT / "docs" / "hardware" / registers.device.page] = page(registers)
    return files


def write() -> list[Path]:
    """Write them all; returns those that changed."""
    changed = []
    for path, text in outputs().items():
        if not path.exists() or path.read_text() != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            changed.append(path)
    return changed
