"""A step's timeline: forward, backward layer by layer, all-reduces of full buckets, update.

Buckets fill in the order in which gradients become ready, last layer first. They are all-reduced one after the other,
as by PyTorch's DistributedDataParallel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from netfold_lab.plan.analytic import iteration
from netfold_lab.plan.cluster.devices import Device
from netfold_lab.plan.models.layers import Layer, Model

FP32_BYTES = 4


@dataclass(frozen=True)
class Span:
    """One interval. `lane`: forward, backward, all-reduce or update; `size_bytes`: of gradients."""

    lane: str
    name: str
    start_s: float
    end_s: float
    size_bytes: int = 0


@dataclass(frozen=True)
class Timeline:
    """All intervals of a step, and the exposed communication. `bubble_s`: how long the first stage of a pipeline would
    wait for the others if transfers took no time."""

    spans: tuple[Span, ...]
    forward_s: float
    backward_s: float
    update_s: float
    reduce_s: float
    exposed_s: float
    bubble_s: float = 0.0

    @property
    def total_s(self) -> float:
        """The time of the step."""
        return self.forward_s + self.backward_s + self.bubble_s + self.exposed_s + self.update_s

    @property
    def compute_s(self) -> float:
        """The time without communication."""
        return self.forward_s + self.backward_s + self.update_s


def buckets(model: Model, bucket_bytes: int) -> list[tuple[Layer, ...]]:
    """Layers whose gradients are sent together, last layer first. A bucket is full when it reaches `bucket_bytes`.
    Experts have buckets of their own: other workers hold them."""
    found: list[tuple[Layer, ...]] = []
    filling: dict[bool, list[Layer]] = {}
    for layer in reversed(model.layers):
        of = layer.experts > 0
        filling.setdefault(of, []).append(layer)
        if sum(each.parameters for each in filling[of]) * FP32_BYTES >= bucket_bytes:
            found.append(tuple(filling.pop(of)))
    return found + [tuple(left) for left in filling.values()]


def is_of_experts(bucket: tuple[Layer, ...]) -> bool:
    """Whether it has the gradients of experts."""
    return bucket[0].experts > 0


def name_of(bucket: tuple[Layer, ...]) -> str:
    """The name of a bucket: its layers."""
    return bucket[0].name if len(bucket) == 1 else f"{bucket[0].name} to {bucket[-1].name}"


def timeline(
    model: Model,
    batch: int,
    device: Device,
    bucket_bytes: int,
    reduce_s: Callable[[float], float],
    experts_reduce_s: Callable[[float], float] | None = None,
) -> Timeline:
    """The step's intervals. `reduce_s`: seconds of an all-reduce of a number of bytes; `experts_reduce_s`: of experts,
    if other workers sum them."""
    spans: list[Span] = []
    now = 0.0
    for layer in model.layers:
        took = iteration.forward_s(layer, batch, device.flop_s)
        spans.append(Span("forward", layer.name, now, now + took))
        now += took
    forward, network = now, 0.0
    reduced = 0.0
    for bucket in buckets(model, bucket_bytes):
        for layer in bucket:
            took = iteration.backward_s(layer, batch, device.flop_s)
            spans.append(Span("backward", layer.name, now, now + took))
            now += took
        size = sum(layer.parameters for layer in bucket) * FP32_BYTES
        start = max(now, network)
        network = start + (experts_reduce_s if experts_reduce_s and is_of_experts(bucket) else reduce_s)(size)
        reduced += network - start
        spans.append(Span("all-reduce", name_of(bucket), start, network, size))
    update = sum(iteration.update_s(layer, device.update_bytes_s) for layer in model.layers)
    end = max(now, network)
    spans.append(Span("update", "weights", end, end + update))
    return Timeline(tuple(spans), forward, now - forward, update, reduced, max(0.0, network - now))
