"""A fabric of routers: every switch of a BiGraph or a fat tree is a namespace that forwards between its cables.

    w0 eth0 ---- p0 -+
    w1 eth0 ---- p1 -+- br0 (s0) c4 ---- c0 (s4) br0 -+- p0 ---- eth0 w16
    ...              |           c5 ---- c0 (s5)      |

A switch is a bridge for its own workers and a router to other switches' workers. Each switch's workers are a subnet
(10.77.SWITCH.0/24, the switch is .1, its workers are .10 and up), and every other switch has a route to it. Every link,
to a worker or to a switch, is a veth pair that is shaped at both ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from netfold.topology.wiring import Wiring
from netfold_lab.lab import names, netns, shaping
from netfold_lab.lab.spec import LabSpec

if TYPE_CHECKING:
    from pyroute2 import IPRoute

BRIDGE = "br0"
SWITCH_SETTINGS = {
    "net/ipv4/ip_forward": "1",
    "net/ipv4/fib_multipath_hash_policy": "1",  # by ports too: connections of two workers may use different routes
    "net/ipv4/conf/all/rp_filter": "0",  # the way back may be different
}
WORKER_SETTINGS = {
    "net/ipv4/tcp_slow_start_after_idle": "0",  # a connection keeps its rate after a pause between its turns
    "net/ipv4/tcp_congestion_control": "reno",  # every kernel has it, and the machine's default may be another
    "net/ipv4/tcp_wmem": "4096 262144 262144",  # bytes in flight: less than a link queues for four connections
}


class Routed:
    """The namespaces, links and routes of one wiring."""

    def __init__(self, spec: LabSpec, lab_id: str, wiring: Wiring) -> None:
        self._spec = spec
        self._lab_id = lab_id
        self.wiring = wiring

    def switch(self, number: int) -> str:
        """The namespace of a switch."""
        return names.router(self._lab_id, number)

    def nodes(self) -> list[str]:
        """The namespaces other than the workers'."""
        return [self.switch(number) for number in range(self.wiring.switches)]

    def address(self, rank: int) -> str:
        """A worker's address."""
        return f"10.77.{self.wiring.switch_of(rank)}.{10 + self.wiring.port_of(rank)}"

    def build(self, sockets: dict[str, IPRoute]) -> None:
        """Create links and routes in the existing namespaces."""
        for number in range(self.wiring.switches):
            netns.configure(self.switch(number), SWITCH_SETTINGS)
            self._build_bridge(sockets[self.switch(number)], number)
        for rank in range(self.wiring.workers):
            self._plug_in(sockets, rank)
        for index, (upper, lower) in enumerate(self.wiring.cables()):
            self._lay_cable(sockets, index, upper, lower)
        for number in range(self.wiring.switches):
            self._route(sockets[self.switch(number)], number)

    def downlink(self, rank: int) -> tuple[str, str]:
        """The switch's end of a worker's link: namespace and interface."""
        return self.switch(self.wiring.switch_of(rank)), f"p{self.wiring.port_of(rank)}"

    def cable_ends(self) -> list[tuple[str, str]]:
        """Both ends of every cable between switches: namespace and interface."""
        return [end for upper, lower in self.wiring.cables() for end in self._ends(upper, lower)]

    def _build_bridge(self, ipr: IPRoute, number: int) -> None:
        ipr.link("add", ifname=BRIDGE, kind="bridge", br_mcast_snooping=0)
        index = shaping.index_of(ipr, BRIDGE)
        ipr.addr("add", index=index, address=f"10.77.{number}.1", prefixlen=24)
        ipr.link("set", index=index, state="up")

    def _plug_in(self, sockets: dict[str, IPRoute], rank: int) -> None:
        worker = names.worker(self._lab_id, rank)
        netns.configure(worker, WORKER_SETTINGS)
        switch, port = self.downlink(rank)
        shaping.connect(sockets, (switch, port), (worker, names.INTERFACE), self._spec, self._spec.rate_mbit_s)
        ipr = sockets[switch]
        ipr.link("set", index=shaping.index_of(ipr, port), master=shaping.index_of(ipr, BRIDGE))
        node = sockets[worker]
        node.addr("add", index=shaping.index_of(node, names.INTERFACE), address=self.address(rank), prefixlen=24)
        node.route("add", dst="default", gateway=f"10.77.{self.wiring.switch_of(rank)}.1")

    def _lay_cable(self, sockets: dict[str, IPRoute], index: int, upper: int, lower: int) -> None:
        """A network of two addresses; the upper end has the even one."""
        ends = self._ends(upper, lower)
        shaping.connect(sockets, *ends, self._spec, self._spec.rate_mbit_s)
        for (namespace, interface), address in zip(ends, cable_addresses(index), strict=True):
            ipr = sockets[namespace]
            ipr.addr("add", index=shaping.index_of(ipr, interface), address=address, prefixlen=31)

    def _ends(self, upper: int, lower: int) -> tuple[tuple[str, str], tuple[str, str]]:
        return (self.switch(upper), f"c{lower}"), (self.switch(lower), f"c{upper}")

    def _route(self, ipr: IPRoute, number: int) -> None:
        """Add routes to every other switch's workers, over the cables that the wiring names."""
        gateways = {}
        for index, (upper, lower) in enumerate(self.wiring.cables()):
            upper_address, lower_address = cable_addresses(index)
            if number == upper:
                gateways[lower] = lower_address
            elif number == lower:
                gateways[upper] = upper_address
        for destination in range(self.wiring.switches):
            if destination == number:
                continue
            hops = [gateways[hop] for hop in self.wiring.next_hops(number, destination)]
            how = {"gateway": hops[0]} if len(hops) == 1 else {"multipath": [{"gateway": hop} for hop in hops]}
            ipr.route("add", dst=f"10.77.{destination}.0/24", **how)


def cable_addresses(index: int) -> tuple[str, str]:
    """The addresses of a cable's upper and lower end."""
    high, low = divmod(2 * index, 256)
    return f"10.78.{high}.{low}", f"10.78.{high}.{low + 1}"
