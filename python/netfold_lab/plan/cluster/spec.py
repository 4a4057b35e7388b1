"""Reads and checks a cluster file, the input of the planner.

A topology file (NETFOLD_TOPOLOGY, netfold/topology/file.py) is a cluster file too: a BiGraph with its hosts. A cluster
file with `upper:` and `lower:` is also a topology file. Every error names the file, the line and the value.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from netfold.topology.file import HALVES, Topology, topology_of
from netfold_lab.errors import UsageError
from netfold_lab.plan.cluster import fabric, importers, servers
from netfold_lab.plan.cluster import folding as folds
from netfold_lab.plan.cluster.devices import DEVICES, Device
from netfold_lab.plan.cluster.folding import Folding
from netfold_lab.plan.cluster.graph import Graph
from netfold_lab.plan.cluster.server import Layout, with_servers
from netfold_lab.plan.cluster.text import Text
from netfold_lab.plan.library import curve
from netfold_lab.plan.library.curve import Curve

GIGA = 1e9
RATE_GBIT_S = 100.0
HOST_BYTES_S = 200e9  # of a server's memory: two sockets with eight channels of DDR4 or DDR5 each, in use
LATENCY_US = 0.6  # of a cable and the switch or NIC at its end
HEADERS = 94  # bytes of a frame without its payload: preamble, gap, checksum, Ethernet, IPv4, TCP with timestamps
LATENCY_OF_STEP_US = 10.0
CABLES_MAX = 2_000_000  # they fit in a few gigabytes
SIZES = {
    "star": ("ports",),
    "bigraph": ("sub_nodes", "switches"),
    "fat-tree": ("sub_nodes", "switches"),
    "leaf-spine": ("leaves", "spines", "ports_per_leaf"),
    "torus2d": ("rows", "columns"),
    "dragonfly": ("groups", "routers"),
}
MORE_SIZES = {"torus2d": ("ports_per_switch",), "dragonfly": ("ports_per_switch",)}
EVERY_FABRIC = ("kind", "rate_gbit_s", "latency_us", "folding", "virtual_switches")
MORE_OPTIONS = {"star": (), "graph": ("spread", "hosts", "switches", "links", "file")}
SEVERAL_PATHS = ("uplink_gbit_s", "spread")
GRAPH_FROM_FILE = ("kind", "file", "folding", "spread")


@dataclass(frozen=True)
class Software:
    """Software costs of a step: seconds per transfer; bytes of a bucket; bytes of a packet and of its headers. Bytes of
    fp32 per second that a worker encodes, decodes, and copies between device and host memory; 0: not charged.
    `calibrated_off`: the calibration's largest relative error, if the file names one."""

    step_latency_s: float = LATENCY_OF_STEP_US * 1e-6
    bucket_bytes: int = 25 << 20
    mtu: int = 4200
    header_bytes: int = HEADERS
    wire: str = "fp32"
    start: str = "runtime"
    encode_bytes_s: float = 0.0
    decode_bytes_s: float = 0.0
    stage_bytes_s: float = 0.0
    calibrated_off: float | None = None

    def element_bits(self, wire: str) -> float:
        """Bits of an element on the wire, with headers."""
        bits = {"fp32": 32.0, "fp16": 16.0, "bf16": 16.0, "bfp": 8.5}[wire]
        return bits * (1 + self.header_bytes / self.mtu)


