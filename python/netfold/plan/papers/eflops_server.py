"""Figures 2 to 4 of EFLOPS: what the inside of a server does to all-reduces and copies.

The server of section VI: two sockets, a PCIe switch each, two GPUs behind each switch; one, two or four network cards.
Two servers, eight workers, on a network that is never full. A step's time is that of its slowest flow.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import pairwise

from netfold.plan.cluster import fabric
from netfold.plan.cluster.graph import Graph
from netfold.plan.cluster.server import UPI, even_layout
from netfold.plan.cluster.spec import with_servers
from netfold.plan.papers.figure import Figure, Row

STREAM_BIT_S = 66e9  # a worker sends and receives while it folds: 8 workers, HDRM, 37.87 Gbit/s (Fig. 12) x 2 x 7/8
NIC_BIT_S = 100e9
PCIE_BIT_S = 90e9  # Fig. 3: one copy from host memory to a GPU
UPI_BIT_S = STREAM_BIT_S / 7.6  # GPU to GPU across sockets: fitted to Fig. 4
STAGED_BIT_S = STREAM_BIT_S / 2.31  # GPU to a card of the other socket, by way of host memory: fitted to Fig. 2, ring
SKEW = 0.25  # of a UPI link that two flows want, what the one with the longer round trip gets
GPUS, SERVERS = 4, 2
ASSUMPTIONS = (
    "Two servers, eight workers; the network between them is never full.",
    f"A worker streams {STREAM_BIT_S / 1e9:.0f} Gbit/s each way while it folds (from Fig. 12: HDRM, 8 workers, 16 "
    "MiB).",
    f"Network cards have {NIC_BIT_S / 1e9:.0f} Gbit/s, PCIe 3.0 x16 {PCIE_BIT_S / 1e9:.0f} Gbit/s in use (from Fig. "
    "3).",
    f"GPU to GPU across sockets: {UPI_BIT_S / 1e9:.1f} Gbit/s (fitted to Fig. 4's 7.6x).",
    f"GPU to a card of the other socket goes through host memory at {STAGED_BIT_S / 1e9:.1f} Gbit/s (fitted to Fig. "
    "2's 2.31x for the ring).",
    f"Where two flows want the same UPI link, the longer round trip gets {SKEW:.0%} of it: the skewed quality of "
    "service of section III-A. The paper gives no number; this one is near what its 11.3x asks for.",
    "Where a server has fewer cards than GPUs, GPUs of one PCIe switch talk through it. Between sockets a ring takes "
    "the cards (PCIe+NIC); halving-doubling's swaps within a server take UPI.",
)

Flow = tuple[tuple[int, ...], int]  # resources; how many of them are UPI between GPUs (1) or staged (2)


@cache
def server(nics: int) -> Graph:
    """Two servers on one switch that is never full."""
    layout = even_layout(GPUS, nics, 2, 2, PCIE_BIT_S, PCIE_BIT_S, STAGED_BIT_S, "upi")
    return with_servers(fabric.build("star", {"ports": SERVERS * nics}, NIC_BIT_S, 0.0), layout)


def way(graph: Graph, stops: Sequence[int]) -> tuple[int, ...]:
    """Resources along the cheapest way that calls at each of the stops."""
    import networkx as nx

    drawn = nx.DiGraph()
    for link in graph.links:
        drawn.add_edge(link.source, link.target, weight=link.cost, resource=link.resource)
    found: list[int] = []
    for one, other in pairwise(stops):
        path = nx.shortest_path(drawn, one, other, weight="weight")
        found += [drawn.edges[pair]["resource"] for pair in pairwise(path)]
    return tuple(found)


def card_of(nics: int, worker: int) -> int:
    """The network card a worker uses, counted over both servers."""
    at, gpu = divmod(worker, GPUS)
    return at * nics + gpu * nics // GPUS


def through_cards(nics: int, one: int, other: int) -> tuple[int, ...]:
    """From worker to worker by their cards, also where that is the same one."""
    graph = server(nics)
    cards = [at for at, node in enumerate(graph.nodes) if node.role == "NIC"]
    switch = next(at for at, node in enumerate(graph.nodes) if node.role == "switch")
    stops = [graph.hosts[one], cards[card_of(nics, one)], switch, cards[card_of(nics, other)], graph.hosts[other]]
    return way(graph, stops)


def inside(nics: int, one: int, other: int) -> tuple[int, ...]:
    """From worker to worker through PCIe and UPI."""
    graph = server(nics)
    return way(graph, [graph.hosts[one], graph.hosts[other]])


def slowest_bit_s(nics: int, flows: Sequence[tuple[int, ...]], direct: Sequence[bool]) -> float:
    """The rate of the slowest of flows at once; `direct`: which of them go from GPU to GPU inside a server.

    Each flow is held to a worker's stream; UPI is slower for direct flows; where two share it, the slower gets SKEW.
    """
    import numpy as np

    from netfold import _core

    graph = server(nics)
    rates = np.array([min(each.capacity_bit_s, 1e15) for each in graph.resources])
    shared = _core.max_min(rates, [list(flow) for flow in flows]).tolist()
    slowest = STREAM_BIT_S
    for flow, rate, is_direct in zip(flows, shared, direct, strict=True):
        slowest = min(slowest, rate)
        for at in flow:
            if graph.resources[at].role == UPI:
                others = sum(at in each for each in flows)
                limit = UPI_BIT_S if is_direct else STAGED_BIT_S
                slowest = min(slowest, limit * (SKEW if others > 1 else 1.0))
    return slowest


def is_same(one: int, other: int) -> bool:
    """Whether two workers are behind one PCIe switch."""
    return one // 2 == other // 2


def ring_bit_s(nics: int, mode: str, workers: int = SERVERS * GPUS) -> float:
    """A ring's rate. `mode`: "nic", "pcie+nic" or "pcie+upi"."""
    flows, direct = [], []
    for one in range(workers):
        other = (one + 1) % workers
        stays = one // GPUS == other // GPUS and (mode == "pcie+upi" or (mode == "pcie+nic" and is_same(one, other)))
        flows.append(inside(nics, one, other) if stays else through_cards(nics, one, other))
        direct.append(stays)
    return slowest_bit_s(nics, flows, direct)


