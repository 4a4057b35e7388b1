"""The constants of a plan: for each its value, and whether the cluster file states it or the planner assumes it."""

from __future__ import annotations

from netfold_lab.plan.cluster.spec import Cluster
from netfold_lab.plan.library.machine import AMD, INTEL
from netfold_lab.plan.step import closed, experts, pipeline, stages, tensor
from netfold_lab.plan.step.answer import Answer
from netfold_lab.plan.step.collectives import LARGE_WORLD
from netfold_lab.plan.step.experts import Routing
from netfold_lab.plan.step.offload import host_bytes, pcie_bytes_s
from netfold_lab.plan.step.ranges import errors_of
from netfold_lab.plan.step.sharded import NONE, OPTIMIZERS, ZERO1, ZERO2, bytes_of

ASSUMED, FILE = "assumed", "cluster file"
ASSUMPTION_HEADS = ("what", "taken", "from")


def net_start(told: Answer) -> str:
    """The start rule in words."""
    start = told.cluster.software.start
    if start == "runtime" and told.workers > LARGE_WORLD:
        return f"in lock-step: beyond {LARGE_WORLD} workers, equal steps are simulated once"
    return start


def assumptions(told: Answer) -> list[list[str]]:
    """Every constant of the model: what, how much, and where it is from."""
    cluster, software = told.cluster, told.cluster.software

    def source(*names: str) -> str:
        return FILE if set(names) & cluster.told else ASSUMED

    device = source("compute.device")
    found = [
        [
            "model",
            f"{told.model.name}: {told.model.parameters:,} parameters, {told.model.operations / 1e9:.2f} GFLOP",
            "its layers",
        ],
        [
            "computation",
            f"{cluster.device.flop_s / 1e12:.3g} TFLOP/s sustained, backward twice the forward pass",
            source("compute.tflop_s") if "compute.tflop_s" in cluster.told else _rate(told, device),
        ],
        [
            "weight update",
            "by the host"
            if told.job.training.offload
            else f"{cluster.device.update_bytes_s / 1e9:,.4g} GB/s, 12 bytes per weight",
            source("compute.update_gbyte_s"),
        ],
        [
            "folding at a worker",
            f"{cluster.device.fold_bytes_s / 1e9:.3g} GB/s of received gradients",
            source("compute.fold_gbyte_s"),
        ],
        [
            "a message",
            f"{software.step_latency_s * 1e6:.3g} us in software before it is sent",
            source("software.step_latency_us", "software.calibration"),
        ],
        [
            "packets",
            f"{software.header_bytes} bytes of headers for {software.mtu} of payload",
            source("software.mtu", "software.header_bytes"),
        ],
        ["memory of a worker", _memory(told), source("compute.memory_gb", "compute.device")],
        ["buckets", f"{software.bucket_bytes / 2**20:.3g} MiB", source("software.bucket_mib")],
        ["numbers on the wire", software.wire, source("software.format")],
        ["when transfers start", net_start(told), source("software.start")],
        [
            "fabric",
            ", ".join([cluster.kind, *(f"{key} {size}" for key, size in cluster.sizes.items())]),
            FILE,
        ],
    ]
    if cluster.graph_read is None:
        found.append(["rate of a cable", f"{cluster.rate_bit_s / 1e9:g} Gbit/s", source("fabric.rate_gbit_s")])
        found.append(["latency of a cable", f"{cluster.latency_s * 1e6:g} us", source("fabric.latency_us")])
    if cluster.layout is not None and cluster.layout.nvlink is not None:
        found += _servers(cluster)
    if cluster.device.moved_bytes_s:
        found.append(_moved(told))
    if told.job.training.tensor > 1:
        found.append(_tensor(told))
    if told.job.training.experts > 1:
        found += _experts(told)
    if told.job.training.pipeline > 1:
        found += _pipeline(told)
    if told.job.training.offload:
        found.append(_offloaded(told, source("compute.host_gbyte_s")))
    if told.job.training.group:
        copies = told.groups // told.job.training.group
        shared = f"{told.job.training.group} workers share a copy of the state; {copies} copies"
        found.append(["groups of shards", shared, "the command"])
    if cluster.measured is not None:
        curve = cluster.measured
        fitted = f"{len(curve.lines)} pieces through {curve.points} sizes, at most {curve.off:.0%} off"
        found.append(["measured", fitted, curve.source])
    if cluster.folding is not None:
        found += map(list, cluster.folding.assumptions(software.wire))
    for what, rate in (
        ("encoding", software.encode_bytes_s),
        ("decoding", software.decode_bytes_s),
        ("copies between device and host", software.stage_bytes_s),
    ):
        charged = f"{rate / 1e9:g} GB/s" if rate else "not charged"
        found.append([what, charged, FILE if rate else "the cluster file has no rate"])
    return found


