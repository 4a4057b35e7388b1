"""The longest paths of a netlist that yosys mapped to UltraScale+, counted in LUT levels.

A path begins at a flip-flop, a memory or an input port, and ends at a flip-flop, a memory or an output port. A LUT
counts 1. The multiplexers that join LUTs of one CLB (MUXF7 to MUXF9) count 0. A carry chain counts 1 where a path
enters it, and 0 from block to block, since 64 bits take some 0.2 ns. A distributed RAM or a shift register counts 1
from its address to its output, and 1 where a path begins in it. A block RAM counts 2 where a path begins in it (about
0.9 ns), and 1 if it registers its output. An inverter or a clock buffer counts 0.

Only paths that begin and end with the same clock count. Between clocks, constraints.toml says what holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

VERSION = 2  # of this way of mapping and counting: results of another version are measured anew
FLIP_FLOP = re.compile(r"FD[CPRS]E(_1)?|LDCE|LDPE")
LUT = re.compile(r"LUT[1-6]")
LUT_RAM = re.compile(r"RAM\d+[MX].*")
SHIFT_REGISTER = re.compile(r"SRLC?\d+E")
BLOCK_RAM = re.compile(r"RAMB\d+E2|URAM288.*")
FREE = ("INV", "BUFG", "MUXF7", "MUXF8", "MUXF9")
PORT = "port"  # in place of a clock

Bit = int | str


class PathError(RuntimeError):
    """A netlist that cannot be measured. The message says why."""


@dataclass(frozen=True)
class LongestPath:
    """A path by the names of its ends. A port's name begins with `port `."""

    levels: int
    start: str
    end: str


def _is_wire(bit: Bit) -> bool:
    return isinstance(bit, int)


def _address_reaches(address: str, output: str) -> bool:
    """Whether this address port of a distributed RAM reads that output port: ADDRA reads DOA, DPRA reads DPO."""
    letter = re.fullmatch(r"ADDR([A-H])", address)
    if letter:
        return output.startswith(f"DO{letter[1]}")
    return output != "SPO" if address.startswith("DPRA") else output != "DPO"


def _carry_arcs(pins: dict[str, list[Bit]]) -> Iterator[tuple[Bit, Bit, int]]:
    for name in ("CI", "CYINIT", "S", "DI"):
        for i, bit in enumerate(pins.get(name, [])):
            first = i if name in ("S", "DI") else 0
            levels = 0 if name == "CI" else 1
            for out, bits in (("O", pins.get("O", [])), ("CO", pins.get("CO", []))):
                # DI does not reach the sum of its own bit.
                begin = first + 1 if name == "DI" and out == "O" else first
                yield from ((bit, to, levels) for to in bits[begin:])


def _arcs(cell: dict[str, Any]) -> Iterator[tuple[Bit, Bit, int]]:
    """The combinational arcs of a cell: from, to, levels."""
    kind, pins, ways = cell["type"], cell["connections"], cell["port_directions"]
    if kind.startswith("CARRY"):
        yield from _carry_arcs(pins)
        return
    inputs = [name for name in pins if ways[name] == "input"]
    outputs = [name for name in pins if ways[name] == "output"]
    if LUT.fullmatch(kind) or kind in FREE:
        levels = 1 if LUT.fullmatch(kind) else 0
        yield from ((a, b, levels) for i in inputs for a in pins[i] for o in outputs for b in pins[o])
    elif LUT_RAM.fullmatch(kind) or SHIFT_REGISTER.fullmatch(kind):
        addresses = [name for name in inputs if re.match(r"ADDR|DPRA|A\d?$", name)]
        for i in addresses:
            reached = [o for o in outputs if _address_reaches(i, o)]
            yield from ((a, b, 1) for a in pins[i] for o in reached for b in pins[o])
    elif not (FLIP_FLOP.fullmatch(kind) or BLOCK_RAM.fullmatch(kind)):
        raise PathError(f"levels.py does not know the cell {kind}: add it to its table")


def _clocks(cell: dict[str, Any]) -> list[Bit]:
    """The clocks of a cell that holds state."""
    names = ("C", "G", "CLK", "WCLK", "CLKARDCLK", "CLKBWRCLK")
    return [cell["connections"][name][0] for name in names if cell["connections"].get(name)]


def _begins_after(cell: dict[str, Any]) -> int | None:
    """The levels that count where a path begins in this cell; None if it holds no state."""
    kind = cell["type"]
    if FLIP_FLOP.fullmatch(kind):
        return 0
    if LUT_RAM.fullmatch(kind) or SHIFT_REGISTER.fullmatch(kind):
        return 1
    if BLOCK_RAM.fullmatch(kind):
        registered = any(int(cell["parameters"].get(name, "0"), 2) for name in ("DOA_REG", "DOB_REG"))
        return 1 if registered else 2
    return None


