"""Figures 2 to 4 of EFLOPS: the effect of a server's inside on all-reduces and copies.

The server of section VI has two sockets, one PCIe switch per socket, two GPUs behind each switch, and one, two or four
NICs. There are two servers with eight workers, on a network without congestion. The slowest flow determines a step's
time.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import pairwise

from netfold_lab.plan.cluster import fabric
from netfold_lab.plan.cluster.graph import Graph
from netfold_lab.plan.cluster.server import UPI, even_layout, with_servers
from netfold_lab.plan.papers.figure import FITTED, Constant, Figure, Row

STREAM_BIT_S = 66e9  # a worker sends and receives while it folds: 8 workers, HDRM, 37.87 Gbit/s (Fig. 12) x 2 x 7/8
NIC_BIT_S = 100e9
PCIE_BIT_S = 90e9  # Fig. 3: one copy from host memory to a GPU
UPI_BIT_S = STREAM_BIT_S / 7.6  # GPU to GPU across sockets: fitted to Fig. 4
STAGED_BIT_S = STREAM_BIT_S / 2.31  # GPU to a NIC of the other socket, through host memory: fitted to Fig. 2, ring
SKEW = 0.25  # share of a UPI link for the flow with the longer round trip, if two flows compete
GPUS, SERVERS = 4, 2
NETWORK = "Two servers, eight workers; the network between them has no congestion."
PATHS = (
    "If a server has fewer NICs than GPUs, GPUs of one PCIe switch communicate through it. Between sockets a ring uses "
    "the NICs (PCIe+NIC); halving-doubling's swaps within a server use UPI."
)
OF_COPIES = (
    Constant("a NIC", f"{NIC_BIT_S / 1e9:.0f} Gbit/s", "section VI"),
    Constant("PCIe 3.0 x16 in use", f"{PCIE_BIT_S / 1e9:.0f} Gbit/s", "fitted to Figure 3, one copy"),
)
OF_PATHS = (
    Constant(
        "what a worker streams each way while it folds",
        f"{STREAM_BIT_S / 1e9:.0f} Gbit/s",
        "fitted to Figure 12, HDRM, 8 workers, 16 MiB",
    ),
    *OF_COPIES,
    Constant("GPU to GPU across sockets", f"{UPI_BIT_S / 1e9:.1f} Gbit/s", "fitted to Figure 4's 7.6x"),
    Constant(
        "GPU to a NIC of the other socket, through host memory",
        f"{STAGED_BIT_S / 1e9:.1f} Gbit/s",
        "fitted to Figure 2's 2.31x of the ring",
    ),
)
OF_CARDS = (
    *OF_PATHS,
    Constant(
        "UPI for the flow with the longer round trip, if two compete (section III-A)",
        f"{SKEW:.0%}",
        "fitted to Figure 2's 11.3x of HD",
    ),
)

Flow = tuple[tuple[int, ...], int]  # resources; how many of them are UPI between GPUs (1) or staged (2)


@cache
def server(nics: int) -> Graph:
    """Two servers on one switch without congestion."""
    layout = even_layout(GPUS, nics, 2, 2, PCIE_BIT_S, PCIE_BIT_S, STAGED_BIT_S, "upi")
    return with_servers(fabric.build("star", {"ports": SERVERS * nics}, NIC_BIT_S, 0.0), layout)


def way(graph: Graph, stops: Sequence[int]) -> tuple[int, ...]:
    """Resources along the cheapest path through all stops."""
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
    """The NIC that a worker uses, numbered over both servers."""
    at, gpu = divmod(worker, GPUS)
    return at * nics + gpu * nics // GPUS


def through_cards(nics: int, one: int, other: int) -> tuple[int, ...]:
    """The path between workers through their NICs, also if both use the same NIC."""
    graph = server(nics)
    cards = [at for at, node in enumerate(graph.nodes) if node.role == "NIC"]
    switch = next(at for at, node in enumerate(graph.nodes) if node.role == "switch")
    stops = [graph.hosts[one], cards[card_of(nics, one)], switch, cards[card_of(nics, other)], graph.hosts[other]]
    return way(graph, stops)


def inside(nics: int, one: int, other: int) -> tuple[int, ...]:
    """The path between workers through PCIe and UPI."""
    graph = server(nics)
    return way(graph, [graph.hosts[one], graph.hosts[other]])


def slowest_bit_s(nics: int, flows: Sequence[tuple[int, ...]], direct: Sequence[bool]) -> float:
    """The rate of the slowest of several flows at once. `direct`: the flows from GPU to GPU inside a server.

    A flow has at most the rate of a worker's stream. UPI is slower for direct flows. If two flows share it, the slower
    gets SKEW.
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
    """Seconds per bit of halving-doubling, both ways."""
    total, part, distance = 0.0, 0.5, 1
    while distance < workers:
        pairs = [(worker, worker ^ distance) for worker in range(workers)]
        stays = nics < GPUS and (distance == 1 or (distance == 2 and nics == 1))
        flows = [inside(nics, *pair) if stays else through_cards(nics, *pair) for pair in pairs]
        total += 2 * part / slowest_bit_s(nics, flows, [stays] * workers)
        part, distance = part / 2, 2 * distance
    return total


