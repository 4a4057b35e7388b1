"""csg-htsim: a connection matrix of one all-reduce (`-tm`), and a topology file of a fat tree of two layers (`-topo`).

Steps are in lock-step: all messages of a step start when all messages of the step before are received. That is one
barrier per step.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from netfold.timeline import SWITCH, Message, Timeline
from netfold_lab.errors import UsageError
from netfold_lab.plan.cluster.spec import Cluster

NANOSECONDS = 1e9
GIGA = 1e9


def matrix(line: Timeline, element_bytes: float) -> Iterator[str]:
    """The lines of the connection matrix. Raises UsageError for an algorithm with a folding switch, which htsim does
    not have."""
    if any(SWITCH in (message.sender, message.receiver) for message in line.messages):
        raise UsageError("htsim has no folding switch: export another algorithm than in-network")
    by_step: dict[int, list[Message]] = defaultdict(list)
    for message in line.messages:
        if message.count:
            by_step[message.start].append(message)
    steps = [by_step[at] for at in sorted(by_step)]
    yield f"Nodes {line.world}"
    yield f"Connections {sum(map(len, steps))}"
    yield f"Triggers {max(0, len(steps) - 1)}"
    flow = 0
    for at, step in enumerate(steps):
        for message in step:
            flow += 1
            begin = "start 0" if at == 0 else f"trigger {at}"
            end = f" recv_done_trigger {at + 1}" if at + 1 < len(steps) else ""
            size = max(1, round(message.count * element_bytes))
            yield f"{message.sender}->{message.receiver} id {flow} {begin} size {size}{end}"
    for at in range(1, len(steps)):
        yield f"trigger id {at} barrier count {len(steps[at - 1])}"


def topology(cluster: Cluster) -> Iterator[str]:
    """The lines of the topology file. Raises UsageError if the cluster is not a tree of two layers of equal
    switches."""
    if cluster.kind == "leaf-spine":
        leaves, spines, ports = (cluster.sizes[name] for name in ("leaves", "spines", "ports_per_leaf"))
    elif cluster.kind == "fat-tree":
        half = cluster.sizes["switches"] // 2
        leaves, spines, ports = half, half, 2 * cluster.sizes["sub_nodes"]
    else:
        raise UsageError(f"htsim supports leaf-spine and fat-tree, not {cluster.kind}")
    if cluster.layout is not None and cluster.layout.nics != cluster.layout.gpus:
        raise UsageError("htsim has no servers: each GPU needs a NIC of its own")
    latency = round(cluster.latency_s * NANOSECONDS)
    rate, uplink = cluster.rate_bit_s / GIGA, (cluster.uplink_bit_s or cluster.rate_bit_s) / GIGA
    yield f"Nodes {leaves * ports}"
    yield "Tiers 2"
    yield f"Podsize {leaves * ports}"
    yield ""
    yield "Tier 0"
    yield f"Downlink_speed_Gbps {rate:g}"
    yield f"Radix_Down {ports}"
    yield f"Radix_Up {spines}"
    yield f"Downlink_Latency_ns {latency}"
    yield "Switch_Latency_ns 0"
    if ports != spines:
        yield f"Oversubscribed {ports / spines:g}"
    yield ""
    yield "Tier 1"
    yield f"Downlink_speed_Gbps {uplink:g}"
    yield f"Radix_Down {leaves}"
    yield f"Downlink_Latency_ns {latency}"
    yield "Switch_Latency_ns 0"
