"""NCCL's algorithms and protocols as pieces of start and rate.

The bounds are physical: bytes over NVLink, bytes through the NICs, hops. The latencies of a hop and the efficiencies
are the values of NCCL's own tuning table (NCCL 2.30, src/graph/tuning.cc). Two constants are fitted, each to one point
of published.json; everything else there is held out.

Bytes for a tensor of S bytes on n servers of g GPUs, N = n g:

- ring: every GPU sends 2 (N - 1) / N S. So do the NICs of each server together.
- tree: chains inside servers, two binary trees between them: every GPU sends S up and S down. The NICs of a server
  send S with two servers, up to 2 S with more.
- NVLS: NVSwitch sums. Every GPU sends S (the switch reads it) and its part S / g of the sum.
- NVLSTree: NVLS inside servers, the two trees between them.
- CollNet: the switches of the network sum (SHARP).

PCIe is not counted: a server is assumed to have a slot for each NIC that is as fast as the NIC.
"""

from __future__ import annotations

import math

from netfold_lab.plan.library.machine import AMPERE, BLACKWELL, HOPPER, VOLTA, Machine
from netfold_lab.plan.library.pieces import Piece
from netfold_lab.plan.step.names import ALL_REDUCE

US, GIGA = 1e-6, 1e9
LL, LL128, SIMPLE = PROTOCOLS = ("LL", "LL128", "Simple")
RING, TREE, NVLS, NVLS_TREE, COLLNET = ALGORITHMS = ("ring", "tree", "nvls", "nvls-tree", "collnet")
SENDS = "sends"  # of an all-to-all, which has no algorithm
PREFIX = "nccl"

# Microseconds before the first hop, by algorithm and protocol.
START = {RING: {LL: 6.6, LL128: 14.0, SIMPLE: 8.4}, TREE: {LL: 6.8, LL128: 14.0, SIMPLE: 8.4}}
# Microseconds of a hop over NVLink, and of one through the network.
INSIDE = {RING: {LL: 0.6, LL128: 1.9, SIMPLE: 3.4}, TREE: {LL: 0.6, LL128: 1.25, SIMPLE: 4.0}}
BETWEEN = {RING: {LL: 2.7, LL128: 4.0, SIMPLE: 14.0}, TREE: {LL: 5.0, LL128: 8.5, SIMPLE: 14.0}}
NVLS_US, NVLS_TREE_HOP_US, COLLNET_HOP_US, COLLNET_US = 25.0, 20.9, 31.0, 3.7
# A ring through the network launches every hop: microseconds (Intel's processors; three messages with Simple).
LAUNCH = {LL: 1.0, LL128: 1.0, SIMPLE: 3.0}
# The largest rate of LL in GB/s, on one server by the GPU, on two and on more by the processor beside it.
LL_MOST = {VOLTA: 39.0, AMPERE: 87.7, HOPPER: 141.0, BLACKWELL: 282.0}
LL_MOST_BETWEEN = {2: 39.0, 3: 20.4}
RING_LL, TREE_LL, TREE_SIMPLE = 1 / 2, 1 / 3.8, 0.92
RING_LL128, TREE_LL128, TREE_LL128_INSIDE = 0.92, 120 / 128, 7 / 9
NVLS_USABLE = {HOPPER: 0.85, BLACKWELL: 0.74}
COLLNET_USABLE = {VOLTA: 1.0, AMPERE: 1.0, HOPPER: 0.85, BLACKWELL: 0.85}

# NCCL's developers expect 46 to 48 GB/s of a NIC with 400 Gbit/s (nccl-tests, issue 290).
NICS_USABLE = 47 / 50
# Fitted to "Azure NDm A100 v4, 1 server", 1 KiB: launching a kernel, which the tuning table leaves out.
KERNEL_US = 5.1
# Fitted to "LLMB DGX H100, 1 server", 256 MiB: how long the longest chunks fill the pipeline of one server.
FILL_US = 125.0


def pieces(machine: Machine, collective: str = ALL_REDUCE) -> list[Piece]:
    """Every algorithm and protocol that these servers support. Without NVLink: none."""
    if machine.world < 2 or (machine.gpus > 1 and not machine.nvlink_bytes_s):
        return []
    if collective != ALL_REDUCE:
        return [_ring(machine, protocol, 1) for protocol in PROTOCOLS]
    found = [_ring(machine, protocol, 2) for protocol in PROTOCOLS]
    found += [_tree(machine, protocol) for protocol in PROTOCOLS]
    if machine.sums and machine.gpus > 1:
        found.append(_nvls(machine) if machine.servers == 1 else _nvls_tree(machine))
    if machine.folds and machine.servers > 1:
        found.append(_collnet(machine))
    return found


def send_s(machine: Machine, size_bytes: float, is_inside: bool) -> float:
    """Seconds of a message from a GPU to another one, over NVLink, or over the GPU's part of the NICs. The
    latencies are those of a hop of a ring; NCCL's table has no row of a message."""
    if is_inside:
        return (KERNEL_US + INSIDE[RING][SIMPLE]) * US + size_bytes / machine.inside_bytes_s
    start = KERNEL_US * US + _hop_s(machine, BETWEEN[RING][SIMPLE], SIMPLE)
    return start + size_bytes * machine.gpus / (machine.nics_bytes_s * NICS_USABLE)


def all_to_all_s(machine: Machine, size_bytes: float, group: int) -> float:
    """Seconds in which each GPU of a group sends so many bytes, an equal part to every one."""
    return all_to_all(machine, group).seconds(size_bytes)


