"""Topologies of other programs: `topology.txt` of HPCC / ns-3, GraphML, and NCCL's XML of a server.

Each function raises ValueError that names the file, the line or element, and the correct form.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from netfold_lab.plan.cluster import fabric
from netfold_lab.plan.cluster.graph import Graph
from netfold_lab.plan.cluster.server import Complex, Layout, NvLink
from netfold_lab.plan.library.machine import AMD, INTEL

SI = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
TIMES = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
GIGATRANSFERS_CODED = 8.0  # from here on 130 bits carry 128; below, 10 carry 8


def rate_bit_s(text: str) -> float:
    """`100Gbps` in bits per second."""
    found = re.fullmatch(r"([\d.eE+-]+)\s*([KMGT]?)(?:bps|bit/s|b/s)", text)
    if not found:
        raise ValueError(f"{text!r} is not a rate such as 100Gbps")
    return float(found[1]) * SI[found[2]]


def time_s(text: str) -> float:
    """`1us` in seconds."""
    found = re.fullmatch(r"([\d.eE+-]+)\s*(s|ms|us|ns)", text)
    if not found:
        raise ValueError(f"{text!r} is not a time such as 1us")
    return float(found[1]) * TIMES[found[2]]


def read_graph(path: Path) -> Graph:
    """Read a file by its suffix: .graphml, else HPCC's topology.txt."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not text in UTF-8") from None
    return graphml(path) if path.suffix.lower() == ".graphml" else hpcc(text, str(path))


def hpcc(text: str, name: str) -> Graph:
    """Read a file with the numbers of nodes, switches and links, the switches' numbers, and a line for each link: from,
    to, rate, delay, error rate."""
    lines = [(number, line.split()) for number, line in enumerate(text.splitlines(), 1) if line.strip()]

    def wrong(number: int, what: str) -> ValueError:
        return ValueError(f"{name}, line {number}: {what}")

    try:
        nodes, switch_count, link_count = map(int, lines[0][1])
    except (IndexError, ValueError):
        raise wrong(1, "write the numbers of nodes, switches and links") from None
    switches: list[int] = []
    at = 1
    while len(switches) < switch_count and at < len(lines):
        number, words = lines[at]
        try:
            switches += map(int, words)
        except ValueError:
            raise wrong(number, f"write the numbers of {switch_count} switches") from None
        at += 1
    if len(switches) != switch_count or not all(0 <= each < nodes for each in switches):
        raise wrong(lines[at - 1][0], f"{switch_count} switches have numbers from 0 to {nodes - 1}")
    if len(lines) - at != link_count:
        raise wrong(lines[-1][0], f"{len(lines) - at} links are listed, the first line says {link_count}")
    cables = []
    for number, words in lines[at:]:
        try:
            one, other, rate, delay = int(words[0]), int(words[1]), rate_bit_s(words[2]), time_s(words[3])
        except (IndexError, ValueError) as error:
            raise wrong(number, f"a link is `from to 100Gbps 1us 0`: {error}") from None
        if not (0 <= one < nodes and 0 <= other < nodes):
            raise wrong(number, f"nodes have numbers from 0 to {nodes - 1}")
        cables.append((str(one), str(other), rate, delay))
    hosts = [str(each) for each in range(nodes) if each not in set(switches)]
    try:
        return fabric.listed(hosts, [str(each) for each in switches], cables)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def graphml(path: Path) -> Graph:
    """Nodes have an attribute `kind` (host or switch; by default nodes with one link are hosts). Edges have
    `rate_gbit_s` or `rate_bit_s`, and may have `latency_us` or `latency_s`."""
    import networkx as nx

    try:
        read = nx.read_graphml(path)
    except (ElementTree.ParseError, nx.NetworkXError, KeyError) as error:
        raise ValueError(f"{path} is not valid GraphML: {error}") from None

    def is_host(node: Any) -> bool:
        kind = str(read.nodes[node].get("kind", "")).lower()
        return kind == "host" or (not kind and len(set(nx.all_neighbors(read, node))) == 1)

    def rate(edge: dict[str, Any], ends: tuple[Any, Any]) -> float:
        for key, factor in (("rate_gbit_s", 1e9), ("rate_bit_s", 1.0)):
            if key in edge:
                return float(edge[key]) * factor
        raise ValueError(f"{path}: the edge from {ends[0]} to {ends[1]} has no rate_gbit_s")

    cables: dict[frozenset[str], tuple[str, str, float, float]] = {}
    for one, other, edge in read.edges(data=True):
        latency = float(edge.get("latency_us", float(edge.get("latency_s", 0)) * 1e6)) / 1e6
        cables.setdefault(frozenset((str(one), str(other))), (str(one), str(other), rate(edge, (one, other)), latency))
    names = sorted(map(str, read.nodes))
    hosts = [each for each in names if is_host(each)]
    try:
        return fabric.listed(hosts, [each for each in names if each not in set(hosts)], list(cables.values()))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def nccl(path: Path, upi_bit_s: float, between_gpus: str) -> Layout:
    """Read the XML that NCCL writes with NCCL_TOPO_DUMP_FILE. Devices nested deeper than a root port's switch count as
    behind it."""
    try:
        system = ElementTree.parse(path).getroot()
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    except ElementTree.ParseError as error:
        raise ValueError(f"{path} is not valid XML: {error}") from None
    if system.tag != "system":
        raise ValueError(f"{path} begins with <{system.tag}>; NCCL writes <system>")
    complexes: list[Complex] = []
    for socket, cpu in enumerate(system.findall("cpu")):
        for top in cpu.findall("pci"):
            gpus = [_pcie_bit_s(each, path) for each in top.iter("pci") if each.find("gpu") is not None]
            nics = [
                min(_pcie_bit_s(each, path), float(net.get("speed", "0")) * 1e6 or float("inf"))
                for each in top.iter("pci")
                for net in each.findall("nic/net")
            ]
            if gpus or nics:
                complexes.append(Complex(socket, _pcie_bit_s(top, path), tuple(gpus), tuple(nics)))
    if not any(each.gpus_bit_s for each in complexes):
        raise ValueError(f"{path} has no <gpu> behind any <cpu>")
    vendors = {cpu.get("vendor") for cpu in system.findall("cpu")}
    processor = AMD if "AuthenticAMD" in vendors else INTEL
    return Layout(tuple(complexes), upi_bit_s, between_gpus, _nvlink(system), processor=processor)


