"""Mixtures of experts: each token goes to a few of many feed-forward parts, which the GPUs of a group share.

The group's GPUs have different samples. Before the experts each GPU sends its tokens to the GPUs that hold their
experts, and gets the results back: two all-to-alls forwards, two backwards. Nothing hides them. The group fills a
server before it takes GPUs of another one. A message to a GPU of another server goes over NVLink to the GPU at that
GPU's rail, and then over its NIC (NCCL's PXN).

The router does not load all experts evenly. `load` is how much more than the mean the busiest GPU gets, in tokens sent
and computed. It has no source: without `--expert-load` it is assumed to be 1.

The gradients of an expert are summed by the GPUs that hold it: one of each group.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from netfold_lab.errors import UsageError
from netfold_lab.plan.cluster.spec import Cluster
from netfold_lab.plan.library import nccl
from netfold_lab.plan.library.machine import Machine
from netfold_lab.plan.models.layers import Model
from netfold_lab.plan.step.sharded import Training

EVEN = 1.0


@dataclass(frozen=True)
class Routing:
    """The GPUs of a group, the load of the busiest one, and the seconds of an all-to-all of so many bytes of a GPU."""

    group: int = 1
    load: float = EVEN
    all_to_all_s: Callable[[float], float] = lambda size_bytes: 0.0


NO_ROUTING = Routing()


def routing_of(machine: Machine | None, training: Training) -> Routing:
    """The routing of a way to train."""
    group = training.experts
    if machine is None or group == 1:
        return NO_ROUTING
    own = machine.divided(training.tensor, training.pipeline)
    return Routing(group, training.load or EVEN, lambda size_bytes: nccl.all_to_all_s(own, size_bytes, group))


def check(cluster: Cluster, machine: Machine | None, model: Model, training: Training) -> None:
    """Raises UsageError for a group that this model or these servers do not have; it says which they have."""
    group = training.experts
    said = f"--expert-parallel {group}"
    if group < 1:
        raise UsageError(f"--expert-parallel must be at least 1, not {group}")
    if group == 1:
        if training.load:
            raise UsageError("--expert-load needs a group of GPUs that share the experts; add --expert-parallel")
        return
    if training.load and training.load < EVEN:
        raise UsageError(f"--expert-load {training.load:g}: the busiest GPU has at least the mean load, so at least 1")
    experts = max(layer.experts for layer in model.layers)
    if not experts:
        raise UsageError(f"{said}: {model.name} has no experts; take mixtral-8x7b or mixtral-8x22b")
    if machine is None:
        raise UsageError(f"{said}: the servers of {cluster.name} have no NVLink; write servers.nvlink")
    if training.load > group:
        raise UsageError(
            f"--expert-load {training.load:g}: one of {group} GPUs has at most {group} times the mean load"
        )
    own = machine.divided(training.tensor, training.pipeline)
    fitting = [each for each in range(2, experts + 1) if experts % each == 0 and own.shares(each)]
    if group in fitting:
        return
    why = (
        f"{model.name} has {experts} experts"
        if experts % group
        else f"{own.servers} servers of {cluster.name} have {own.gpus} GPUs each with the same part of the model"
    )
    what = f"--expert-parallel {', '.join(map(str, fitting))} can be" if fitting else "no group can be"
    raise UsageError(f"{said}: {why}, which cannot be divided evenly by it; {what}")