def _rate(told: Answer, device: str) -> str:
    trained = "models of text" if told.model.tokens and told.cluster.device.text_flop_s else "ResNet-50"
    return f"{ASSUMED} for the device ({device}), from trainings of {trained}"


def _moved(told: Answer) -> list[str]:
    training, rate = told.job.training, told.cluster.device.moved_bytes_s
    shape = (told.job.batch, training.tensor, training.recompute, rate, training.load or experts.EVEN)
    moving = training.accumulate * tensor.moving_s(told.model, *shape) / training.pipeline
    took = (
        f"{1e3 * moving:,.4g} ms of the passes"
        if moving
        else f"nothing of {told.model.name}; it is counted of models of text"
    )
    return ["memory beside matrix products", f"{rate / 1e9:,.4g} GB/s: {took}", FILE]


def _tensor(told: Answer) -> list[str]:
    training, cluster = told.job.training, told.cluster
    machine = closed.machine_of(cluster.graph(), cluster.layout, cluster.software, cluster.kind)
    exchange = tensor.exchange_of(machine, training.tensor)
    waiting = training.accumulate * tensor.waiting_s(
        told.model, told.job.batch, training.tensor, training.recompute, exchange
    )
    waiting /= training.pipeline
    return [
        "tensor parallelism",
        f"groups of {training.tensor} GPUs exchange activations in bf16 for {1e3 * waiting:,.4g} ms of the passes",
        "NCCL's ring in a server; not hidden",
    ]


def _experts(told: Answer) -> list[list[str]]:
    training, cluster = told.job.training, told.cluster
    machine = closed.machine_of(cluster.graph(), cluster.layout, cluster.software, cluster.kind)
    routing = experts.routing_of(machine, training)
    waiting = tensor.waiting_s(
        told.model, told.job.batch, training.tensor, training.recompute, lambda size: 0.0, routing
    )
    waiting *= training.accumulate / training.pipeline
    count = max(layer.experts for layer in told.model.layers)
    load = f"the busiest GPU gets {routing.load:g} times the mean of tokens"
    return [
        [
            "expert parallelism",
            f"{training.experts} GPUs share the {count} experts of a layer, and exchange tokens in bf16 for "
            f"{1e3 * waiting:,.4g} ms of the passes",
            "NVLink and NICs at NCCL's rates; not hidden",
        ],
        ["load of experts", load, "--expert-load" if training.load else ASSUMED],
    ]


def _pipeline(told: Answer) -> list[list[str]]:
    training, cluster = told.job.training, told.cluster
    machine = closed.machine_of(cluster.graph(), cluster.layout, cluster.software, cluster.kind)
    assert machine is not None
    passed = pipeline.passed_bytes(told.model, told.job.batch)
    ways, count = pipeline.ways_of(machine, passed, training), training.pipeline
    chunks = f", {training.virtual} chunks a stage" if training.virtual > 1 else ""
    sent = {
        NONE: "all-reduced after the last micro-batch",
        ZERO1: "reduce-scattered after the last micro-batch",
        ZERO2: f"reduce-scattered after groups of {count} micro-batches of a chunk"
        if training.virtual > 1
        else "reduce-scattered after each micro-batch",
    }
    return [
        [
            "pipeline",
            f"{count} stages, {training.accumulate} micro-batches, {training.schedule}{chunks}",
            "the command",
        ],
        ["gradients of a stage", sent[training.sharding], f"--sharding {training.sharding}"],
        [
            "between stages",
            f"{passed / training.tensor / 2**20:.3g} MiB of a GPU: {1e6 * ways.between_s:,.3g} us over its part of the "
            f"NICs ({ways.crossings(count)} of {count - 1} boundaries), else {1e6 * ways.inside_s:,.3g} us over NVLink",
            "NCCL's hop; beside computation; not slowed by collectives",
        ],
    ]