@dataclass(frozen=True)
class Cluster:
    """`kind` and `sizes` of the fabric (or `graph_read`), servers (None: workers are at the ports), device, software,
    prices. `hosts`: the names of the ports, if the file has them. `ranks`: the port or GPU of each rank. `told`: the
    values that the file states, such as "fabric.rate_gbit_s"; all others are assumed. `virtual_switches`: switches of
    the fabric in one box. `host_bytes_s`: of a server's memory. `measured`: times of all-reduces on it, if the user
    has them."""

    name: str
    kind: str
    sizes: dict[str, int]
    rate_bit_s: float
    latency_s: float
    uplink_bit_s: float = 0.0
    spread: str = ""
    graph_read: Graph | None = None
    folding: Folding | None = None
    layout: Layout | None = None
    device: Device = DEVICES["v100"]
    software: Software = Software()
    prices: dict[str, float] = field(default_factory=dict)
    currency: str = "USD"
    hosts: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    told: frozenset[str] = frozenset()
    virtual_switches: int = 1
    measured: Curve | None = None
    host_bytes_s: float = HOST_BYTES_S

    def graph(self) -> Graph:
        """The graph of the whole cluster. Raises UsageError for an invalid cluster."""
        try:
            made = self._fabric()
            if self.layout is not None:
                made = with_servers(made, self.layout)
            if apart := made.unreachable():
                raise UsageError(f"{self.name}: there is no path from {apart[0]} to {apart[1]}; add a link")
        except ValueError as error:
            raise UsageError(f"{self.name}: {error}" if not isinstance(error, UsageError) else str(error)) from None
        made.fold_at(made.hosts, self.device.fold_bytes_s * 8)
        return made

    def _fabric(self) -> Graph:
        if self.graph_read is not None:
            made = Graph(list(self.graph_read.nodes), list(self.graph_read.resources), list(self.graph_read.links))
        else:
            made = fabric.build(self.kind, self.sizes, self.rate_bit_s, self.latency_s, self.uplink_bit_s)
        made.spread = self.spread or made.spread
        if self.folding:
            wire = self.software.wire
            rate = self.folding.bit_s(wire, self.software.element_bits(wire))
            made.fold_at(self._folding_nodes(made, self.folding), rate)
        return made

    def _folding_nodes(self, made: Graph, folding: Folding) -> list[int]:
        leaves, spines = fabric.layers(made)
        if folding.is_attached:
            rate = self.rate_bit_s or max(each.capacity_bit_s for each in made.resources)
            return folds.attach(made, leaves, folding, rate, self.latency_s)
        if folding.at == "all":
            return leaves + spines
        if isinstance(folding.at, str):
            return {"leaves": leaves, "spines": spines or leaves}[folding.at]
        by_name = {made.nodes[at].name: at for at in leaves + spines}
        if strange := [name for name in folding.at if name not in by_name]:
            raise UsageError(
                f"{self.name}: there is no switch {strange[0]} to fold; switches: {', '.join(sorted(by_name)[:8])}"
            )
        return [by_name[name] for name in folding.at]

    @property
    def shape(self) -> tuple[int, int] | None:
        """Sub-nodes x switches, for a BiGraph."""
        return (self.sizes["sub_nodes"], self.sizes["switches"]) if self.kind == "bigraph" else None


def with_measured(cluster: Cluster, path: Path) -> Cluster:
    """The cluster with a curve that was measured on it. Raises UsageError."""
    return replace(cluster, measured=curve.read(path, len(cluster.graph().hosts)))


def read(path: Path) -> Cluster:
    """Read a cluster file, or a topology of another program (.txt of HPCC, .graphml). Raises UsageError."""
    if path.suffix.lower() in (".txt", ".graphml"):
        try:
            graph = importers.read_graph(path)
        except ValueError as error:
            raise UsageError(str(error)) from None
        return _checked(Cluster(path.stem, "graph", {}, 0.0, 0.0, graph_read=graph))
    return from_text(Text(path))


def from_text(text: Text) -> Cluster:
    """Read the text of a cluster file. Raises UsageError."""
    if not isinstance(text.content, dict):
        raise text.error((), "write the cluster as fabric:, servers:, compute:; see docs/reference/cluster-file.md")
    text.check("cluster.schema.json")
    return _checked(_cluster(text))


def _checked(cluster: Cluster) -> Cluster:
    cluster.graph()
    return cluster