def halving_s(nics: int, workers: int = SERVERS * GPUS) -> float:
    """Seconds a bit of halving-doubling, both ways."""
    total, part, distance = 0.0, 0.5, 1
    while distance < workers:
        pairs = [(worker, worker ^ distance) for worker in range(workers)]
        stays = nics < GPUS and (distance == 1 or (distance == 2 and nics == 1))
        flows = [inside(nics, *pair) if stays else through_cards(nics, *pair) for pair in pairs]
        total += 2 * part / slowest_bit_s(nics, flows, [stays] * workers)
        part, distance = part / 2, 2 * distance
    return total


def copy_bit_s(gpus: Sequence[int]) -> float:
    """The slowest of copies from host memory to these GPUs of one server, at once, each from its own socket's."""
    from netfold import _core

    graph = server(1)
    import numpy as np

    sockets = [at for at, node in enumerate(graph.nodes) if node.role == "socket"]
    flows = [way(graph, [sockets[gpu // 2], graph.hosts[gpu]]) for gpu in gpus]
    rates = np.array([min(each.capacity_bit_s, 1e15) for each in graph.resources])
    return float(min(_core.max_min(rates, [list(flow) for flow in flows])))


def figure_2() -> Figure:
    """One, two and four network cards."""
    mode = {1: "pcie+nic", 2: "pcie+nic", 4: "nic"}
    ring = {nics: ring_bit_s(nics, mode[nics]) for nics in (1, 2, 4)}
    halving = {nics: 1 / halving_s(nics) for nics in (1, 2, 4)}
    rows = [
        Row("HD, four cards over one", 11.3, halving[4] / halving[1], "x", fitted=True),
        Row("HD, four cards over two", 1.27, halving[4] / halving[2], "x"),
        Row("ring, four cards over one", 2.31, ring[4] / ring[1], "x", fitted=True),
        Row("ring, four cards over two", 1.13, ring[4] / ring[2], "x"),
    ]
    lines = {
        "HD": [(nics, rate / 1e9) for nics, rate in halving.items()],
        "ring": [(nics, rate / 2 * 8 / 7 / 1e9) for nics, rate in ring.items()],
    }
    holds = ring[1] / 2 * 8 / 7 > halving[1]
    return Figure(
        "2",
        "Network cards a server",
        ASSUMPTIONS,
        rows,
        [("with one card the ring is faster than HD", holds)],
        {"Large messages": lines},
        ("network cards a server", "bandwidth (size / time), Gbit/s"),
    )


def figure_3() -> Figure:
    """Copies from host memory to GPUs behind shared root ports."""
    alone = copy_bit_s([0])
    cases = {"one copy": [0], "two, one PCIe switch": [0, 1], "two, two switches": [0, 2], "four": [0, 1, 2, 3]}
    found = {name: copy_bit_s(gpus) for name, gpus in cases.items()}
    rows = [
        Row("one copy", 90, alone / 1e9, "Gbit/s", fitted=True),
        Row("two copies behind one PCIe switch, of one alone", 0.5, found["two, one PCIe switch"] / alone),
        Row("two copies behind two switches", 90, found["two, two switches"] / 1e9, "Gbit/s"),
        Row("four copies, of one alone", 0.5, found["four"] / alone),
    ]
    return Figure("3", "Copies to GPUs that share a root port", ASSUMPTIONS[2:3], rows)


def figure_4() -> Figure:
    """A ring inside one server by PCIe, UPI and network cards; then many servers."""
    one = {mode: ring_bit_s(4, mode, GPUS) for mode in ("nic", "pcie+nic", "pcie+upi")}
    two = {mode: ring_bit_s(4, mode) for mode in ("nic", "pcie+nic", "pcie+upi")}
    rows = [
        Row("one server: NIC over PCIe+UPI, large messages", 7.6, one["nic"] / one["pcie+upi"], "x", fitted=True),
        Row("one server: NIC over PCIe+NIC, large messages", 1.0, one["nic"] / one["pcie+nic"], "x"),
        Row("several servers: NIC over PCIe+NIC, large messages", 1.0, two["nic"] / two["pcie+nic"], "x"),
    ]
    slowest = two["pcie+upi"] < min(two["nic"], two["pcie+nic"])
    remarks = [("PCIe+UPI has the lowest bandwidth over several servers", slowest)]
    return Figure("4", "Which way GPUs of one server take", ASSUMPTIONS[1:5], rows, remarks)
