"""Networks from a short text such as `bigraph:4x16`, or from a cluster file."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from netfold_lab.errors import UsageError
from netfold_lab.plan.cluster import limits

DEFAULTS = {"rate_gbit_s": 100.0, "latency_us": 0.5, "fold_gbit_s": 0.0}
HASH, DESTINATION = "hash", "destination"
NAMED = {  # name: (sizes, function of the simulator's Topology)
    "star": (("hosts",), "star"),
    "bigraph": (("sub_nodes", "switches"), "bigraph"),
    "fat-tree": (("sub_nodes", "switches"), "fat_tree"),
    "leaf-spine": (("leaves", "spines", "hosts_per_leaf"), "leaf_spine"),
    "torus": (("rows", "columns", "hosts_per_switch"), "torus"),
    "dragonfly": (("groups", "routers", "hosts_per_router"), "dragonfly"),
}


@dataclass
class Network:
    """`topology` is the simulator's; `spread` is the choice among equally short routes; `options` are hdrm's."""

    name: str
    topology: Any
    spread: str = HASH
    options: dict[str, int] = field(default_factory=dict)
    hosts: list[int] = field(default_factory=list)
    step_latency_s: float | None = None  # if the file sets it

    @property
    def world(self) -> int:
        """The number of workers."""
        return len(self.topology.hosts)


def named(text: str, rate_bit_s: float, latency_s: float = 0.0, fold_bit_s: float = 0.0) -> Network:
    """A network by its name and sizes. `fold_bit_s`: operand bits per second at every switch; 0: no switch folds.

    Raises UsageError that lists the names, or ValueError for invalid sizes.
    """
    from netfold import _core

    word, _, shape = text.partition(":")
    if word not in NAMED:
        words = ", ".join(f"{name}:{'x'.join(sizes).upper()}" for name, (sizes, _) in NAMED.items())
        raise UsageError(f"'{text}' is neither a file nor a network by name: {words}")
    sizes, maker = NAMED[word]
    numbers = shape.split("x")
    if len(numbers) != len(sizes) or not all(number.isdigit() for number in numbers):
        raise UsageError(f"write {word}:{'x'.join(sizes).upper()}, each a number, not '{text}'")
    values = [int(number) for number in numbers]
    topology = getattr(_core.Topology, maker)(*values, rate_bit_s=rate_bit_s, latency_s=latency_s)
    if fold_bit_s:
        for node, (kind, _) in enumerate(topology.nodes):
            if kind == "switch":
                topology.set_fold_rate(node, fold_bit_s)
    options = dict(zip(sizes, values, strict=True)) if word in ("bigraph", "fat-tree") else {}
    return Network(text, topology, DESTINATION if word == "bigraph" else HASH, options)


def read(path: Path) -> Network:
    """The network of a cluster file (netfold_lab/plan/cluster). Raises UsageError that names file and line."""
    from netfold_lab.plan.cluster import spec

    cluster = spec.read(path)
    graph = cluster.graph()
    options = {"sub_nodes": cluster.shape[0], "switches": cluster.shape[1]} if cluster.shape else {}
    latency_s = cluster.software.step_latency_s
    return Network(str(path), graph.topology(), graph.spread, options, list(cluster.ranks), latency_s)


def find(text: str, cables: dict[str, float | None], fold_gbit_s: float | None) -> Network:
    """A network by name, or from a file of that name. `cables`: rate_gbit_s and latency_us of every cable, None: the
    default. Raises UsageError for a value that no cable has, and for any value beside a file, which has its own."""
    given = {name: value for name, value in (cables | {"fold_gbit_s": fold_gbit_s}).items() if value is not None}
    path = Path(text)
    if path.is_file():
        if given:
            option = next(iter(given)).replace("_", "-")
            raise UsageError(f"leave out --{option}: {text} has its own rates and latencies")
        return read(path)
    for name, value in given.items():
        if fault := limits.fault(name, value):
            raise UsageError(f"--{name.replace('_', '-')}: {fault}")
    told = DEFAULTS | given
    return named(text, told["rate_gbit_s"] * 1e9, told["latency_us"] * 1e-6, told["fold_gbit_s"] * 1e9)
