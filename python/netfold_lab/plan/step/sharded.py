"""Steps whose state is sharded over the workers (ZeRO, FSDP): the memory of each worker, and the time line.

Each of n workers holds weights, gradients and the state of the optimizer:
- none: all three. An all-reduce of the gradients crosses the network.
- zero1: an n-th of the optimizer. Gradients are reduce-scattered, and weights are all-gathered.
- zero2: an n-th of gradients, too. Each accumulated batch has its reduce-scatter.
- zero3: an n-th of all three, and two buckets in use. Each batch has two all-gathers and a reduce-scatter.

Weights and gradients take 4 bytes each, Adam's state 8, momentum 4. (Mixed precision with Adam takes 16 bytes as well:
2 for a weight, 2 for a gradient, and 12 for the copy in fp32 and the moments.) Activations are not counted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from netfold_lab.errors import UsageError
from netfold_lab.plan.analytic import iteration
from netfold_lab.plan.cluster.devices import Device
from netfold_lab.plan.models.layers import Layer, Model
from netfold_lab.plan.step.names import ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER
from netfold_lab.plan.step.timeline import FP32_BYTES, Span, Timeline, buckets, is_of_experts, name_of, timeline

NONE, ZERO1, ZERO2, ZERO3 = SHARDINGS = ("none", "zero1", "zero2", "zero3")
OPTIMIZERS = {"sgd": 0, "momentum": 4, "adam": 8}  # bytes of state for each weight
IN_USE = 2  # gathered buckets at a time: the one in use and the next
GIGA = 1e9
Collective = Callable[[str, float], float]  # seconds of a collective of a number of bytes


@dataclass(frozen=True)
class Training:
    """How a job trains: what is sharded, batches that are accumulated in a step, the optimizer. `tensor`: the GPUs of
    a tensor-parallel group; `recompute`: what is computed again (step/tensor.py). `pipeline`: stages; `virtual`:
    chunks of a stage (step/stages.py). `experts`: the GPUs that share experts; `load`: of the busiest
    (step/experts.py).
    `group`: workers that share a copy of the state (0: all); `offload`: the host updates (step/offload.py)."""

    sharding: str = NONE
    accumulate: int = 1
    optimizer: str = "adam"
    tensor: int = 1
    recompute: str = ""
    pipeline: int = 1
    schedule: str = ""
    virtual: int = 0
    experts: int = 1
    load: float = 0.0
    group: int = 0
    offload: bool = False

    @property
    def parts(self) -> int:
        """The GPUs that hold the model once, without sharding."""
        return self.tensor * self.pipeline

    def check(self) -> None:
        """Raises UsageError for a value that does not exist."""
        if self.sharding not in SHARDINGS:
            raise UsageError(f"--sharding takes {', '.join(SHARDINGS)}, not {self.sharding}")
        if self.optimizer not in OPTIMIZERS:
            raise UsageError(f"--optimizer takes {', '.join(OPTIMIZERS)}, not {self.optimizer}")
        if self.accumulate < 1:
            raise UsageError(f"--accumulate must be at least 1, not {self.accumulate}")


DEFAULT = Training()


def bytes_of(model: Model, training: Training, workers: int, bucket_bytes: int) -> float:
    """Bytes of weights, gradients and optimizer on each worker."""
    found = 0.0
    for is_expert in (False, True):
        parameters = sum(layer.parameters for layer in model.layers if (layer.experts > 0) == is_expert)
        found += _state_bytes(parameters, training, workers / training.experts if is_expert else workers)
    if training.sharding == ZERO3:
        sizes = sorted(FP32_BYTES * sum(layer.parameters for layer in one) for one in buckets(model, bucket_bytes))
        found += sum(sizes[-IN_USE:]) + sizes[-1]  # gathered weights, one bucket's gradients
    return found


def _state_bytes(parameters: int, training: Training, workers: float) -> float:
    """Without what is gathered. `workers`: those that hold the same parameters."""
    each = FP32_BYTES * parameters
    state = 0 if training.offload else OPTIMIZERS[training.optimizer] * parameters
    if training.sharding == NONE:
        return 2 * each + state
    if training.sharding == ZERO1:
        return 2 * each + state / workers
    if training.sharding == ZERO2:
        return each + (each + state) / workers
    return (2 * each + state) / workers


def check_memory(
    model: Model, training: Training, workers: int, bucket_bytes: int, device: Device, activations: float = 0.0
) -> None:
    """Raises UsageError if the state does not fit a worker's memory; it says what would fit. `activations`: bytes."""
    room = device.memory_bytes - activations
    if device.memory_bytes and room <= 0:
        raise UsageError(
            f"the activations of {model.name} take {activations / GIGA:,.4g} GB on each worker, which has "
            f"{device.memory_bytes / GIGA:,.3g} GB; take a smaller --batch, --recompute full, or --tensor-parallel"
        )
    if not device.memory_bytes or (needed := bytes_of(model, training, workers, bucket_bytes)) <= room:
        return
    fitting = [
        f"{name} ({size / GIGA:,.3g} GB)"
        for name in SHARDINGS
        if (size := bytes_of(model, replace(training, sharding=name), workers, bucket_bytes)) <= room
    ]
    what = f"--sharding {' or '.join(fitting)} fits" if fitting else _more_workers(model, training, bucket_bytes, room)
    beside = f" beside {activations / GIGA:,.3g} GB of activations" if activations else ""
    raise UsageError(
        f"{model.name} takes {needed / GIGA:,.4g} GB on each of {workers} workers with --sharding {training.sharding} "
        f"and {training.optimizer}, without activations; a worker has {room / GIGA:,.3g} GB{beside}; {what}"
    )


