"""Our own way to use every NIC of a server: reduce-scatter inside servers, a sum on every rail, all-gather inside.

Each GPU holds one part of the tensor after the reduce-scatter. The GPUs with the same number in all servers sum their
part over their NICs: with a ring, along two trees, or in the rail's switches, if those fold. All three steps run at the
same time on different chunks of the tensor, so that the slowest sets the rate.

This is a plan: Netfold's own workers do not run it between GPUs yet.
"""

from __future__ import annotations

import math

from netfold_lab.plan.library.machine import Machine
from netfold_lab.plan.library.nccl import FILL_US, NICS_USABLE, US
from netfold_lab.plan.library.pieces import Piece

RING, TREE, FOLD = WAYS = ("ring", "tree", "fold")
PREFIX = "rails"


def pieces(machine: Machine) -> list[Piece]:
    """The ways that these servers support: several servers of several GPUs with NVLink."""
    if machine.servers < 2 or machine.gpus < 2 or not machine.nvlink_bytes_s:
        return []
    return [_piece(machine, way) for way in WAYS if way != FOLD or machine.folds]


def _piece(machine: Machine, way: str) -> Piece:
    n, g = machine.servers, machine.gpus
    copies = {RING: 2 * (n - 1) / n, TREE: 1.0 if n == 2 else 2.0, FOLD: 1.0}[way]
    hops = {RING: 2 * (n - 1), TREE: 2 * math.ceil(math.log2(n)), FOLD: 2}[way]
    hop = machine.message_s + machine.path_s
    start = 2 * (g - 1) * machine.message_s + hops * hop
    inside = machine.inside_bytes_s * g / (2 * (g - 1))
    rate = min(inside, machine.nics_bytes_s * NICS_USABLE / copies)
    return Piece(way, "", start, rate, hop, FILL_US * US * (1 + math.log2(n) / 2))