def _cluster(text: Text) -> Cluster:
    content = text.content
    told = content.get("fabric", {})
    hosts: tuple[str, ...] = ()
    sizes: dict[str, int] = {}
    kind = told.get("kind")
    if "upper" in content or "lower" in content:
        named = _halves(text)
        kind, hosts = kind or "bigraph", named.hosts
        sizes = dict(zip(("sub_nodes", "switches"), named.shape, strict=True))
        if kind != "bigraph" or any(told.get(key, size) != size for key, size in sizes.items()):
            raise text.error(("fabric",), f"upper and lower describe a BiGraph of {' x '.join(map(str, named.shape))}")
    if kind is None:
        raise text.error(("fabric",), f"kind is missing; write one of {', '.join((*fabric.KINDS, 'graph'))}")
    _check_options(text, kind, told, is_by_halves=bool(hosts))
    rate, latency = told.get("rate_gbit_s", RATE_GBIT_S) * GIGA, told.get("latency_us", LATENCY_US) * 1e-6
    graph = None
    if kind == "graph":
        graph = _listed(text, told, rate, latency)
    elif not sizes:
        sizes = _sizes(text, kind, told)
    software, prices = content.get("software", {}), _prices(text, content.get("prices", {}))
    cluster = Cluster(
        name=content.get("name", text.path.stem),
        kind=kind,
        sizes=sizes,
        rate_bit_s=rate,
        latency_s=latency,
        uplink_bit_s=told.get("uplink_gbit_s", 0.0) * GIGA,
        spread=told.get("spread", ""),
        graph_read=graph,
        folding=folds.read(text, told["folding"]) if "folding" in told else None,
        layout=servers.read(text, content["servers"]) if "servers" in content else None,
        device=_device(text, content.get("compute", {})),
        host_bytes_s=content.get("compute", {}).get("host_gbyte_s", HOST_BYTES_S / GIGA) * GIGA,
        software=_software(text, software),
        currency=prices.pop("currency", "USD"),
        prices=prices,
        hosts=hosts,
        virtual_switches=told.get("virtual_switches", 1),
        ranks=tuple(content.get("ranks", ())),
        told=frozenset(
            f"{part}.{name}" for part, values in content.items() if isinstance(values, dict) for name in values
        ),
    )
    try:
        workers = len(cluster.graph().hosts)
    except UsageError as error:
        raise text.error(("fabric",), str(error).removeprefix(f"{cluster.name}: ")) from None
    _check_ranks(text, cluster.ranks, workers)
    return cluster


def _prices(text: Text, told: Any) -> dict[str, Any]:
    if isinstance(told, str):
        file = Text(text.path.parent / told)
        file.check("prices.schema.json")
        told = file.content
    return dict(told)


def _halves(text: Text) -> Topology:
    try:
        topology = topology_of({half: text.content[half] for half in HALVES if half in text.content})
        _ = topology.shape  # the planner has BiGraphs with as many hosts at each switch
        return topology
    except ValueError as error:
        raise text.error((HALVES[0],), str(error)) from None


def _check_options(text: Text, kind: str, told: dict[str, Any], is_by_halves: bool) -> None:
    """Options that this fabric does not have, or that its file already answers, are errors."""
    sizes = (*SIZES.get(kind, ()), *MORE_SIZES.get(kind, ()))
    known: tuple[str, ...] = (*sizes, *EVERY_FABRIC, *MORE_OPTIONS.get(kind, SEVERAL_PATHS))
    whose = f"a {kind} takes"
    if kind == "graph" and "file" in told:
        known, whose = GRAPH_FROM_FILE, f"{told['file']} describes the network; beside a file, write only"
    elif is_by_halves:
        whose = "beside upper and lower, write only"
    if strange := [name for name in told if name not in known]:
        raise text.error(("fabric", strange[0]), f"{whose} {', '.join(known)}")


def _sizes(text: Text, kind: str, told: dict[str, Any]) -> dict[str, int]:
    if missing := [name for name in SIZES[kind] if name not in told]:
        raise text.error(("fabric",), f"a {kind} needs {', '.join(missing)}")
    known = (*SIZES[kind], *MORE_SIZES.get(kind, ()))
    for name in known:
        if name in told and not isinstance(told[name], int):
            raise text.error(("fabric", name), f"must be a number, not {told[name]!r}")
    sizes = {name: told[name] for name in known if name in told}
    if (count := fabric.cables(kind, sizes)) > CABLES_MAX:
        raise text.error(("fabric",), f"has {count:,} cables; the planner supports at most {CABLES_MAX:,}")
    return sizes


