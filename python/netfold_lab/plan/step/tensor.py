"""Tensor parallelism: the GPUs of a group in one server divide every matrix, and exchange what the layer computes.

A layer whose output has `exchanged` elements for each sample needs a reduce-scatter and an all-gather of them, forwards
and backwards. (Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", with sequence
parallelism.) Nothing hides them: the next layer needs their result.

Recomputation repeats a part of the forward pass in the backward pass: all of it and its exchanges (full), or every
second matrix product (selective, as TorchTitan does it). The output of a model of text is never computed again.

Beside its matrix products a layer reads and writes memory. If the rate of memory is known, that takes time of its own.
Forwards an operation reads one tensor and writes one; backwards it reads two and writes one. Recomputation moves the
bytes of the forward pass again.

The groups that hold the same part of the model shard it over data-parallel workers: one GPU of each group.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from netfold_lab.errors import UsageError
from netfold_lab.plan.cluster.spec import Cluster
from netfold_lab.plan.library import nccl
from netfold_lab.plan.library.machine import Machine
from netfold_lab.plan.library.pieces import fastest
from netfold_lab.plan.models.layers import BACKWARD_OPERATIONS, Layer, Model
from netfold_lab.plan.step.experts import NO_ROUTING, Routing
from netfold_lab.plan.step.names import ALL_GATHER, REDUCE_SCATTER

ELEMENT_BYTES = 2  # activations are exchanged in bf16
NOTHING, SELECTIVE, FULL = RECOMPUTED = ("none", "selective", "full")
REPEATED = {"": 0.0, NOTHING: 0.0, SELECTIVE: 0.5, FULL: 1.0}  # parts of the forward pass
SCORED_BYTES = 10.0  # scores in bf16, and in fp32 with their gradient, for the loss
BACKWARD_MOVED = 1.5  # times the forward's: three tensors of an operation, not two
Exchange = Callable[[float], float]


def check(cluster: Cluster, model: Model, group: int, recompute: str) -> None:
    """Raises UsageError for a group that these servers or this model do not have."""
    if recompute not in REPEATED:
        raise UsageError(f"--recompute takes {', '.join(RECOMPUTED)}, not {recompute}")
    if group == 1:
        return
    if group < 1:
        raise UsageError(f"--tensor-parallel must be at least 1, not {group}")
    layout = cluster.layout
    if layout is None or layout.nvlink is None:
        what = f"the servers of {cluster.name} have no NVLink; write servers.nvlink"
        raise UsageError(f"--tensor-parallel {group}: {what}")
    if layout.gpus % group:
        raise UsageError(
            f"--tensor-parallel {group}: a group is within a server, and the {layout.gpus} GPUs of a server of "
            f"{cluster.name} cannot be divided evenly by it"
        )
    if model.heads % group:
        fitting = [str(each) for each in range(1, layout.gpus + 1) if not layout.gpus % each and not model.heads % each]
        raise UsageError(
            f"--tensor-parallel {group}: the {model.heads} heads of {model.name} cannot be divided evenly by it; "
            f"{' or '.join(fitting)} can"
        )


def exchange_of(machine: Machine | None, group: int) -> Exchange:
    """Seconds of a reduce-scatter and an all-gather of a number of bytes within a group."""
    if machine is None or group == 1:
        return lambda size_bytes: 0.0
    inside = replace(machine.one_server(), gpus=group)
    both = [nccl.pieces(inside, collective) for collective in (REDUCE_SCATTER, ALL_GATHER)]

    def seconds(size_bytes: float) -> float:
        return sum(fastest(pieces, size_bytes).seconds(size_bytes) for pieces in both) if size_bytes else 0.0

    return seconds


def part_of(
    model: Model,
    batch: int,
    group: int,
    recompute: str,
    flop_s: float,
    exchange: Exchange,
    routing: Routing = NO_ROUTING,
    moved_bytes_s: float = 0.0,
) -> Model:
    """The part of a model that a GPU of a group computes. The operations of its layers include the exchanges, and what
    moves at `moved_bytes_s` (0: not counted), as the operations that `flop_s` does in that time."""
    is_moved = moved_bytes_s and any(layer.moved or layer.moved_by_each for layer in model.layers)
    if group == 1 and routing.group == 1 and not REPEATED[recompute] and not is_moved:
        return model

    def divided(layer: Layer) -> Layer:
        load = routing.load if layer.experts else 1.0
        own = load * layer.operations / group
        waiting = exchanged_s(layer, batch, group, exchange, routing) * flop_s / batch
        moved = load * moved_s(layer, batch, group, moved_bytes_s) * flop_s / batch
        again = 0.0
        if not layer.scored and REPEATED[recompute]:
            again = REPEATED[recompute] * own + (waiting if recompute == FULL else 0.0) + moved
        backward = BACKWARD_OPERATIONS * own + waiting + again + BACKWARD_MOVED * moved
        return replace(
            layer,
            parameters=own_parameters(layer, group, routing.group),
            operations=own + waiting + moved,
            backward_operations=backward,
        )

    return replace(model, layers=tuple(map(divided, model.layers)))


def own_parameters(layer: Layer, group: int, experts: int) -> int:
    """The parameters of a layer on a GPU, if `group` GPUs divide every matrix and `experts` share the experts."""
    return -(-layer.parameters // (group * (experts if layer.experts else 1)))


def moved_s(layer: Layer, batch: int, group: int, moved_bytes_s: float) -> float:
    """Seconds in which the forward pass of a layer moves its bytes, beside its matrix products."""
    if not moved_bytes_s:
        return 0.0
    elements = batch * layer.exchanged * (layer.moved / group + layer.moved_by_each)
    return (elements + SCORED_BYTES * batch * layer.scored / group) / moved_bytes_s


def exchanged_s(layer: Layer, batch: int, group: int, exchange: Exchange, routing: Routing) -> float:
    """Seconds of the exchanges of a layer in a forward pass: within its group, and with the GPUs that share experts."""
    size = ELEMENT_BYTES * batch * layer.exchanged * (routing.load if layer.experts else 1.0)
    to_experts = 2 * routing.all_to_all_s(size / group) if layer.experts else 0.0
    return exchange(size) + to_experts


def waiting_s(
    model: Model, batch: int, group: int, recompute: str, exchange: Exchange, routing: Routing = NO_ROUTING
) -> float:
    """Seconds of a step's exchanges."""
    return sum(
        exchanged_s(layer, batch, group, exchange, routing) * (3 if recompute == FULL and not layer.scored else 2)
        for layer in model.layers
    )


