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
- PAT: all-gathers and reduce-scatters in a logarithmic number of steps, with one GPU of each server.

PCIe is not counted: a server is assumed to have a slot for each NIC that is as fast as the NIC.
"""

from __future__ import annotations

import math

from netfold_lab.plan.library.machine import AMD, AMPERE, BLACKWELL, HOPPER, INTEL, VOLTA, Machine
from netfold_lab.plan.library.pieces import Piece, fastest
from netfold_lab.plan.step.names import ALL_REDUCE

US, GIGA = 1e-6, 1e9
LL, LL128, SIMPLE = PROTOCOLS = ("LL", "LL128", "Simple")
RING, TREE, NVLS, NVLS_TREE, COLLNET, PAT = ALGORITHMS = ("ring", "tree", "nvls", "nvls-tree", "collnet", "pat")
SENDS = "sends"  # of an all-to-all, which has no algorithm
PREFIX = "nccl"

# Microseconds before the first hop, by algorithm and protocol.
START = {RING: {LL: 6.6, LL128: 14.0, SIMPLE: 8.4}, TREE: {LL: 6.8, LL128: 14.0, SIMPLE: 8.4}}
# Microseconds of a hop over NVLink, and of one through the network.
INSIDE = {RING: {LL: 0.6, LL128: 1.9, SIMPLE: 3.4}, TREE: {LL: 0.6, LL128: 1.25, SIMPLE: 4.0}}
BETWEEN = {RING: {LL: 2.7, LL128: 4.0, SIMPLE: 14.0}, TREE: {LL: 5.0, LL128: 8.5, SIMPLE: 14.0}}
# PAT: the start, what it takes for every GPU, the part of a hop that its levels show, and of the rate.
PAT_US, PAT_GPU_US, PAT_HOPS, PAT_USABLE = 8.0, 2.8, 1 / 3.5, 0.75
NVLS_US, NVLS_TREE_HOP_US, COLLNET_HOP_US, COLLNET_US = 25.0, 20.9, 31.0, 3.7
# A ring through the network launches every hop: microseconds of a message, and messages of a hop.
LAUNCH_US = {INTEL: 1.0, AMD: 2.0}
MESSAGES = {LL: 1, LL128: 1, SIMPLE: 3}
# The largest rate of LL in GB/s, on one server by the GPU, on two and on more by the processor beside it.
LL_MOST = {VOLTA: 39.0, AMPERE: 87.7, HOPPER: 141.0, BLACKWELL: 282.0}
LL_MOST_BETWEEN = {INTEL: {2: 39.0, 3: 20.4}, AMD: {2: 22.5, 3: 19.0}}
RING_LL, TREE_LL, TREE_SIMPLE = 1 / 2, 1 / 3.8, 0.92
RING_LL128, TREE_LL128, TREE_LL128_INSIDE = 0.92, 120 / 128, 7 / 9
NVLS_USABLE = {HOPPER: 0.85, BLACKWELL: 0.74}
COLLNET_USABLE = {VOLTA: 1.0, AMPERE: 1.0, HOPPER: 0.85, BLACKWELL: 0.85}

# With Simple, a ring cuts a chunk into two slices. A channel's buffer has 4 MiB in eight steps, and a slice takes at
# most two of them (NCCL 2.30, src/include/collectives.h).
SLICES, SLICE_BYTES = 2, (4 << 20) * 2 // 8
# Channels of a server, and of each GPU where rings go through NICs, as NCCL divides the links (src/graph/search.cc).
CHANNELS = {VOLTA: 12, AMPERE: 24, HOPPER: 24, BLACKWELL: 32}
CHANNELS_BETWEEN = 2
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
        rings = [_ring(machine, protocol, 1) for protocol in PROTOCOLS]
        return [*rings, _pat(machine)] if machine.gpus == 1 else rings
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
    return fastest(all_to_all(machine, group), size_bytes).seconds(size_bytes)


def all_to_all(machine: Machine, group: int) -> list[Piece]:
    """The all-to-all of groups of so many GPUs, in bytes that each of them sends. Messages between servers share
    buffers, which have no room for LL (src/transport/net.cc)."""
    protocols = (LL, SIMPLE) if group <= machine.gpus else (SIMPLE,)
    return [_all_to_all(machine, group, protocol) for protocol in protocols]


def _all_to_all(machine: Machine, group: int, protocol: str) -> Piece:
    """NVLink and the NICs work at the same time. Messages are cut into chunks like those of every other collective.
    A chunk crosses the network once, however many servers there are, after a hop to the GPU at its rail (PXN).
    The kernel starts as that of a ring does."""
    inside = min(group, machine.gpus)
    servers, part = group // inside, 1 / group
    over_nvlink = part * (inside - 1) * servers / _bus(machine.one_server(), protocol) if inside > 1 else 0.0
    over_nics = part * inside * (servers - 1) * machine.gpus / (machine.nics_bytes_s * NICS_USABLE)
    hop = neighbour = INSIDE[RING][protocol] * US
    start = (KERNEL_US + START[RING][protocol]) * US
    if servers > 1:
        hop = _hop_s(machine, BETWEEN[RING][protocol], protocol)
        start += (servers - 1) * _launch_s(machine, protocol) + (neighbour if inside > 1 else 0.0)
    slower = max(over_nvlink, over_nics)
    return Piece(SENDS, protocol, start + hop, 1 / slower if slower else math.inf, hop, _fill_s(min(servers, 2)))


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
    if machine.servers == 1:
        return LL_MOST[machine.generation] * GIGA
    return LL_MOST_BETWEEN[machine.processor][min(machine.servers, 3)] * GIGA


def _launch_s(machine: Machine, protocol: str) -> float:
    return LAUNCH_US[machine.processor] * MESSAGES[protocol] * US


def _ring(machine: Machine, protocol: str, rounds: int) -> Piece:
    """`rounds`: 2 of an all-reduce, 1 of a reduce-scatter or an all-gather."""
    n, world = machine.servers, machine.world
    bus = _bus(machine, protocol)
    inside = INSIDE[RING][protocol] * US
    if n > 1:
        inside = max(inside, _launch_s(machine, protocol))
    hops, between = rounds * (world - 1), crossings(machine, rounds)
    # Nothing inside a server hides a hop of the network, if it has one GPU.
    hop = _hop_s(machine, BETWEEN[TREE if machine.gpus == 1 else RING][protocol], protocol)
    start = (KERNEL_US + START[RING][protocol]) * US + (hops - between) * inside + between * hop
    rate = bus * world / hops
    if protocol == SIMPLE:
        part, longest_s = _late_slices(machine, bus, hops, between)
        return Piece(RING, protocol, start, rate, 0.0, longest_s, part)
    return Piece(RING, protocol, start, rate, hop if n > 1 else inside, _fill_s(n))


def crossings(machine: Machine, rounds: int) -> int:
    """How often a block of a ring crosses from server to server. In one round it passes all links of the ring but one.
    n of them are between servers, and the block that comes last misses one inside a server, if there is any."""
    if machine.servers == 1:
        return 0
    return rounds * machine.servers - max(0, rounds - (machine.gpus - 1))


def _bus(machine: Machine, protocol: str) -> float:
    """Bytes per second of every link of a ring."""
    bus = min(_inside(machine), _nics(machine))
    if protocol == LL:
        return min(bus * RING_LL, _ll_most(machine))
    return bus * RING_LL128 if protocol == LL128 else bus


def _late_slices(machine: Machine, bus: float, hops: int, between: int) -> tuple[float, float]:
    """The time of a ring with Simple beyond its hops and bytes: as a part of the time of its bytes, and at most.

    All GPUs of a ring send from the first moment, so a ring has no pipeline that fills. But the last slice is copied to
    its place after it has arrived, and each time that it crosses to another server it waits for the NIC before that."""
    late = 1 + between
    channels = CHANNELS[machine.generation] if machine.servers == 1 else CHANNELS_BETWEEN * machine.gpus
    return late / (SLICES * hops), late * channels * SLICE_BYTES / bus


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


def _pat(machine: Machine) -> Piece:
    hop = _hop_s(machine, BETWEEN[TREE][SIMPLE], SIMPLE)
    levels = math.ceil(math.log2(machine.servers))
    start = (KERNEL_US + PAT_US + machine.servers * PAT_GPU_US) * US + levels * hop * PAT_HOPS
    return Piece(PAT, SIMPLE, start, _nics(machine) * PAT_USABLE, hop, _fill_s(machine.servers))
