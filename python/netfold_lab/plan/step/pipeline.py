"""A step of a pipeline: the passes of micro-batches through its stages, and each stage's gradients.

Stages pass activations on, and gradients back, over NVLink within a server and over the GPU's part of the NICs between
servers, beside computation. Stages of a server are neighbours. Each GPU of a tensor-parallel group sends its part.

A stage exchanges its gradients with the same stage of the other workers. A bucket is ready in the last backward pass of
its chunk. With zero2 it is sent more often, because a stage keeps only sharded sums: after each backward pass, or, if a
stage has several chunks, after the passes of a chunk that follow each other. The time of collectives and that of
transfers do not add to each other, although both use the NICs.

The time line is that of the first stage, which begins first and ends last.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from netfold_lab.plan.analytic import iteration
from netfold_lab.plan.cluster.devices import Device
from netfold_lab.plan.library import nccl
from netfold_lab.plan.library.machine import Machine
from netfold_lab.plan.models.layers import Model
from netfold_lab.plan.step import schedules
from netfold_lab.plan.step.names import ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER
from netfold_lab.plan.step.schedules import Pass, Run
from netfold_lab.plan.step.sharded import NONE, ZERO2, Collective, Training, holders
from netfold_lab.plan.step.tensor import ELEMENT_BYTES
from netfold_lab.plan.step.timeline import FP32_BYTES, Span, Timeline, buckets, is_of_experts, name_of


@dataclass(frozen=True)
class Ways:
    """Seconds of what a micro-batch sends to another stage. `inside`: the stages of a server."""

    inside: int
    inside_s: float
    between_s: float

    def seconds(self, stage: int, other: int) -> float:
        """From a stage to another one."""
        return self.inside_s if stage // self.inside == other // self.inside else self.between_s

    def crossings(self, stages: int) -> int:
        """Boundaries between neighbouring stages that are in different servers."""
        return (stages - 1) // self.inside


NO_WAY = Ways(1, 0.0, 0.0)


def ways_of(machine: Machine, size_bytes: float, training: Training, slower: float = 1.0) -> Ways:
    """The ways of messages of so many bytes of a whole group. `slower`: a factor of their times."""
    inside, part = machine.stages_inside(training.tensor, training.pipeline), size_bytes / training.tensor
    times = (slower * nccl.send_s(machine, part, is_inside) for is_inside in (True, False))
    return Ways(inside, *times)


def passed_bytes(model: Model, batch: int) -> float:
    """Bytes of a micro-batch from a stage to the next one, and back."""
    return ELEMENT_BYTES * batch * model.layers[0].exchanged


@lru_cache(maxsize=256)
def _run(
    schedule: str,
    stages: int,
    batches: int,
    virtual: int,
    forward: tuple[float, ...],
    backward: tuple[float, ...],
    ways: Ways,
) -> Run:
    return schedules.run(schedules.orders(schedule, stages, batches, virtual), forward, backward, ways.seconds)


@lru_cache(maxsize=256)
def _sent_after(schedule: str, stages: int, batches: int, virtual: int, is_sharded: bool) -> list[list[Pass]]:
    return schedules.sent_after(schedules.orders(schedule, stages, batches, virtual), is_sharded)


def line(
    chunks: list[Model],
    batch: int,
    device: Device,
    bucket_bytes: int,
    training: Training,
    workers: int,
    seconds: Collective,
    experts_seconds: Collective,
    ways: Ways,
    shared_s: float,
) -> Timeline:
    """The step. `chunks`: what a GPU computes of each (step/tensor.py). `seconds`: of a collective among the `workers`
    that hold the same part; `experts_seconds`: the same experts. `shared_s`: of summing the gradients of the
    embeddings that the last stage has a copy of."""
    stages, batches = training.pipeline, training.accumulate
    forward, backward = (
        tuple(sum(of(layer, batch, device.flop_s) for layer in each.layers) for each in chunks)
        for of in (iteration.forward_s, iteration.backward_s)
    )
    shape = (training.schedule, stages, batches, training.virtual)
    ran, alone = (_run(*shape, forward, backward, each) for each in (ways, NO_WAY))
    among = (seconds, experts_seconds) if workers > 1 else None
    sent = _sent_after(*shape, training.sharding == ZERO2)
    summed = [
        _Gradients(stage, chunks, ran, batch, device, bucket_bytes, training, among, sent[stage])
        for stage in range(stages)
    ]
    ready = max(summed[0].end_s, summed[-1].end_s) + shared_s
    ends = []
    for each in summed:
        start = max(each.end_s, ready) if shared_s and each.stage in (0, stages - 1) else each.end_s
        ends.append(each.update(start, workers))
    first = summed[0]
    computed = [batches * sum(times[::stages]) for times in (forward, backward)]
    bubble = alone.total_s - sum(computed)
    exposed = max(0.0, max(ends) - sum(computed) - bubble - first.update_s)
    spans = tuple(_passes(ran, stages) + first.spans)
    return Timeline(spans, computed[0], computed[1], first.update_s, first.reduced_s, exposed, bubble)


def _passes(ran: Run, stages: int) -> list[Span]:
    return [
        Span(
            "forward" if each.is_forward else "backward",
            f"micro-batch {each.batch + 1}, chunk {each.chunk // stages + 1}",
            ran.start_s[each],
            ran.end_s[each],
        )
        for each in ran.start_s
        if each.chunk % stages == 0
    ]


@dataclass(frozen=True, order=True)
class _Bucket:
    """Gradients of a pass, ready to be sent. `after`: which pass, in words; `is_last`: of the last micro-batch."""

    ready_s: float
    name: str
    size_bytes: int
    of_experts: bool
    after: str
    is_last: bool


class _Gradients:
    """The messages of a stage after its backward passes, and its update. `seconds`: among the GPUs with the same
    part, and among those with the same experts; None if that is one GPU. The stage sends its gradients
    after each pass of `sent_after`."""

    def __init__(
        self,
        stage: int,
        chunks: list[Model],
        ran: Run,
        batch: int,
        device: Device,
        bucket_bytes: int,
        training: Training,
        seconds: tuple[Collective, Collective] | None,
        sent_after: list[Pass],
    ) -> None:
        self.stage, self.device, self.training, self.seconds = stage, device, training, seconds
        self.spans: list[Span] = []
        self.reduced_s = self.update_s = 0.0
        self.layers = [layer for each in chunks[stage :: training.pipeline] for layer in each.layers]
        self.buckets: list[_Bucket] = []
        self.end_s = 0.0
        for each in sent_after:
            after = f" after micro-batch {each.batch + 1}" if training.sharding == ZERO2 else ""
            now, is_last = ran.start_s[each], each.batch == training.accumulate - 1
            for group in buckets(chunks[each.chunk], bucket_bytes):
                now += sum(iteration.backward_s(layer, batch, device.flop_s) for layer in group)
                size = FP32_BYTES * sum(layer.parameters for layer in group)
                self.buckets.append(_Bucket(now, name_of(group), size, is_of_experts(group), after, is_last))
            self.end_s = max(self.end_s, ran.end_s[each])
        self.buckets.sort()
        self._send(ALL_REDUCE if training.sharding == NONE else REDUCE_SCATTER, self.buckets)

    def _send(self, collective: str, sent: list[_Bucket], not_before_s: float = 0.0) -> None:
        if self.seconds is None:
            return
        network = not_before_s
        for each in sent:
            start = max(network, each.ready_s)
            network = start + self.seconds[each.of_experts](collective, each.size_bytes)
            self.reduced_s += network - start
            after = each.after if collective == REDUCE_SCATTER else ""
            name = f"{collective} of {each.name}{after}"
            self.spans.append(Span("all-reduce", name, start, network, each.size_bytes))
        self.end_s = max(self.end_s, network)

    def update(self, start_s: float, workers: int) -> float:
        """The end of the stage's step, if its update starts then."""
        is_sharded = self.training.sharding != NONE
        self.update_s = sum(
            iteration.update_s(layer, self.device.update_bytes_s)
            / (holders(layer, self.training, workers) if is_sharded else 1)
            for layer in self.layers
        )
        self.end_s = start_s + self.update_s
        self.spans.append(Span("update", "weights", start_s, self.end_s))
        if is_sharded:
            self._send(ALL_GATHER, [each for each in self.buckets if each.is_last], self.end_s)
        return self.end_s