def _nvlink(system: ElementTree.Element) -> NvLink | None:
    """A link of NVLink 5 carries 400 Gbit/s each way, older ones 200. NVSwitch has the PCI class 0x068000."""
    links = [[(int(link.get("count", "1")), link) for link in gpu.iter("nvlink")] for gpu in system.iter("gpu")]
    most = max(links, key=lambda each: sum(count for count, _ in each), default=[])
    if not most:
        return None
    capability = max((int(gpu.get("sm", "0")) for gpu in system.iter("gpu")), default=0)
    generation = next((each for least, each in ((100, 5), (90, 4), (80, 3)) if capability >= least), 2)
    is_switched = any(link.get("tclass", "").startswith("0x0680") for _, link in most)
    rate = sum(count for count, _ in most) * (400e9 if generation > 4 else 200e9)
    return NvLink(rate, generation, is_switched, is_switched and generation >= 4)


def _pcie_bit_s(pci: ElementTree.Element, path: Path) -> float:
    speed = re.match(r"([\d.]+)\s*GT/s", pci.get("link_speed", ""))
    try:
        width = int(pci.get("link_width", ""))
    except ValueError:
        width = 0
    if not speed or width < 1:
        raise ValueError(
            f"{path}: pci {pci.get('busid')} has link_speed={pci.get('link_speed')!r} and link_width="
            f'{pci.get("link_width")!r}; write values such as "16.0 GT/s PCIe" and "16"'
        )
    transfers = float(speed[1])
    return transfers * 1e9 * width * (128 / 130 if transfers >= GIGATRANSFERS_CODED else 8 / 10)
