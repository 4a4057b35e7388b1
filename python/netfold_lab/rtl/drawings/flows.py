"""Data flows between the instances of a module. They are read from the elaborated design, so that the picture is always
correct. A wire is followed back from an instance's input, through multiplexers, gates and registers, to the instance or
port that drives it. Selects and comparisons do not count as flows."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any

# Cells whose bit i depends on bit i of these inputs.
ALIGNED = {
    **dict.fromkeys(("$mux", "$pmux", "$and", "$or", "$xor"), ("A", "B")),
    **dict.fromkeys(("$not", "$buf", "$pos"), ("A",)),
    **dict.fromkeys(("$dff", "$dffe", "$adff", "$adffe", "$sdff", "$sdffe", "$sdffce", "$aldff"), ("D",)),
}
# Suffixes of the ports of one stream.
ENDINGS = ("_tdata", "_tkeep", "_address", "_bytes", "_wdata", "_rdata")


@dataclass(frozen=True)
class Node:
    """An instance of module `kind`, or a port of the module itself: `kind` is its direction."""

    name: str
    kind: str


@dataclass(frozen=True)
class Flow:
    """A flow of a number of bits."""

    source: Node
    target: Node
    bits: int


def _stream(port: str) -> str:
    name = port.removesuffix("_i").removesuffix("_o")
    ending = next((ending for ending in ENDINGS if name.endswith(ending)), "")
    return name.removesuffix(ending).removeprefix("s_").removeprefix("m_").replace("_", " ")


def _instance(name: str, kind: str) -> Node:
    return Node(name.rpartition(".")[2].removeprefix("u_"), kind.partition("$")[0])


def _port(name: str, direction: str) -> Node:
    return Node(_stream(name), direction)


def _sources(module: dict[str, Any], modules: dict[str, Any]) -> dict[int, list[int] | Node]:
    """The source of each bit: other bits, or a node."""
    found: dict[int, list[int] | Node] = {}
    for name, port in module["ports"].items():
        if port["direction"] == "input":
            found |= dict.fromkeys(port["bits"], _port(name, "input"))
    for name, cell in module["cells"].items():
        kind, wires = cell["type"], cell["connections"]
        if kind in modules:
            for port, bits in wires.items():
                if cell["port_directions"][port] == "output":
                    found |= dict.fromkeys(bits, _instance(name, kind))
        elif kind in ALIGNED:
            out = wires["Q" if "Q" in wires else "Y"]
            for index, bit in enumerate(out):
                found[bit] = [b for port in ALIGNED[kind] for b in wires[port][index :: len(out)] if isinstance(b, int)]
    return found


def flows(module: dict[str, Any], modules: dict[str, Any], bits_min: int) -> list[Flow]:
    """Flows with at least this number of bits, in the order of their names."""
    sources = _sources(module, modules)
    kept: dict[int, frozenset[Node]] = {}

    def origins(bit: int) -> frozenset[Node]:
        if bit not in kept:
            kept[bit] = frozenset()  # a loop adds nothing
            source = sources.get(bit, [])
            kept[bit] = frozenset({source}) if isinstance(source, Node) else frozenset().union(*map(origins, source))
        return kept[bit]

    widest: dict[tuple[Node, Node], int] = defaultdict(int)

    def enters(target: Node, bits: list[Any]) -> None:
        count = Counter(node for bit in bits if isinstance(bit, int) for node in origins(bit))
        for node, width in count.items():
            if width >= bits_min and node != target:
                widest[node, target] = max(widest[node, target], width)

    for name, cell in module["cells"].items():
        if cell["type"] in modules:
            for port, bits in cell["connections"].items():
                if cell["port_directions"][port] == "input":
                    enters(_instance(name, cell["type"]), bits)
    for name, port in module["ports"].items():
        if port["direction"] == "output":
            enters(_port(name, "output"), port["bits"])
    order = sorted(widest.items(), key=lambda item: (item[0][0].name, item[0][1].name))
    return [Flow(source, target, width) for (source, target), width in order]
