"""Collectives of servers with NVLink, in closed form: `nccl`, `nccl-ring`, ..., `rails-ring`, ..., `measured`.

NCCL arranges its rings and trees itself, so the order of ranks changes nothing. The rates are those of the graph's
resources; so a resource that is made faster shows its effect here, too. The switches between the servers count only by
their latency: a fabric that does not carry all NICs at their rate is slower than predicted.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from netfold_lab.plan.cluster.fabric import EDGE
from netfold_lab.plan.cluster.graph import SWITCH, Graph
from netfold_lab.plan.cluster.server import NIC_LINK, NVLINK, Layout
from netfold_lab.plan.cluster.spec import Software
from netfold_lab.plan.library import mpi, nccl, rails
from netfold_lab.plan.library.machine import Machine
from netfold_lab.plan.library.pieces import Piece, fastest
from netfold_lab.plan.step.names import ALL_REDUCE

NCCL = nccl.PREFIX
NAMES = (NCCL, *(f"{NCCL}-{each}" for each in nccl.ALGORITHMS), *(f"{rails.PREFIX}-{each}" for each in rails.WAYS))
MEASURED = "measured"
EVERY = (*NAMES, MEASURED)
COMPARED = (NCCL, f"{rails.PREFIX}-{rails.RING}", f"{rails.PREFIX}-{rails.FOLD}")
PATHS = {"star": 2, "bigraph": 3}  # cables between two servers
CABLES = 4  # of other fabrics: up and down


def machine_of(graph: Graph, layout: Layout | None, software: Software, kind: str = "") -> Machine | None:
    """The servers of a graph; None if they have no NVLink."""
    if layout is None or layout.nvlink is None:
        return None
    servers = len(graph.hosts) // layout.gpus
    rates = {role: _least(graph, role) for role in (EDGE, NIC_LINK, NVLINK)}
    per_gpu = rates[NVLINK] if layout.nvlink.is_switched else rates[NVLINK] * (layout.gpus - 1)
    latency = max((link.latency_s for link in graph.links), default=0.0)
    return Machine(
        servers=servers,
        gpus=layout.gpus,
        nvlink_bytes_s=per_gpu / 8,
        nics_bytes_s=layout.nics * min(rates[EDGE], rates[NIC_LINK]) / 8,
        path_s=PATHS.get(kind, CABLES) * latency,
        generation=layout.nvlink.generation,
        is_switched=layout.nvlink.is_switched,
        sums=layout.nvlink.sums,
        folds=any(node.kind == SWITCH and math.isinf(node.fold_bit_s) for node in graph.nodes),
        message_s=software.step_latency_s,
        processor=layout.processor,
    )


def wire_of(name: str, wire: str) -> str:
    """The format on the wire: NCCL and MPI do not code, and a measured curve is as it was measured."""
    return "fp32" if name == MEASURED or (name.startswith((NCCL, mpi.NAME)) and wire == "bfp") else wire


def _least(graph: Graph, role: str) -> float:
    return min((each.capacity_bit_s for each in graph.resources if each.role == role), default=0.0)


def pieces_of(machine: Machine, name: str, collective: str = ALL_REDUCE) -> list[Piece]:
    """The pieces of a name of NAMES; none if these servers do not support it."""
    family, _, algorithm = name.partition("-")
    if family == rails.PREFIX:
        found = rails.pieces(machine) if collective == ALL_REDUCE else []
    else:
        found = nccl.pieces(machine, collective)
    return [each for each in found if not algorithm or each.algorithm == algorithm]


def simulate(
    graph: Graph, machine: Machine, capacities: int, name: str, size_bytes: float, collective: str = ALL_REDUCE
) -> dict[str, Any]:
    """A collective as the simulator tells it: seconds, and bits on each resource. `capacities`: how many resources
    the topology has. Raises ValueError if the servers do not support it."""
    if machine.world == 1:  # no other GPU has the same part of the model
        return {"time_s": 0.0, "bits_by_resource": np.zeros(capacities), "algorithm": ""}
    pieces = pieces_of(machine, name, collective)
    if not pieces:
        raise ValueError(f"these servers do not support {name} for {collective}")
    piece = fastest(pieces, size_bytes)
    inside_s, between_s = _transfers_s(machine, piece, size_bytes)
    bits = np.zeros(capacities)
    for at, each in enumerate(graph.resources):
        seconds = {NVLINK: inside_s, EDGE: between_s, NIC_LINK: between_s}.get(each.role, 0.0)
        bits[at] = seconds * each.capacity_bit_s
    return {"time_s": piece.seconds(size_bytes), "bits_by_resource": bits, "algorithm": piece.algorithm}


def _transfers_s(machine: Machine, piece: Piece, size_bytes: float) -> tuple[float, float]:
    """How long NVLink and the NICs are in use: their bytes at their raw rates."""
    n, g = machine.servers, machine.gpus
    sums = piece.algorithm in (nccl.NVLS, nccl.NVLS_TREE)
    inside = 1 + 1 / g if sums else 2 * (g - 1) / g
    once = (nccl.COLLNET, rails.FOLD, *((nccl.TREE, nccl.NVLS_TREE) if n == 2 else ()))
    between = 0.0 if n == 1 else 1.0 if piece.algorithm in once else 2 * (n - 1) / n
    nics_s = between * size_bytes / machine.nics_bytes_s if between else 0.0
    return inside * size_bytes / machine.nvlink_bytes_s, nics_s