def all_to_all(machine: Machine, group: int) -> Piece:
    """The all-to-all of groups of so many GPUs, in bytes that each of them sends.

    NVLink and the NICs work at the same time. Messages are cut into chunks like those of every other collective.
    A chunk crosses the network once, however many servers there are, after a hop to the GPU at its rail (PXN)."""
    inside = min(group, machine.gpus)
    servers, part = group // inside, 1 / group
    over_nvlink = part * (inside - 1) * servers / machine.inside_bytes_s if inside > 1 else 0.0
    over_nics = part * inside * (servers - 1) * machine.gpus / (machine.nics_bytes_s * NICS_USABLE)
    hop = neighbour = INSIDE[RING][SIMPLE] * US
    start = KERNEL_US * US
    if servers > 1:
        hop = _hop_s(machine, BETWEEN[RING][SIMPLE], SIMPLE)
        start += (servers - 1) * LAUNCH[SIMPLE] * US + (neighbour if inside > 1 else 0.0)
    slower = max(over_nvlink, over_nics)
    return Piece(SENDS, SIMPLE, start + hop, 1 / slower if slower else math.inf, hop, _fill_s(min(servers, 2)))


def _fill_s(servers: int) -> float:
    """A pipeline is longer by half of a server's for each level of the tree between servers."""
    return FILL_US * US * (1 + math.log2(servers) / 2)


def _nics(machine: Machine) -> float:
    return machine.nics_bytes_s * NICS_USABLE if machine.servers > 1 else math.inf


def _inside(machine: Machine) -> float:
    return machine.inside_bytes_s if machine.gpus > 1 else math.inf


def _hop_s(machine: Machine, microseconds: float, protocol: str) -> float:
    """A hop through the network; Simple passes it twice, because it flushes."""
    return microseconds * US + machine.path_s * (2 if protocol == SIMPLE else 1)


def _ll_most(machine: Machine) -> float:
    table, key = (LL_MOST, machine.generation) if machine.servers == 1 else (LL_MOST_BETWEEN, min(machine.servers, 3))
    return table[key] * GIGA


def _ring(machine: Machine, protocol: str, rounds: int) -> Piece:
    """`rounds`: 2 of an all-reduce, 1 of a reduce-scatter or an all-gather."""
    n, world = machine.servers, machine.world
    bus = min(_inside(machine), _nics(machine))
    if protocol == LL:
        bus = min(bus * RING_LL, _ll_most(machine))
    elif protocol == LL128:
        bus *= RING_LL128
    inside = INSIDE[RING][protocol] if n == 1 else max(INSIDE[RING][protocol], LAUNCH[protocol])
    hops, between = rounds * (world - 1), rounds * (n - 1) if n > 1 else 0
    hop = _hop_s(machine, BETWEEN[RING][protocol], protocol)
    start = (KERNEL_US + START[RING][protocol]) * US + (hops - between) * inside * US + between * hop
    chunk = hop if n > 1 else inside * US
    return Piece(RING, protocol, start, bus * world / hops, chunk, _fill_s(machine.servers))


def _tree(machine: Machine, protocol: str) -> Piece:
    n = machine.servers
    inside, nics = _inside(machine) * TREE_SIMPLE / 2, _nics(machine) * (1 if n == 2 else TREE_SIMPLE / 2)
    rate = min(inside, nics)
    if protocol == LL:
        rate = min(rate * TREE_LL, _ll_most(machine) / 2)
    elif protocol == LL128:
        rate *= TREE_LL128_INSIDE if n == 1 else TREE_LL128
    hop = _hop_s(machine, BETWEEN[TREE][protocol], protocol)
    levels = math.ceil(math.log2(n))
    start = (KERNEL_US + START[TREE][protocol]) * US + 2 * (
        (machine.gpus - 1) * INSIDE[TREE][protocol] * US + levels * hop
    )
    chunk = hop if n > 1 else INSIDE[TREE][protocol] * US
    return Piece(TREE, protocol, start, rate, chunk, _fill_s(machine.servers))


def _nvls_bytes_s(machine: Machine) -> float:
    return machine.inside_bytes_s * NVLS_USABLE[max(machine.generation, HOPPER)] / (1 + 1 / machine.gpus)


def _nvls(machine: Machine) -> Piece:
    chunk = INSIDE[TREE][SIMPLE] * US
    return Piece(NVLS, SIMPLE, (KERNEL_US + NVLS_US) * US, _nvls_bytes_s(machine), chunk, _fill_s(machine.servers))


def _nvls_tree(machine: Machine) -> Piece:
    n = machine.servers
    rate = min(_nvls_bytes_s(machine) * TREE_SIMPLE, _nics(machine) / (1 if n == 2 else 2))
    hop = _hop_s(machine, NVLS_TREE_HOP_US, SIMPLE)
    start = (KERNEL_US + NVLS_US) * US + 2 * math.ceil(math.log2(n)) * hop
    return Piece(NVLS_TREE, SIMPLE, start, rate, hop, _fill_s(machine.servers))


def _collnet(machine: Machine) -> Piece:
    rate = min(_inside(machine), _nics(machine)) * COLLNET_USABLE[machine.generation] / 2
    hop = _hop_s(machine, COLLNET_HOP_US, SIMPLE)
    start = (KERNEL_US + 2 * COLLNET_US) * US + 2 * (machine.gpus - 1) * 0.4 * US + hop
    return Piece(COLLNET, SIMPLE, start, rate, hop, _fill_s(machine.servers))