def _listed(text: Text, told: dict[str, Any], rate: float, latency: float) -> Graph:
    try:
        if "file" in told:
            return importers.read_graph(text.path.parent / told["file"])
        if "hosts" not in told or "links" not in told:
            raise text.error(("fabric",), "a graph needs hosts and links, or a file")
        switches = told.get("switches", [])
        if not isinstance(switches, list):
            raise text.error(("fabric", "switches"), "must be a list of names in a graph")
        cables = [
            (
                each["from"],
                each["to"],
                each["rate_gbit_s"] * GIGA if "rate_gbit_s" in each else rate,
                each["latency_us"] * 1e-6 if "latency_us" in each else latency,
            )
            for each in told["links"]
        ]
        return fabric.listed(told["hosts"], switches, cables)
    except UsageError:
        raise
    except ValueError as error:
        raise text.error(("fabric", "file" if "file" in told else "links"), str(error)) from None


def _device(text: Text, told: dict[str, Any]) -> Device:
    name = told.get("device", "v100")
    if name not in DEVICES:
        raise text.error(("compute", "device"), f"must be one of {', '.join(DEVICES)}, not {name}; or write tflop_s")
    device = DEVICES[name]
    if "memory_gbyte_s" in told and "tflop_s" not in told:
        what = "is counted beside matrix products, whose rate no device here has; write tflop_s, too"
        raise text.error(("compute", "memory_gbyte_s"), what)
    is_another = "tflop_s" in told and "device" not in told
    memory_bytes = 0.0 if is_another else device.memory_bytes
    return Device(
        told.get("tflop_s", device.flop_s / 1e12) * 1e12,
        told.get("update_gbyte_s", device.update_bytes_s / GIGA) * GIGA,
        told.get("fold_gbyte_s", device.fold_bytes_s / GIGA) * GIGA,
        told.get("memory_gb", memory_bytes / GIGA) * GIGA,
        told.get("memory_gbyte_s", 0.0) * GIGA,
        0.0 if "tflop_s" in told else device.text_flop_s,
    )


def _software(text: Text, told: dict[str, Any]) -> Software:
    latency_us, off = told.get("step_latency_us", LATENCY_OF_STEP_US), None
    if "calibration" in told:
        if "step_latency_us" in told:
            what = "the calibration already has it; leave one of them out"
            raise text.error(("software", "step_latency_us"), what)
        path = text.path.parent / told["calibration"]
        try:
            calibrated = json.loads(path.read_text())
            latency_us = float(calibrated["step_latency_us"])
            off = max(float(each) for each in calibrated["off_max"].values())
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            raise text.error(("software", "calibration"), f"{path} is not a file of `netfold plan calibrate`") from None
    return Software(
        step_latency_s=latency_us * 1e-6,
        bucket_bytes=int(told.get("bucket_mib", 25) * (1 << 20)),
        mtu=told.get("mtu", 4200),
        header_bytes=told.get("header_bytes", HEADERS),
        wire=told.get("format", "fp32"),
        start=told.get("start", "runtime"),
        encode_bytes_s=told.get("encode_gbyte_s", 0.0) * GIGA,
        decode_bytes_s=told.get("decode_gbyte_s", 0.0) * GIGA,
        stage_bytes_s=told.get("stage_gbyte_s", 0.0) * GIGA,
        calibrated_off=off,
    )


def _check_ranks(text: Text, ranks: tuple[int, ...], workers: int) -> None:
    seen: dict[int, int] = {}
    for rank, at in enumerate(ranks):
        if at >= workers:
            raise text.error(("ranks", rank), f"there is no worker {at}; workers are 0 to {workers - 1}")
        if at in seen:
            raise text.error(("ranks", rank), f"worker {at} is given to rank {seen[at]} and to rank {rank}")
        seen[at] = rank
    if ranks and len(ranks) != workers:
        raise text.error(("ranks",), f"{len(ranks)} ranks for {workers} workers: name each worker once")
