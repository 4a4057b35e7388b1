"""The register map: read from rtl/registers.toml, written as a SystemVerilog package, a C header and a page."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from netfold.rtl.places import ROOT

SOURCE = ROOT / "rtl" / "registers.toml"
PACKAGE = ROOT / "rtl" / "src" / "nic" / "nic_registers_pkg.sv"
HEADER = ROOT / "rtl" / "include" / "netfold_nic.h"
PAGE = ROOT / "docs" / "hardware" / "registers.md"
FIRST_COUNTER = 0x080
WORD_BYTES = 4
ACCESS = {"ro": "read", "rw": "read, write", "wo": "write", "rc": "read, which takes it"}


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
    """Every register by offset, and the map's version."""

    version: int
    registers: tuple[Register, ...]

    @property
    def counters(self) -> list[Register]:
        """Those that count events, in their order."""
        return [register for register in self.registers if register.is_counter]


def read(path: Path = SOURCE) -> Map:
    """The map. Raises ValueError where registers overlap or lie between words."""
    text = tomllib.loads(path.read_text())
    registers = [
        Register(
            name=entry["name"],
            offset=entry["offset"],
            access=entry["access"],
            reset=entry.get("reset", 0),
            about=entry["about"],
            fields=tuple(
                Field(field["name"], *(int(bit) for bit in field["bits"].split(":")), field["about"])
                for field in entry.get("fields", [])
            ),
        )
        for entry in text["register"]
    ]
    registers += [
        Register(entry["name"], FIRST_COUNTER + WORD_BYTES * i, "ro", 0, entry["about"], (), is_counter=True)
        for i, entry in enumerate(text["counter"])
    ]
    offsets = [register.offset for register in registers]
    if len(set(offsets)) < len(offsets) or any(offset % WORD_BYTES for offset in offsets):
        raise ValueError(f"{path.name}: each register needs an offset of its own, a multiple of {WORD_BYTES}")
    return Map(text["version"], tuple(registers))


def _camel(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


def package(registers: Map) -> str:
    """The SystemVerilog package."""
    lines = [
        "// The register map. Written by `netfold rtl registers` from rtl/registers.toml: change that.",
        "package nic_registers_pkg;",
        "",
        f"  localparam logic [31:0] Version = 32'h{registers.version:08x};",
        f"  localparam int unsigned Counters = {len(registers.counters)};",
        f"  localparam logic [11:0] FirstCounter = 12'h{FIRST_COUNTER:03x};",
        "",
    ]
    lines += [
        f"  localparam logic [11:0] Offset{_camel(register.name)} = 12'h{register.offset:03x};"
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
    lines = [
        "// The registers of the smart NIC, for drivers in C. Written by `netfold rtl registers` from",
        "// rtl/registers.toml: change that. Offsets are bytes; a field's value is (word >> SHIFT) & MASK.",
        "#pragma once",
        "",
        f"#define NETFOLD_NIC_MAP_VERSION 0x{registers.version:08x}u",
        "",
    ]
    for register in registers.registers:
        lines.append(f"#define NETFOLD_NIC_{register.name} 0x{register.offset:03x}u")
        for field in register.fields:
            name = f"NETFOLD_NIC_{register.name}_{field.name}"
            lines += [
                f"#define {name}_SHIFT {field.low}u",
                f"#define {name}_MASK 0x{(1 << (field.high - field.low + 1)) - 1:x}u",
            ]
    lines += [
        "",
        "// What COMPLETION and STATUS name.",
        "#define NETFOLD_NIC_DONE 0u",
        "#define NETFOLD_NIC_TIMEOUT 1u",
        "#define NETFOLD_NIC_MISMATCH 2u",
        "#define NETFOLD_NIC_RESET 3u",
        "#define NETFOLD_NIC_REFUSED 4u",
    ]
    return "\n".join([*lines, ""])


def page(registers: Map) -> str:
    """The page of the docs."""
    lines = [
        "# Registers of the smart NIC",
        "",
        "Written by `netfold rtl registers` from [registers.toml](../../rtl/registers.toml), as are the package and",
        " the [C header](../../rtl/include/netfold_nic.h). AXI-Lite, 32 bits, 4 KiB; what is not listed reads",
        f"0. Version {registers.version >> 16}.{registers.version & 0xFFFF}.",
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
    registers = read()
    return {PACKAGE: package(registers), HEADER: header(registers), PAGE: page(registers)}


def write() -> list[Path]:
    """Write all three; returns those that changed."""
    changed = []
    for path, text in outputs().items():
        if not path.exists() or path.read_text() != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            changed.append(path)
    return changed