def copy_bit_s(gpus: Sequence[int]) -> float:
    """The rate of the slowest of simultaneous copies to these GPUs of one server, each from the host memory of its
    socket."""
    from netfold import _core

    graph = server(1)
    import numpy as np

    sockets = [at for at, node in enumerate(graph.nodes) if node.role == "socket"]
    flows = [way(graph, [sockets[gpu // 2], graph.hosts[gpu]]) for gpu in gpus]
    rates = np.array([min(each.capacity_bit_s, 1e15) for each in graph.resources])
    return float(min(_core.max_min(rates, [list(flow) for flow in flows])))


def figure_2() -> Figure:
    """One, two and four NICs per server."""
    mode = {1: "pcie+nic", 2: "pcie+nic", 4: "nic"}
    ring = {nics: ring_bit_s(nics, mode[nics]) for nics in (1, 2, 4)}
    halving = {nics: 1 / halving_s(nics) for nics in (1, 2, 4)}
    rows = [
        Row("HD, four NICs over one", 11.3, halving[4] / halving[1], "x", FITTED),
        Row("HD, four NICs over two", 1.27, halving[4] / halving[2], "x"),
        Row("ring, four NICs over one", 2.31, ring[4] / ring[1], "x", FITTED),
        Row("ring, four NICs over two", 1.13, ring[4] / ring[2], "x"),
    ]
    lines = {
        "HD": [(nics, rate / 1e9) for nics, rate in halving.items()],
        "ring": [(nics, rate / 2 * 8 / 7 / 1e9) for nics, rate in ring.items()],
    }
    holds = ring[1] / 2 * 8 / 7 > halving[1]
    return Figure(
        "2",
        "NICs per server",
        (NETWORK, PATHS),
        rows,
        [("with one NIC the ring is faster than HD", holds)],
        {"Large messages": lines},
        ("NICs per server", "bandwidth (size / time), Gbit/s"),
        constants=OF_CARDS,
    )


def figure_3() -> Figure:
    """Copies from host memory to GPUs behind shared root ports."""
    alone = copy_bit_s([0])
    cases = {"one copy": [0], "two, one PCIe switch": [0, 1], "two, two switches": [0, 2], "four": [0, 1, 2, 3]}
    found = {name: copy_bit_s(gpus) for name, gpus in cases.items()}
    rows = [
        Row("one copy", 90, alone / 1e9, "Gbit/s", FITTED),
        Row("two copies behind one PCIe switch, relative to one copy", 0.5, found["two, one PCIe switch"] / alone),
        Row("two copies behind two switches", 90, found["two, two switches"] / 1e9, "Gbit/s", FITTED),
        Row("four copies, relative to one copy", 0.5, found["four"] / alone),
    ]
    return Figure("3", "Copies to GPUs that share a root port", (), rows, constants=OF_COPIES)


def figure_4() -> Figure:
    """A ring inside one server over PCIe, UPI and NICs; then over several servers."""
    one = {mode: ring_bit_s(4, mode, GPUS) for mode in ("nic", "pcie+nic", "pcie+upi")}
    two = {mode: ring_bit_s(4, mode) for mode in ("nic", "pcie+nic", "pcie+upi")}
    rows = [
        Row("one server: NIC over PCIe+UPI, large messages", 7.6, one["nic"] / one["pcie+upi"], "x", FITTED),
        Row("one server: NIC over PCIe+NIC, large messages", 1.0, one["nic"] / one["pcie+nic"], "x"),
        Row("several servers: NIC over PCIe+NIC, large messages", 1.0, two["nic"] / two["pcie+nic"], "x"),
    ]
    slowest = two["pcie+upi"] < min(two["nic"], two["pcie+nic"])
    remarks = [("PCIe+UPI has the lowest bandwidth over several servers", slowest)]
    return Figure("4", "Paths between GPUs of one server", (), rows, remarks, constants=OF_PATHS)