def _offloaded(told: Answer, source: str) -> list[str]:
    cluster, training = told.cluster, told.job.training
    assert cluster.layout is not None
    own = told.job.gradients_bytes / 4
    own /= 1 if training.sharding == NONE else training.group or told.groups
    each = host_bytes(training)
    size = own * (OPTIMIZERS[training.optimizer] + 4) * cluster.layout.gpus / 1e9
    return [
        "offloaded optimizer",
        f"{size:,.4g} GB of a server's memory, not checked; {cluster.host_bytes_s / 1e9:g} GB/s of it for {each} bytes "
        f"a weight; {pcie_bytes_s(cluster.layout) / 1e9:.3g} GB/s of PCIe for each GPU",
        source,
    ]


def _servers(cluster: Cluster) -> list[list[str]]:
    layout = cluster.layout
    assert layout is not None and layout.nvlink is not None
    nvlink = layout.nvlink
    through = "NVSwitch that sums" if nvlink.sums else "NVSwitch" if nvlink.is_switched else "direct links"
    return [
        ["NVLink", f"{nvlink.rate_bit_s / 1e9:g} Gbit/s a GPU and direction, generation {nvlink.generation}", FILE],
        ["between the GPUs of a server", through, FILE],
        [
            "processors of a server",
            {INTEL: "Intel", AMD: "AMD"}[layout.processor],
            FILE if cluster.told & {"servers.processor", "servers.nccl"} else ASSUMED,
        ],
        [
            "library of nccl, nccl-...",
            "NCCL 2.30: its algorithms, with its tuning table's constants",
            "NCCL's source",
        ],
        ["library of rails-...", "none yet: how Netfold could use every NIC of a server", "a plan"],
        ["library of the other algorithms", "Netfold's workers, one NIC for each", "this repository"],
    ]


def _memory(told: Answer) -> str:
    training, device = told.job.training, told.cluster.device
    if training.pipeline > 1:
        return _memory_of_stages(told)
    routing = Routing(training.experts)
    part = tensor.part_of(told.model, told.job.batch, training.tensor, "", 1.0, lambda size: 0.0, routing)
    needed = bytes_of(part, training, training.group or told.groups, told.cluster.software.bucket_bytes)
    kept = tensor.activation_bytes(told.model, told.job.batch, training.tensor, training.recompute)
    room = f"of {device.memory_bytes / 1e9:,.3g} GB" if device.memory_bytes else "of an unknown size, not checked"
    activations = (
        f"{kept / 1e9:,.3g} GB of them are activations (recomputation: {training.recompute})"
        if training.recompute
        else _uncounted(told)
    )
    return (
        f"{(needed + kept) / 1e9:,.3g} GB {room}: weights, gradients, {training.optimizer} (sharding: "
        f"{training.sharding}); {activations}"
    )


def _uncounted(told: Answer) -> str:
    """The activations of a model of text, which have no --recompute."""
    shape = (told.model, told.job.batch, told.job.training.tensor)
    whole, part = (tensor.activation_bytes(*shape, each) / 1e9 for each in (tensor.NOTHING, tensor.FULL))
    if not whole:
        return "activations are not counted"
    sizes = f"{whole:,.3g} GB with {tensor.NOTHING}, {part:,.3g} GB with {tensor.FULL}"
    return f"activations are not counted without --recompute: {sizes}"


def _memory_of_stages(told: Answer) -> str:
    training, device = told.job.training, told.cluster.device
    needed = stages.memory(told.model, told.job.batch, training, told.groups)
    stage = max(range(len(needed)), key=lambda each: sum(needed[each]))
    state, kept = needed[stage]
    room = f"of {device.memory_bytes / 1e9:,.3g} GB" if device.memory_bytes else "of an unknown size, not checked"
    return (
        f"{(state + kept) / 1e9:,.3g} GB {room} at stage {stage + 1}: weights, gradients, {training.optimizer} "
        f"(sharding: {training.sharding}); {kept / 1e9:,.3g} GB of them are activations "
        f"(recomputation: {training.recompute})"
    )


def error_rows(told: Answer) -> list[list[str]]:
    """The errors that the expected range allows for."""
    return [["expected range", why, ""] for why in errors_of(told.cluster, told.best.contender.algorithm).reasons]


def assumption_entries(told: Answer) -> list[dict[str, str]]:
    """The assumptions and the errors, for reports."""
    return [dict(zip(ASSUMPTION_HEADS, row, strict=True)) for row in [*assumptions(told), *error_rows(told)]]
