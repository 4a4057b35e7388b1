"""A link's rate, and its traffic.

The token bucket (`tbf`) counts a packet that segmentation offload has not cut yet as several packets, with the headers
of all its segments. So its statistics are the traffic of a real wire. An interface's own counters see one long packet
with one header.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from netfold_lab.lab.spec import LabSpec

if TYPE_CHECKING:
    from pyroute2 import IPRoute


@dataclass(frozen=True)
class Traffic:
    """Bytes (with Ethernet header, without preamble and checksum) and packets that left through a link's queue."""

    bytes: int = 0
    packets: int = 0
    dropped: int = 0

    def __sub__(self, earlier: Traffic) -> Traffic:
        return Traffic(self.bytes - earlier.bytes, self.packets - earlier.packets, self.dropped - earlier.dropped)


def index_of(ipr: IPRoute, interface: str) -> int:
    """The interface's index in the namespace of `ipr`."""
    return ipr.link_lookup(ifname=interface)[0]


def shape(ipr: IPRoute, interface: str, rate_mbit_s: float, burst_bytes: int, latency_ms: float) -> None:
    """Limit the rate at which packets leave through an interface, or change the limit. A rate of 0 means no limit."""
    if rate_mbit_s == 0:
        return
    ipr.tc(
        "replace",
        "tbf",
        index=index_of(ipr, interface),
        handle="1:",
        rate=int(rate_mbit_s * 1e6 / 8),  # bytes per second
        burst=burst_bytes,
        latency=int(latency_ms * 1000),  # microseconds
    )


def connect(
    sockets: dict[str, IPRoute], near: tuple[str, str], far: tuple[str, str], spec: LabSpec, rate_mbit_s: float
) -> None:
    """One link between two ends, (namespace, interface) each: a veth pair, up and shaped at both."""
    peer = {"ifname": far[1], "net_ns_fd": far[0], "mtu": spec.mtu}
    sockets[near[0]].link("add", ifname=near[1], kind="veth", peer=peer, mtu=spec.mtu)
    for namespace, interface in (near, far):
        ipr = sockets[namespace]
        ipr.link("set", index=index_of(ipr, interface), state="up")
        shape(ipr, interface, rate_mbit_s, spec.burst_bytes, spec.latency_ms)


def traffic(ipr: IPRoute, interface: str) -> Traffic:
    """The traffic that left through an interface so far: by its token bucket, or by the interface if it has no token
    bucket."""
    index = index_of(ipr, interface)
    for queue in ipr.get_qdiscs(index=index):
        if queue["index"] == index and queue.get_attr("TCA_KIND") == "tbf":
            stats = queue.get_attr("TCA_STATS2")
            basic = stats.get_attr("TCA_STATS_BASIC")
            return Traffic(basic["bytes"], basic["packets"], stats.get_attr("TCA_STATS_QUEUE")["drops"])
    counters = ipr.get_links(index)[0].get_attr("IFLA_STATS64")
    return Traffic(counters["tx_bytes"], counters["tx_packets"], counters["tx_dropped"])
