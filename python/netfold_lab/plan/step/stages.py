"""The stages of a pipeline: which layers each has, what it keeps in memory, and what cannot be.

A model of text has equal blocks, which the chunks of all stages share evenly. The embeddings are in the first chunk,
the output in the last one. The first and the last chunk may have a block less each ("The Llama 3 Herd of Models",
section 3.3.2: 126 blocks on 16 stages). If the output uses the weights of the embeddings, the last stage has a copy of
them.

Weights are in bf16 (2 bytes), gradients in fp32 (4), and the optimizer has a copy of the weights in fp32 beside its
state: with Adam 18 bytes for each, or 6 + 12 / n with zero1 (docs of Megatron-LM, dist_optimizer).

With zero2 the sums of gradients are sharded between micro-batches, too: 2 + 16 / n, and whole gradients of two layers,
one that is summed and one that is sent. A stage with several chunks sums the micro-batches of a chunk that follow each
other before it shards them, so the whole gradients are those of two chunks. ("The Llama 3 Herd of Models", section
3.3.2: gradients are sharded, and accumulated over micro-batches before they are reduce-scattered.) A program that keeps
whole sums until the last micro-batch, as torch.distributed.pipelining does with FSDP, is zero1 here. DeepSpeed refuses
zero2 and zero3 with pipelines.

A stage keeps the activations of every micro-batch between its two passes: the schedule says how many at a time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

from netfold_lab.errors import UsageError
from netfold_lab.plan.cluster.devices import Device
from netfold_lab.plan.cluster.spec import Cluster
from netfold_lab.plan.library.machine import Machine
from netfold_lab.plan.models.layers import Layer, Model
from netfold_lab.plan.step import schedules, tensor
from netfold_lab.plan.step.schedules import INTERLEAVED, ONE_F_ONE_B, SCHEDULES
from netfold_lab.plan.step.sharded import GIGA, NONE, OPTIMIZERS, ZERO1, ZERO2, Training
from netfold_lab.plan.step.timeline import FP32_BYTES

SHARDED = (NONE, ZERO1, ZERO2)  # with zero3, each pass of a micro-batch would wait for weights
BLOCK = re.compile(r"(\d+)-")
STAGES_TRIED = 128
WEIGHT_BYTES = 2
WHOLE = 2  # layers, or chunks, whose gradients are whole with zero2


def completed(training: Training) -> Training:
    """With the defaults of a pipeline: 1F1B, two chunks if interleaved, activations kept."""
    if training.pipeline == 1:
        return training
    schedule = training.schedule or ONE_F_ONE_B
    virtual = training.virtual or (2 if schedule == INTERLEAVED else 1)
    recompute = training.recompute or tensor.NOTHING
    return replace(training, schedule=schedule, virtual=virtual, recompute=recompute)


def check(cluster: Cluster, machine: Machine | None, model: Model, training: Training) -> None:
    """Raises UsageError for a pipeline that this model or these servers cannot have; it says what can be."""
    stages = training.pipeline
    if stages < 1:
        raise UsageError(f"--pipeline must be at least 1, not {stages}")
    if stages == 1:
        if training.schedule or training.virtual:
            raise UsageError("--schedule and --virtual-stages need a pipeline; add --pipeline")
        return
    _check_schedule(training)
    said = f"--pipeline {stages}"
    if machine is None:
        raise UsageError(f"{said}: the servers of {cluster.name} have no NVLink; write servers.nvlink")
    if not _blocks(model):
        raise UsageError(f"{said}: {model.name} has no equal blocks; take a model of text, such as gpt2 or llama3-8b")
    if not _is_shared(model, stages * training.virtual):
        what = f"{stages * training.virtual} chunks" if training.virtual > 1 else f"{stages} stages"
        raise UsageError(
            f"{said}: {what} cannot share the {_blocks(model)} blocks of {model.name} evenly; "
            f"{_fitting(machine, model, training)}"
        )
    if not machine.stages_inside(training.tensor, stages):
        raise UsageError(
            f"{said} with groups of {training.tensor}: the {machine.servers} servers with {machine.gpus} GPUs of "
            f"{cluster.name} cannot be divided evenly; {_fitting(machine, model, training)}"
        )
    if training.schedule == INTERLEAVED and training.accumulate % stages:
        below = training.accumulate // stages * stages
        near = " or ".join(str(each) for each in (below, below + stages) if each)
        raise UsageError(
            f"--schedule interleaved needs a multiple of the {stages} stages as --accumulate, not "
            f"{training.accumulate}; {near} can be"
        )


def _check_schedule(training: Training) -> None:
    if training.schedule not in SCHEDULES:
        raise UsageError(f"--schedule takes {', '.join(SCHEDULES)}, not {training.schedule}")
    if training.virtual < 1 or (training.virtual > 1) != (training.schedule == INTERLEAVED):
        raise UsageError(
            f"--virtual-stages {training.virtual} with --schedule {training.schedule}: interleaved takes 2 or more, "
            "the others one"
        )
    if training.sharding not in SHARDED:
        raise UsageError(
            f"--sharding {training.sharding}: each micro-batch of a pipeline would exchange all gradients, and gather "
            f"all weights twice; take {', '.join(SHARDED[:-1])} or {SHARDED[-1]}"
        )


def _fitting(machine: Machine, model: Model, training: Training) -> str:
    found = [
        str(stages)
        for stages in range(2, STAGES_TRIED + 1)
        if machine.stages_inside(training.tensor, stages) and _is_shared(model, stages * training.virtual)
    ]
    if found:
        return f"--pipeline {', '.join(found)} can be"
    chunks = [
        str(virtual)
        for virtual in range(2, _blocks(model) + 1)
        if machine.stages_inside(training.tensor, training.pipeline) and _is_shared(model, training.pipeline * virtual)
    ]
    if training.virtual > 1 and chunks:
        return f"--virtual-stages {', '.join(chunks)} can be"
    return "no number of stages can be"


def _blocks(model: Model) -> int:
    """The number of equal blocks between embeddings and output; 0 if there is no block."""
    if not model.layers[0].exchanged:
        return 0
    return len({told[1] for layer in model.layers if (told := BLOCK.match(layer.name))})


def _shares(blocks: int, chunks: int) -> list[int]:
    """The blocks of each chunk; empty if they cannot be shared."""
    if blocks % chunks == 0:
        return [blocks // chunks] * chunks
    if chunks > 1 and (blocks + 2) % chunks == 0:
        each = (blocks + 2) // chunks
        return [each - 1, *[each] * (chunks - 2), each - 1]
    return []


def _is_shared(model: Model, chunks: int) -> bool:
    return bool(_shares(_blocks(model), chunks))


def chunks_of(model: Model, training: Training) -> list[Model]:
    """The chunks of all stages in the order of the forward pass; chunk c is at stage c modulo the number of stages."""
    shares = _shares(_blocks(model), training.pipeline * training.virtual)
    first, *middle, last = model.layers
    per_block = len(middle) // _blocks(model)
    layers: list[tuple[Layer, ...]] = []
    at = 0
    for share in shares:
        layers.append(tuple(middle[at : at + share * per_block]))
        at += share * per_block
    layers[0] = (first, *layers[0])
    layers[-1] = (*layers[-1], replace(last, parameters=last.parameters + last.shared))
    return [replace(model, layers=each) for each in layers]


def memory(model: Model, batch: int, training: Training, workers: int) -> list[tuple[float, float]]:
    """For each stage the bytes of weights, gradients and optimizer, and those of activations."""
    chunks = chunks_of(model, training)
    order = schedules.orders(training.schedule, training.pipeline, training.accumulate, training.virtual)
    stored = [tensor.stored_bytes(each, batch, training.tensor, training.recompute) for each in chunks]
    found = []
    for stage in range(training.pipeline):
        own = chunks[stage :: training.pipeline]
        layers = [
            [
                replace(layer, parameters=tensor.own_parameters(layer, training.tensor, training.experts))
                for layer in each.layers
            ]
            for each in own
        ]
        state = _state_bytes(layers, training, workers) + _whole_bytes(layers, training)
        working = max(tensor.working_bytes(each, batch, training.tensor, training.recompute) for each in own)
        found.append((state, schedules.most_kept(order[stage], stored.__getitem__) + working))
    return found


def _state_bytes(layers: list[list[Layer]], training: Training, workers: int) -> float:
    found = 0.0
    optimizer = 0 if training.offload else FP32_BYTES + OPTIMIZERS[training.optimizer]
    whole, shared = {
        NONE: (WEIGHT_BYTES + FP32_BYTES + optimizer, 0),
        ZERO1: (WEIGHT_BYTES + FP32_BYTES, optimizer),
        ZERO2: (WEIGHT_BYTES, FP32_BYTES + optimizer),
    }[training.sharding]
    for layer in chain.from_iterable(layers):
        sharers = workers / training.experts if layer.experts else workers
        found += layer.parameters * (whole + shared / sharers)
    return found


def _whole_bytes(layers: list[list[Layer]], training: Training) -> float:
    """The gradients that are whole between two reduce-scatters: those that are summed, and those that are sent."""
    if training.sharding != ZERO2:
        return 0.0
    sizes = [sum(layer.parameters for layer in each) for each in layers]
    if training.virtual == 1:
        sizes = [layer.parameters for layer in layers[0]]
    return FP32_BYTES * sum(sorted(sizes)[-WHOLE:])


def check_memory(model: Model, batch: int, training: Training, machine: Machine, device: Device) -> None:
    """Raises UsageError if a stage cannot fit the memory of a GPU; it says what would fit."""
    workers = machine.world // training.parts
    needed = memory(model, batch, training, workers)
    stage = max(range(training.pipeline), key=lambda each: sum(needed[each]))
    state, activations = needed[stage]
    if not device.memory_bytes or state + activations <= device.memory_bytes:
        return
    what = next(
        (
            _named(training, other)
            for other in _alternatives(model, training, machine)
            if max(map(sum, memory(model, batch, other, machine.world // other.parts))) <= device.memory_bytes
        ),
        "more stages, a smaller --batch or a larger --tensor-parallel would be needed",
    )
    raise UsageError(
        f"stage {stage + 1} of {training.pipeline} of {model.name} takes {(state + activations) / GIGA:,.4g} GB, "
        f"{activations / GIGA:,.3g} GB of them activations (--schedule {training.schedule}, --recompute "
        f"{training.recompute}, --sharding {training.sharding}); a GPU has {device.memory_bytes / GIGA:,.3g} GB; {what}"
    )


def _alternatives(model: Model, training: Training, machine: Machine) -> Iterator[Training]:
    """Ways that need less memory, those that change least first."""
    lighter = [
        replace(training, sharding=sharding, recompute=recompute)
        for recompute in dict.fromkeys((training.recompute, tensor.SELECTIVE, tensor.FULL))
        for sharding in dict.fromkeys((training.sharding, ZERO1, ZERO2))
    ]
    yield from lighter[1:]
    if training.schedule == schedules.GPIPE:
        yield from (replace(each, schedule=ONE_F_ONE_B) for each in lighter)
    for stages in range(training.pipeline + 1, STAGES_TRIED + 1):
        other = replace(lighter[-1], pipeline=stages)
        is_possible = machine.stages_inside(training.tensor, stages) and _is_shared(model, stages * training.virtual)
        if is_possible and not (training.schedule == INTERLEAVED and training.accumulate % stages):
            yield other


def _named(before: Training, other: Training) -> str:
    told = [
        f"{option} {getattr(other, name)}"
        for option, name in (
            ("--pipeline", "pipeline"),
            ("--schedule", "schedule"),
            ("--recompute", "recompute"),
            ("--sharding", "sharding"),
        )
        if getattr(other, name) != getattr(before, name)
    ]
    return f"{' '.join(told)} fits"