def _place(name: str, cell: dict[str, Any]) -> str:
    """Where a cell without a name of its own is written: its source and line."""
    found = re.match(r"src/(?:\w+/)*(\w+\.sv:\d+)", cell.get("attributes", {}).get("src", ""))
    return found[1] if found and name.startswith("$") else name


class Netlist:
    """One flat module of yosys's JSON."""

    def __init__(self, module: dict[str, Any]) -> None:
        self.cells = module["cells"]
        self.ports = module["ports"]
        self.names: dict[Bit, str] = {}
        for name, net in module["netnames"].items():
            if net.get("hide_name"):
                continue
            for i, bit in enumerate(net["bits"]):
                full = f"{name}[{i}]" if len(net["bits"]) > 1 else name
                if _is_wire(bit) and (bit not in self.names or len(full) < len(self.names[bit])):
                    self.names[bit] = full
        self.fan_out: dict[Bit, list[tuple[Bit, int]]] = {}
        self.fan_in: dict[Bit, int] = {}
        for cell in self.cells.values():
            for a, b, levels in _arcs(cell):
                if _is_wire(a) and _is_wire(b):
                    self.fan_out.setdefault(a, []).append((b, levels))
                    self.fan_in[b] = self.fan_in.get(b, 0) + 1
        self.order = self._ordered()

    def _ordered(self) -> list[Bit]:
        """Bits that drive logic or are driven by it, each after those that it depends on."""
        left = dict(self.fan_in)
        ready = [bit for bit in self.fan_out if bit not in left]
        order: list[Bit] = []
        while ready:
            bit = ready.pop()
            order.append(bit)
            for to, _ in self.fan_out.get(bit, ()):
                left[to] -= 1
                if left[to] == 0:
                    ready.append(to)
        looped = [bit for bit, count in left.items() if count > 0]
        if looped:
            raise PathError(f"a combinational loop runs through {self.names.get(looped[0], looped[0])}: break it")
        return order

    def _state(self) -> Iterator[tuple[str, dict[str, Any], int]]:
        for name, cell in self.cells.items():
            levels = _begins_after(cell)
            if levels is not None:
                yield _place(name, cell), cell, levels

    def _starts(self) -> dict[Bit, dict[Bit, tuple[int, str]]]:
        """By clock (or PORT): the bits where paths begin, with their levels and names."""
        starts: dict[Bit, dict[Bit, tuple[int, str]]] = {}
        for name, cell, levels in self._state():
            outputs = [pin for pin, way in cell["port_directions"].items() if way == "output"]
            for bit in (bit for pin in outputs for bit in cell["connections"].get(pin, [])):
                shown = self.names.get(bit, name) if levels == 0 else name
                for clock in _clocks(cell):
                    starts.setdefault(clock, {})[bit] = (levels, shown)
        for name, port in self.ports.items():
            if port["direction"] == "input":
                starts.setdefault(PORT, {}).update(dict.fromkeys(port["bits"], (0, f"port {name}")))
        return starts

    def _ends(self) -> dict[Bit, dict[Bit, str]]:
        """By clock (or PORT): the bits where paths end, with the names of their ends."""
        ends: dict[Bit, dict[Bit, str]] = {}
        for name, cell, levels in self._state():
            pins, ways = cell["connections"], cell["port_directions"]
            clocks = _clocks(cell)
            shown = next((self.names[bit] for bit in pins.get("Q", []) if bit in self.names and levels == 0), name)
            for pin in (pin for pin, way in ways.items() if way == "input" and pin in pins):
                for bit in (bit for bit in pins[pin] if bit not in clocks):
                    for clock in clocks:
                        ends.setdefault(clock, {})[bit] = shown
        for name, port in self.ports.items():
            if port["direction"] == "output":
                ends.setdefault(PORT, {}).update(dict.fromkeys(port["bits"], f"port {name}"))
        return ends

    def longest(self, through_ports: bool) -> LongestPath:
        """The longest path between registers with one clock; with `through_ports`, the longest path of all that begin
        or end at a port. A netlist without such paths has one of 0 levels, between "" and ""."""
        best = LongestPath(0, "", "")
        ends = self._ends()
        for clock, starts in self._starts().items():
            reached: dict[Bit, tuple[int, str]] = {bit: at for bit, at in starts.items() if _is_wire(bit)}
            for bit in self.order:
                here = reached.get(bit)
                if here is None:
                    continue
                for to, levels in self.fan_out.get(bit, ()):
                    if to not in reached or reached[to][0] < here[0] + levels:
                        reached[to] = (here[0] + levels, here[1])
            for end_clock, bits in ends.items():
                is_port = PORT in (clock, end_clock)
                if is_port != through_ports or (not is_port and clock != end_clock):
                    continue
                for bit, end in bits.items():
                    if bit in reached and (not best.start or reached[bit][0] > best.levels):
                        best = LongestPath(reached[bit][0], reached[bit][1], end)
        return best
