"""Changes to evaluate: other NICs, other fabrics, folding switches, coarser formats on the wire."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from netfold_lab.errors import UsageError
from netfold_lab.plan.cluster.folding import ATTACHED, Folding
from netfold_lab.plan.cluster.server import Complex
from netfold_lab.plan.cluster.spec import Cluster

PER_LEAF = {
    "star": ("ports",),
    "leaf-spine": ("ports_per_leaf", "spines"),
    "torus2d": ("ports_per_switch",),
    "dragonfly": ("ports_per_switch",),
}


def of(cluster: Cluster) -> Iterator[tuple[str, Cluster]]:
    """The changes that this cluster allows, by name."""
    for name, changed in _all(cluster):
        if changed is not None:
            try:
                changed.graph()
            except UsageError:
                continue
            yield name, changed


def _all(cluster: Cluster) -> Iterator[tuple[str, Cluster | None]]:
    if cluster.layout is not None:
        gpus, nics = cluster.layout.gpus, cluster.layout.nics
        if nics < gpus:
            yield f"{gpus} NICs per server in place of {nics}", with_nics(cluster, gpus)
        elif nics > 1:
            yield f"one NIC per server in place of {nics}", with_nics(cluster, 1)
    if cluster.kind != "bigraph":
        yield "a BiGraph with the same number of ports", as_bigraph(cluster)
    else:
        yield "a fat tree with the same switches", replace(cluster, kind="fat-tree", hosts=())
    if cluster.kind == "leaf-spine" and cluster.sizes["ports_per_leaf"] > cluster.sizes["spines"]:
        sizes = cluster.sizes | {"spines": cluster.sizes["ports_per_leaf"]}
        yield "as many spines as a leaf has ports", replace(cluster, sizes=sizes)
    bfp = replace(cluster.software, wire="bfp")
    if cluster.software.wire != "bfp":
        yield "bfp on the wire", replace(cluster, software=bfp)
    if not cluster.folding:
        for name, folding in (
            ("switches that fold, with DPDK", Folding("all")),
            ("a machine beside the network that folds", Folding(ATTACHED)),
        ):
            yield name, replace(cluster, folding=folding)
            if cluster.software.wire != "bfp":
                yield f"{name}, and bfp", replace(cluster, folding=folding, software=bfp)
    if cluster.graph_read is None:
        yield (
            "links of the fabric twice as fast",
            replace(cluster, rate_bit_s=2 * cluster.rate_bit_s, uplink_bit_s=2 * cluster.uplink_bit_s),
        )


def with_nics(cluster: Cluster, nics: int) -> Cluster | None:
    """The same servers with another number of NICs, on a fabric of the same kind with ports for them."""
    layout = cluster.layout
    if layout is None or cluster.kind not in (*PER_LEAF, "bigraph", "fat-tree"):
        return None
    rate = next((each for one in layout.complexes for each in (*one.nics_bit_s, *one.gpus_bit_s)), cluster.rate_bit_s)
    count = len(layout.complexes)
    cards = [(at + 1) * nics // count - at * nics // count for at in range(count)]
    if nics < count:
        cards = [1] * nics + [0] * (count - nics)
    complexes = tuple(
        Complex(each.socket, each.root_port_bit_s, each.gpus_bit_s, (rate,) * share)
        for each, share in zip(layout.complexes, cards, strict=True)
    )
    sizes = _scaled(cluster, nics / layout.nics)
    if sizes is None:
        return None
    return replace(cluster, layout=replace(layout, complexes=complexes), sizes=sizes, hosts=())


def _scaled(cluster: Cluster, factor: float) -> dict[str, int] | None:
    """The fabric's sizes for a multiple of its ports."""
    names = PER_LEAF.get(cluster.kind)
    sizes = dict(cluster.sizes)
    if names is None:
        ports = sizes["sub_nodes"] * sizes["switches"] * factor
        return _bigraph_sizes(int(ports)) if ports == int(ports) else None
    for name in names:
        sizes[name] = max(1, math.ceil(sizes.get(name, 1) * factor))
    return sizes


def as_bigraph(cluster: Cluster) -> Cluster | None:
    """A BiGraph with the same number of ports, as square as possible."""
    nics = cluster.layout.nics if cluster.layout else 1
    gpus = cluster.layout.gpus if cluster.layout else 1
    try:
        ports = len(cluster.graph().hosts) * nics // gpus
    except UsageError:
        return None
    sizes = _bigraph_sizes(ports)
    if sizes is None:
        return None
    rate = cluster.rate_bit_s or max((each.capacity_bit_s for each in cluster.graph().resources), default=0.0)
    return replace(cluster, kind="bigraph", sizes=sizes, graph_read=None, rate_bit_s=rate, spread="", ranks=())


def _bigraph_sizes(ports: int) -> dict[str, int] | None:
    if ports < 2 or ports & (ports - 1):
        return None
    switches = 1 << math.ceil((int(math.log2(ports)) + 1) / 2)
    return {"sub_nodes": ports // switches, "switches": switches}
