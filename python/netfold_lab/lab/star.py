"""A star: a bridge in a namespace of its own, and shaped links to every worker and to the switches that fold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from netfold_lab.lab import faults, names, shaping
from netfold_lab.lab.spec import LabSpec

if TYPE_CHECKING:
    from pyroute2 import IPRoute

BRIDGE = "br0"
SWITCH_PORT = "psw"  # of the first one


def switch_port(number: int) -> str:
    """The bridge's port of a switch."""
    return f"{SWITCH_PORT}{number or ''}"


class Star:
    """The namespaces and links of one star."""

    def __init__(self, spec: LabSpec, lab_id: str) -> None:
        self._spec = spec
        self.fabric = names.fabric(lab_id)
        self.switches = [names.switch(lab_id, number) for number in range(spec.boxes)]
        self._workers = [names.worker(lab_id, rank) for rank in range(spec.workers)]

    def nodes(self) -> list[str]:
        """The namespaces other than the workers'."""
        return [self.fabric, *self.switches]

    def ports(self) -> list[str]:
        """The bridge's ports, seen from the fabric."""
        return [
            *(f"p{rank}" for rank in range(self._spec.workers)),
            *(switch_port(number) for number in range(self._spec.boxes)),
        ]

    def ends(self) -> list[str]:
        """The namespaces at the far ends of the links."""
        return [*self._workers, *self.switches]

    def address(self, rank: int) -> str:
        """A worker's address."""
        return names.worker_address(rank)

    def downlink(self, rank: int) -> tuple[str, str]:
        """The bridge's end of a worker's link: namespace and interface."""
        return self.fabric, f"p{rank}"

    def switch_ends(self) -> list[tuple[str, str]]:
        """Both ends of every link of a switch: namespace and interface."""
        ends = [(switch, names.INTERFACE) for switch in self.switches]
        return ends + [(self.fabric, switch_port(number)) for number in range(self._spec.boxes)]

    def build(self, sockets: dict[str, IPRoute]) -> None:
        """Create the links in the existing namespaces."""
        ipr = sockets[self.fabric]
        ipr.link("add", ifname=BRIDGE, kind="bridge", br_mcast_snooping=0)
        ipr.link("set", index=shaping.index_of(ipr, BRIDGE), state="up")
        for rank, worker in enumerate(self._workers):
            self._build_port(sockets, f"p{rank}", worker, self.address(rank), self._spec.rate_mbit_s)
        rate_mbit_s = self._spec.switch_rate_mbit_s
        for number, switch in enumerate(self.switches):
            self._build_port(sockets, switch_port(number), switch, names.switch_address(number), rate_mbit_s)
        for leaf in range(self._spec.leaves):
            self._build_uplink(sockets, leaf)

    def uplink(self, leaf: int) -> tuple[str, str]:
        """The leaf's end of its uplink: namespace and interface."""
        return self.switches[leaf + 1], names.UPLINK

    def _build_uplink(self, sockets: dict[str, IPRoute], leaf: int) -> None:
        ends = ((self.switches[0], f"down{leaf}"), self.uplink(leaf))
        shaping.connect(sockets, *ends, self._spec, self._spec.rate_mbit_s)
        for (namespace, interface), address in zip(ends, names.uplink_addresses(leaf), strict=True):
            ipr = sockets[namespace]
            ipr.addr("add", index=shaping.index_of(ipr, interface), address=address, prefixlen=31)

    def _build_port(
        self, sockets: dict[str, IPRoute], port: str, namespace: str, address: str, rate_mbit_s: float
    ) -> None:
        """Create one link: a veth pair from the bridge to a node, shaped at both ends."""
        spec, fabric, node = self._spec, sockets[self.fabric], sockets[namespace]
        shaping.connect(sockets, (self.fabric, port), (namespace, names.INTERFACE), spec, rate_mbit_s)
        bridge = shaping.index_of(fabric, BRIDGE)
        fabric.link("set", index=shaping.index_of(fabric, port), master=bridge)
        node.addr("add", index=shaping.index_of(node, names.INTERFACE), address=address, prefixlen=24)
        faults.build_detour(fabric, bridge, port, spec.mtu)
