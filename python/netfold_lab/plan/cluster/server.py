"""The inside of a server (Figures 1 and 5 of EFLOPS): GPUs and NICs behind PCIe switches, each PCIe switch behind a
root port of a socket, and sockets connected by UPI.

```
  GPU -- port --+-- PCIe switch -- root port -- socket -- UPI -- socket ...
         |      |
        NIC ----+            a GPU and its NIC communicate within their PCIe switch
```
A setting chooses the path between GPUs of one server: `nic` (each through its own NIC, as in EFLOPS), `pcie` (through a
shared PCIe switch, else through the NICs), `upi` (never through a NIC). It sets costs: links to avoid have a high cost,
so routes use them only if there is no other path. NVLink is taken before all of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from netfold_lab.plan.cluster.graph import HOST, OTHER, Graph
from netfold_lab.plan.library.machine import INTEL

NEAR, DEAR = 0.1, 50.0  # costs; a link of the fabric costs 1
GPU_LINK, NIC_LINK, ROOT_PORT, UPI, NVLINK = "GPU's PCIe link", "NIC's PCIe link", "PCIe root port", "UPI", "NVLink"


@dataclass(frozen=True)
class Complex:
    """A PCIe switch and the devices behind it: rates of the links of GPUs and NICs, and of its root port, in bit/s."""

    socket: int
    root_port_bit_s: float
    gpus_bit_s: tuple[float, ...]
    nics_bit_s: tuple[float, ...] = ()


@dataclass(frozen=True)
class NvLink:
    """`rate_bit_s`: all links of a GPU together, in one direction. `is_switched`: through NVSwitch, which sums if
    `sums` (NVLink SHARP); else the links of a GPU go to all others in equal parts. `generation`: 2 (V100) to 5
    (B200)."""

    rate_bit_s: float
    generation: int
    is_switched: bool = True
    sums: bool = False


@dataclass(frozen=True)
class Layout:
    """One kind of server. `nvlink`: None without NVLink. `rails`: NIC i of every server is on rail i modulo their
    number. `processor`: its maker."""

    complexes: tuple[Complex, ...]
    upi_bit_s: float
    between_gpus: str = "nic"
    nvlink: NvLink | None = None
    names: tuple[str, ...] = field(default=())
    rails: int = 1
    processor: str = INTEL

    @property
    def gpus(self) -> int:
        """The number in one server."""
        return sum(len(each.gpus_bit_s) for each in self.complexes)

    @property
    def nics(self) -> int:
        """The number in one server."""
        return sum(len(each.nics_bit_s) for each in self.complexes)


def even_layout(
    gpus: int,
    nics: int,
    pcie_switches: int,
    sockets: int,
    pcie_bit_s: float,
    root_port_bit_s: float,
    upi_bit_s: float,
    between_gpus: str,
) -> Layout:
    """Distribute GPUs and NICs over the PCIe switches in order, and PCIe switches over the sockets."""

    def share(count: int, at: int) -> int:
        return (at + 1) * count // pcie_switches - at * count // pcie_switches

    first = [share(nics, at) for at in range(pcie_switches)]
    cards = first if nics >= pcie_switches else [1] * nics + [0] * (pcie_switches - nics)
    complexes = tuple(
        Complex(
            at * sockets // pcie_switches, root_port_bit_s, (pcie_bit_s,) * share(gpus, at), (pcie_bit_s,) * cards[at]
        )
        for at in range(pcie_switches)
    )
    return Layout(complexes, upi_bit_s, between_gpus)


def add_server(graph: Graph, name: str, layout: Layout, nics: Sequence[int]) -> list[int]:
    """Add a server behind the nodes of its NICs, in the order of the layout. Returns the nodes of its GPUs."""
    assert len(nics) == layout.nics
    inside = NEAR if layout.between_gpus in ("pcie", "upi") else DEAR
    across = NEAR if layout.between_gpus == "upi" else DEAR
    sockets = {
        at: graph.add_node(OTHER, f"{name} socket {at}", "socket")
        for at in sorted({each.socket for each in layout.complexes})
    }
    numbers = list(sockets)
    for one in numbers:
        for other in numbers[numbers.index(one) + 1 :]:
            graph.add_cable(sockets[one], sockets[other], UPI, layout.upi_bit_s, cost=across)
    gpus: list[int] = []
    cards = iter(nics)
    for at, each in enumerate(layout.complexes):
        bridge = graph.add_node(OTHER, f"{name} PCIe switch {at}", "PCIe switch")
        graph.add_cable(bridge, sockets[each.socket], ROOT_PORT, each.root_port_bit_s, cost=across)
        own = [(next(cards), rate) for rate in each.nics_bit_s]
        shared = [(nic, *graph.add_cable(nic, bridge, NIC_LINK, rate, cost=DEAR)) for nic, rate in own]
        for number, rate in enumerate(each.gpus_bit_s):
            gpu = graph.add_node(HOST, f"{name} GPU {len(gpus)}", "GPU")
            port = graph.add_node(OTHER, f"{graph.nodes[gpu].name} port", "port")
            graph.add_cable(gpu, port, GPU_LINK, rate, cost=NEAR)
            graph.add_cable(port, bridge, "port", math.inf, cost=inside)
            if shared:
                nic, up, down = shared[number * max(1, len(shared) // len(each.gpus_bit_s)) % len(shared)]
                graph.share(port, nic, down)
                graph.share(nic, port, up)
            gpus.append(gpu)
    if layout.nvlink is not None:
        _add_nvlink(graph, name, layout.nvlink, gpus)
    return gpus


def _add_nvlink(graph: Graph, name: str, nvlink: NvLink, gpus: list[int]) -> None:
    if nvlink.is_switched:
        switch = graph.add_node(OTHER, f"{name} NVSwitch", "NVSwitch")
        for gpu in gpus:
            graph.add_cable(gpu, switch, NVLINK, nvlink.rate_bit_s, cost=NEAR / 2)
        return
    for i, one in enumerate(gpus):
        for other in gpus[i + 1 :]:
            graph.add_cable(one, other, NVLINK, nvlink.rate_bit_s / (len(gpus) - 1), cost=NEAR)


def with_servers(made: Graph, layout: Layout) -> Graph:
    """The fabric with servers: neighbouring ports become the NICs of one server. Raises ValueError if ports are left
    over."""
    ports = made.hosts
    if not layout.nics:
        raise ValueError("a server has no NIC")
    if len(ports) % layout.nics:
        raise ValueError(
            f"the fabric has {len(ports)} ports, which is not a multiple of the {layout.nics} NICs per server"
        )
    if layout.nics % layout.rails:
        raise ValueError(f"the {layout.nics} NICs per server cannot be divided evenly by {layout.rails} rails")
    if layout.rails > 1:
        ports = _by_rail(ports, layout)
    grown = Graph(list(made.nodes), list(made.resources), list(made.links), made.spread)
    for number, at in enumerate(ports):
        name = f"server {number // layout.nics} NIC {number % layout.nics}"
        grown.nodes[at] = replace(grown.nodes[at], kind=OTHER, name=name, role="NIC")
    for link in grown.links:
        name = f"{grown.nodes[link.source].name} -> {grown.nodes[link.target].name}"
        grown.resources[link.resource] = replace(grown.resources[link.resource], name=name)
    for first in range(0, len(ports), layout.nics):
        add_server(grown, f"server {first // layout.nics}", layout, ports[first : first + layout.nics])
    return grown


def _by_rail(ports: list[int], layout: Layout) -> list[int]:
    """The ports in the order of servers and NICs, if neighbouring ports belong to one rail."""
    servers, each = len(ports) // layout.nics, layout.nics // layout.rails
    return [
        ports[(nic % layout.rails) * servers * each + server * each + nic // layout.rails]
        for server in range(servers)
        for nic in range(layout.nics)
    ]
