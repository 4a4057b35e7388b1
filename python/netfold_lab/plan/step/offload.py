"""An optimizer in the memory of the host (Ren et al., "ZeRO-Offload"), and shards within groups of workers (HSDP).

Offloaded, the host updates the weights. Gradients go down over the GPU's PCIe link while the backward pass runs; only
the time beyond that pass counts. Then pieces are updated and go up again, one while the next is updated, so the slower
of both counts. A host reads and writes 12 bytes for a weight, and the optimizer's state twice. All GPUs of a server
share its memory's bandwidth, and GPUs behind one root port share that.

In a group of workers, all-gathers and reduce-scatters stay within the group. The sums of each shard are then
all-reduced by the workers that hold it, one of each group.
"""

from __future__ import annotations

from dataclasses import replace

from netfold_lab.errors import UsageError
from netfold_lab.plan.cluster.devices import UPDATE_BYTES, Device
from netfold_lab.plan.cluster.server import Layout
from netfold_lab.plan.cluster.spec import Cluster
from netfold_lab.plan.library.machine import Machine
from netfold_lab.plan.step.sharded import NONE, OPTIMIZERS, Training
from netfold_lab.plan.step.timeline import FP32_BYTES, Timeline


def check(cluster: Cluster, machine: Machine | None, training: Training) -> None:
    """Raises UsageError for an offloaded optimizer or a group of workers that these servers do not have."""
    if training.offload and cluster.layout is None:
        raise UsageError(f"--offload needs to know the servers of {cluster.name}; write servers")
    group = training.group
    if not group:
        return
    said = f"--shard-group {group}"
    if training.sharding == NONE:
        raise UsageError(f"{said}: nothing is sharded; add --sharding zero3")
    if training.pipeline > 1 or training.experts > 1:
        raise UsageError(f"{said} is not planned with pipelines or experts; leave it out")
    if machine is None:
        raise UsageError(f"{said}: the servers of {cluster.name} have no NVLink; write servers.nvlink")
    own = machine.divided(training.tensor)
    if not own.shares(group):
        fitting = [str(each) for each in range(2, own.world + 1) if own.shares(each)]
        raise UsageError(
            f"{said}: {own.servers} servers of {cluster.name} have {own.gpus} GPUs each with the same part of the "
            f"model, which cannot be divided evenly by it; {', '.join(fitting[:8])} can be"
        )


def pcie_bytes_s(layout: Layout) -> float:
    """The rate of a GPU's copies from and to the host, if all GPUs copy."""
    rates = [
        min(*each.gpus_bit_s, each.root_port_bit_s / len(each.gpus_bit_s))
        for each in layout.complexes
        if each.gpus_bit_s
    ]
    return min(rates) / 8


def host_bytes(training: Training) -> int:
    """The bytes that a host reads and writes to update a weight."""
    return int(UPDATE_BYTES) + 2 * OPTIMIZERS[training.optimizer]


def device_of(cluster: Cluster, device: Device, training: Training) -> Device:
    """The device with the rate at which its host updates."""
    if not training.offload or cluster.layout is None:
        return device
    host_s = host_bytes(training) * cluster.layout.gpus / cluster.host_bytes_s
    up_s = FP32_BYTES / pcie_bytes_s(cluster.layout)
    return replace(device, update_bytes_s=UPDATE_BYTES / max(host_s, up_s))


def with_copies(line: Timeline, cluster: Cluster, training: Training, own_bytes: float) -> Timeline:
    """The step with what the backward pass does not hide of the gradients' copies. `own_bytes`: of gradients that a GPU
    sends down."""
    if not training.offload or cluster.layout is None:
        return line
    down_s = own_bytes / pcie_bytes_s(cluster.layout)
    return replace(line, exposed_s=line.exposed_s + max(0.0, down_s - line.backward_s / training.accumulate))