def _more_workers(model: Model, training: Training, bucket_bytes: int, room: float) -> str:
    """The number of workers from which on the state fits when all of it is sharded."""
    if training.experts > 1 or training.group:
        larger = "--shard-group" if training.group else "--expert-parallel"
        return f"--tensor-parallel, --offload or a larger {larger} would be needed"
    everything = replace(training, sharding=ZERO3)
    alone = bytes_of(model, everything, 1, bucket_bytes)
    shared = 2 * (alone - bytes_of(model, everything, 2, bucket_bytes))  # what n workers divide by n
    left = room - (alone - shared)
    if left <= 0:
        return f"its two largest buckets need {(alone - shared) / GIGA:,.3g} GB: a device with more memory is needed"
    return f"--sharding {ZERO3} fits from {int(-(-shared // left)):,} workers on"


def step_line(
    model: Model,
    batch: int,
    device: Device,
    bucket_bytes: int,
    training: Training,
    workers: int,
    seconds: Collective,
    experts_seconds: Collective | None = None,
) -> Timeline:
    """The step's intervals. `seconds`: of ALL_REDUCE, REDUCE_SCATTER and ALL_GATHER; `experts_seconds`: among the
    workers that hold the same experts."""
    of_experts = experts_seconds or seconds
    if training.sharding == NONE:
        reduce_s, experts_reduce_s = (lambda size, of=of: of(ALL_REDUCE, size) for of in (seconds, of_experts))
        once = timeline(model, batch, device, bucket_bytes, reduce_s, experts_reduce_s)
        return once if training.accumulate == 1 else _accumulated(once, training.accumulate)
    return _Line(model, batch, device, bucket_bytes, training, workers, seconds, of_experts).run()


def holders(layer: Layer, training: Training, workers: int) -> float:
    """The workers that hold the same parameters of a layer."""
    return workers / training.experts if layer.experts else workers


def _accumulated(once: Timeline, batches: int) -> Timeline:
    """Batches before the last one compute only."""
    before = (batches - 1) * (once.forward_s + once.backward_s)
    spans = tuple(Span(s.lane, s.name, s.start_s + before, s.end_s + before, s.size_bytes) for s in once.spans)
    first = Span("forward", f"{batches - 1} accumulated batches", 0.0, before)
    forward, backward = batches * once.forward_s, batches * once.backward_s
    return Timeline((first, *spans), forward, backward, once.update_s, once.reduce_s, once.exposed_s)


class _Line:
    """Two queues: computation, and the network, which runs one collective after the other."""

    def __init__(
        self,
        model: Model,
        batch: int,
        device: Device,
        bucket_bytes: int,
        training: Training,
        workers: int,
        seconds: Collective,
        experts_seconds: Collective,
    ) -> None:
        self.experts_seconds = experts_seconds
        self.model, self.batch, self.device, self.training = model, batch, device, training
        self.groups, self.workers, self.seconds = buckets(model, bucket_bytes), workers, seconds
        self.now = self.network = self.reduced = 0.0
        self.spans: list[Span] = []
        self.computed = {"forward": 0.0, "backward": 0.0}

    def run(self) -> Timeline:
        """The whole step."""
        sharding = self.training.sharding
        for number in range(self.training.accumulate):
            is_last = number == self.training.accumulate - 1
            self._pass("forward", list(reversed(self.groups)), sharding == ZERO3, False)
            self._pass("backward", self.groups, sharding == ZERO3, is_last or sharding != ZERO1)
        update = sum(
            iteration.update_s(layer, self.device.update_bytes_s) / holders(layer, self.training, self.workers)
            for layer in self.model.layers
        )
        end = max(self.now, self.network)
        self.spans.append(Span("update", "weights", end, end + update))
        self.now = end + update
        if sharding != ZERO3:
            for group in self.groups:
                self._send(ALL_GATHER, group, self.now)
        total = max(self.now, self.network)
        forward, backward = self.computed.values()
        return Timeline(tuple(self.spans), forward, backward, update, self.reduced, total - forward - backward - update)

    def _pass(self, lane: str, groups: list[tuple[Layer, ...]], is_gathered: bool, is_reduced: bool) -> None:
        """One pass over all buckets. A bucket is gathered while the one before it is in use."""
        arrived = self._send(ALL_GATHER, groups[0], self.now) if is_gathered else 0.0
        for number, group in enumerate(groups):
            self.now = max(self.now, arrived)
            if is_gathered and number + 1 < len(groups):
                arrived = self._send(ALL_GATHER, groups[number + 1], self.now)
            for layer in group if lane == "backward" else reversed(group):
                of = iteration.backward_s if lane == "backward" else iteration.forward_s
                took = of(layer, self.batch, self.device.flop_s)
                self.spans.append(Span(lane, layer.name, self.now, self.now + took))
                self.computed[lane] += took
                self.now += took
            if is_reduced:
                self._send(REDUCE_SCATTER, group, self.now)

    def _send(self, collective: str, group: tuple[Layer, ...], ready_s: float) -> float:
        size = FP32_BYTES * sum(layer.parameters for layer in group)
        start = max(ready_s, self.network)
        self.network = start + (self.experts_seconds if is_of_experts(group) else self.seconds)(collective, size)
        self.reduced += self.network - start
        self.spans.append(Span("all-reduce", f"{collective} of {name_of(group)}", start, self.network, size))
        return self.network