def moving_s(model: Model, batch: int, group: int, recompute: str, moved_bytes_s: float, load: float = 1.0) -> float:
    """Seconds of what a micro-batch moves beside matrix products, in all of its passes. `load`: of experts."""
    is_again = REPEATED[recompute] > 0
    return sum(
        (load if layer.experts else 1.0)
        * moved_s(layer, batch, group, moved_bytes_s)
        * (1 + BACKWARD_MOVED + (is_again and not layer.scored))
        for layer in model.layers
    )


def activation_bytes(model: Model, batch: int, group: int, recompute: str) -> float:
    """Bytes of activations that a GPU keeps for the backward pass; 0 without --recompute: they are not counted."""
    return stored_bytes(model, batch, group, recompute) + working_bytes(model, batch, group, recompute)


def stored_bytes(model: Model, batch: int, group: int, recompute: str) -> float:
    """The part that each batch keeps between its forward and its backward pass."""
    if not recompute:
        return 0.0
    elements = batch * sum(layer.exchanged for layer in model.layers) / group
    scored = SCORED_BYTES * batch * sum(layer.scored for layer in model.layers) / group
    if recompute == FULL:  # the input of each block of two layers
        return scored + ELEMENT_BYTES * elements / 2
    kept = batch * sum(layer.kept * layer.exchanged for layer in model.layers) / group
    return scored + kept * (1 - REPEATED[recompute])


def working_bytes(model: Model, batch: int, group: int, recompute: str) -> float:
    """The part that only the pass that runs has: everything of the block that is computed again."""
    if recompute != FULL:
        return 0.0
    return 2 * batch * max((layer.kept * layer.exchanged for layer in model.layers), default=0.0) / group
