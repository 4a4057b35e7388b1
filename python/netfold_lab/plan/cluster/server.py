"""The inside of a server (Figures 1 and 5 of EFLOPS): GPUs and NICs behind PCIe switches, each PCIe switch behind a
root port of a socket, and sockets connected by UPI.

```
  GPU -- port --+-- PCIe switch -- root port -- socket -- UPI -- socket ...
         |      |
        NIC ----+            a GPU and its NIC communicate within their PCIe switch
```
A setting chooses the path between GPUs of one server: `nic` (each through its own NIC, as in EFLOPS), `pcie` (through a
shared PCIe switch, else through the NICs), `upi` (never through a NIC). It sets costs: links to avoid have a high cost,
so routes use them only if there is no other path.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from netfold_lab.plan.cluster.graph import HOST, OTHER, Graph

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
class Layout:
    """One kind of server. `nvlink_bit_s`: between any two GPUs; 0: without NVLink."""

    complexes: tuple[Complex, ...]
    upi_bit_s: float
    between_gpus: str = "nic"
    nvlink_bit_s: float = 0.0
    names: tuple[str, ...] = field(default=())

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
                nic, up, down = shared[number % len(shared)]
                graph.share(port, nic, down)
                graph.share(nic, port, up)
            gpus.append(gpu)
    if layout.nvlink_bit_s:
        for i, one in enumerate(gpus):
            for other in gpus[i + 1 :]:
                graph.add_cable(one, other, NVLINK, layout.nvlink_bit_s, cost=NEAR)
    return gpus
