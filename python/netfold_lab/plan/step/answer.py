"""The answers: the time of a step, the fastest algorithm, the limits, and the gain of each change."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from netfold.algorithms import IN_NETWORK
from netfold_lab.errors import UsageError
from netfold_lab.plan.cluster.costs import price_of
from netfold_lab.plan.cluster.devices import Device
from netfold_lab.plan.cluster.graph import HOST, SWITCH, Graph
from netfold_lab.plan.cluster.spec import Cluster
from netfold_lab.plan.models.layers import Model
from netfold_lab.plan.step import changes, experts, offload, pipeline, stages, tensor
from netfold_lab.plan.step.collectives import AUTO, LARGE_WORLD, LEAST, MEDIAN, MOST, Contender, Net, contenders, net_of
from netfold_lab.plan.step.names import REDUCE_SCATTER
from netfold_lab.plan.step.ranges import errors_of
from netfold_lab.plan.step.sharded import DEFAULT, NONE, Collective, Training, check_memory, step_line
from netfold_lab.plan.step.timeline import FP32_BYTES, Timeline

LEADING = 2  # algorithms that are tried again on a changed cluster, beside those that a change may favour
ON_CHANGES = ("hdrm", "hierarchical", AUTO, IN_NETWORK)
SHUFFLES = 3
FASTER = 2.0  # factor by which a resource is made faster to find limits
NOTHING = 0.005  # a smaller fraction of a step does not count as a gain
COMPUTATION, MESSAGES = "computation", "the software time of a message"
EVERY_LINK = "every link"
HOST_FOLDING, SWITCH_FOLDING = "folding at the workers", "folding in the switches"
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Outcome:
    """One algorithm on one cluster. `low_s` and `high_s`: the range in which the step's time is expected."""

    contender: Contender
    timeline: Timeline
    low_s: float
    high_s: float


@dataclass(frozen=True)
class Placement:
    """All gradients in one all-reduce: with ranks as the file lists them (by default neighbours side by side), and
    shuffled, as a scheduler may place them (the median of some shuffles)."""

    contender: Contender
    as_listed_s: float
    anywhere_s: float


@dataclass(frozen=True)
class Limit:
    """A kind of resource: the name of its busiest one, the fraction of the time it is in use, and the step's time if it
    were twice as fast."""

    role: str
    name: str
    busy: float
    step_s: float


@dataclass(frozen=True)
class Change:
    """The result of a change, with its best algorithm. `price`: None without prices."""

    name: str
    contender: Contender
    timeline: Timeline
    price: float | None


@dataclass(frozen=True)
class Job:
    """A model, the samples of each worker and batch, and the way to train."""

    model: Model
    batch: int
    training: Training = DEFAULT

    def line(
        self,
        cluster: Cluster,
        net: Net,
        contender: Contender,
        device: Device | None = None,
        slower: float = 1.0,
        quantile: int = MEDIAN,
    ) -> Timeline:
        """The step. `device`: in place of the cluster's; `slower`: a factor of communication. Raises ValueError."""

        def seconds(collective: str, size: float) -> float:
            among = contender.of(collective)
            if not self.training.group:
                return slower * net.seconds(among, size, quantile)
            took = net.seconds(among.within(self.training.group), size, quantile)
            if collective == REDUCE_SCATTER:
                apart = contender.one_of_each(self.training.group)
                took += net.seconds(apart, size / self.training.group, quantile)
            return slower * took

        def experts_seconds(collective: str, size: float) -> float:
            return slower * net.seconds(contender.of(collective).one_of_each(self.training.experts), size, quantile)

        bucket_bytes = cluster.software.bucket_bytes
        taken = offload.device_of(cluster, device or cluster.device, self.training)
        if self.training.pipeline > 1:
            line = self._pipeline(net, bucket_bytes, taken, seconds, experts_seconds, slower)
            return offload.with_copies(line, cluster, self.training, self._copied_bytes(net))
        model = self.part(net, taken)
        sharers = self.sharers(net)
        line = step_line(model, self.batch, taken, bucket_bytes, self.training, sharers, seconds, experts_seconds)
        return offload.with_copies(line, cluster, self.training, self._copied_bytes(net))

    def _copied_bytes(self, net: Net) -> float:
        """Bytes of the gradients whose weights a GPU's host updates."""
        return self.gradients_bytes / (1 if self.training.sharding == NONE else self.sharers(net))

    def _pipeline(
        self,
        net: Net,
        bucket_bytes: int,
        device: Device,
        seconds: Collective,
        experts_seconds: Collective,
        slower: float,
    ) -> Timeline:
        training, machine = self.training, net.machine
        assert machine is not None
        chunks = [self.part(net, device, each) for each in stages.chunks_of(self.model, training)]
        ways = pipeline.ways_of(machine, pipeline.passed_bytes(self.model, self.batch), training, slower)
        shared_bytes = FP32_BYTES * self.model.layers[-1].shared
        summing = pipeline.ways_of(machine, shared_bytes, training, slower)
        shared_s = summing.seconds(0, training.pipeline - 1) if shared_bytes else 0.0
        return pipeline.line(
            chunks,
            self.batch,
            device,
            bucket_bytes,
            training,
            self.workers(net),
            seconds,
            experts_seconds,
            ways,
            shared_s,
        )

    def part(self, net: Net, device: Device, of: Model | None = None) -> Model:
        """The part of the model, or of a chunk of it, that a worker computes."""
        training = self.training
        exchange = tensor.exchange_of(net.machine, training.tensor)
        routing = experts.routing_of(net.machine, training)
        return tensor.part_of(
            of or self.model,
            self.batch,
            training.tensor,
            training.recompute,
            device.flop_s,
            exchange,
            routing,
            device.moved_bytes_s,
        )

    @property
    def gradients_bytes(self) -> int:
        """Bytes of the gradients of a GPU; of a pipeline, of a mean stage."""
        shares = (self.training.tensor, self.training.experts)
        own = sum(tensor.own_parameters(layer, *shares) for layer in self.model.layers)
        return FP32_BYTES * own // self.training.pipeline

    def workers(self, net: Net) -> int:
        """Workers with different samples: the GPUs that divide the model are one."""
        return net.world // self.training.parts

    def sharers(self, net: Net) -> int:
        """Workers that share the state of the optimizer, if it is sharded."""
        return self.training.group or self.workers(net)

    def check(self, cluster: Cluster, net: Net) -> None:
        """Raises UsageError for a way to train that this cluster or the model does not allow, or that does not fit the
        memory of a worker."""
        training, bucket_bytes = self.training, cluster.software.bucket_bytes
        tensor.check(cluster, self.model, training.tensor, training.recompute)
        stages.check(cluster, net.machine, self.model, training)
        experts.check(cluster, net.machine, self.model, training)
        offload.check(cluster, net.machine, training)
        if training.pipeline > 1:
            assert net.machine is not None
            stages.check_memory(self.model, self.batch, training, net.machine, cluster.device)
            return
        kept = tensor.activation_bytes(self.model, self.batch, training.tensor, training.recompute)
        part = self.part(net, cluster.device)
        check_memory(part, training, self.sharers(net), bucket_bytes, cluster.device, kept)


@dataclass(frozen=True)
class Answer:
    """All answers, the fastest algorithm first."""

    cluster: Cluster
    job: Job
    workers: int
    outcomes: tuple[Outcome, ...]
    placements: tuple[Placement, ...]
    limits: tuple[Limit, ...]
    changes: tuple[Change, ...]
    price: float | None

    @property
    def model(self) -> Model:
        """The model of the job."""
        return self.job.model

    @property
    def batch(self) -> int:
        """Samples of each worker, or of the GPUs that divide the model, in a step."""
        return self.job.batch * self.job.training.accumulate

    @property
    def groups(self) -> int:
        """Workers with different samples: the GPUs that divide the model are one."""
        return self.workers // self.job.training.parts

    @property
    def best(self) -> Outcome:
        """The fastest algorithm."""
        return self.outcomes[0]

    @property
    def bottleneck(self) -> Limit:
        """The resource that would gain most if it were twice as fast."""
        return self.limits[0]


def outcomes(cluster: Cluster, net: Net, job: Job, wanted: Sequence[str]) -> list[Outcome]:
    """Every algorithm's step, the fastest first; of equal ones, the one with the shorter all-reduces first. Raises
    UsageError if none fits, or if the job does not fit the memory of a worker."""
    training = job.training
    job.check(cluster, net)
    found = []
    has_groups = training.experts > 1 or training.group > 0
    shape = (training.sharding != NONE, training.tensor, training.pipeline, has_groups)
    for contender in contenders(cluster, net.graph, wanted, *shape):
        try:
            line = job.line(cluster, net, contender)
        except ValueError as error:
            if wanted:
                raise UsageError(f"{contender.algorithm}: {error}") from None
            continue
        found.append(Outcome(contender, line, *_range(cluster, net, job, contender)))
    if not found:
        raise UsageError(f"{cluster.name} does not support {', '.join(wanted)}")
    return sorted(found, key=lambda one: (one.timeline.total_s, one.timeline.reduce_s))


def _range(cluster: Cluster, net: Net, job: Job, contender: Contender) -> tuple[float, float]:
    """The least and the largest time of the step, if computation and communication are off by as much as they may."""
    errors = errors_of(cluster, contender.algorithm)
    low, high = (
        job.line(
            cluster,
            net,
            contender,
            cluster.device.slower(1 + sign * errors.computation),
            1 + sign * errors.communication,
            quantile,
        ).total_s
        for sign, quantile in ((-1, LEAST), (1, MOST))
    )
    return low, high


def answer(
    cluster: Cluster,
    model: Model,
    batch: int,
    wanted: Sequence[str] = (),
    seeds: int = 3,
    tell: Tell = lambda _: None,
    training: Training = DEFAULT,
) -> Answer:
    """Compute all answers for a cluster. `tell` is told of each step. Raises UsageError."""
    if batch < 1:
        raise UsageError(f"--batch must be at least 1, not {batch}")
    training.check()
    job = Job(model, batch, stages.completed(training))
    if model.tokens and cluster.device.text_flop_s:
        cluster = replace(cluster, device=replace(cluster.device, flop_s=cluster.device.text_flop_s))
    net = net_of(cluster, seeds)
    if net.world < 2:
        raise UsageError(f"{cluster.name} has only one worker, which exchanges nothing")
    tell("comparing algorithms")
    found = outcomes(cluster, net, job, wanted)
    tell("shuffling ranks")
    placed = [_placed(net, one.contender, job.gradients_bytes) for one in found]
    tell("looking for the bottleneck")
    limits = _limits(cluster, net, job, found[0])
    changed = []
    leading = [one.contender.algorithm for one in found[:LEADING]]
    for name, other in changes.of(cluster):
        tell(name)
        is_plain = training.sharding == NONE and training.parts * training.experts == 1 and not training.group
        named = wanted or ((*leading, *ON_CHANGES) if is_plain else leading)
        best = outcomes(other, net_of(other), job, named)[0]
        changed.append(Change(name, best.contender, best.timeline, price_of(other)))
    changed.sort(key=lambda one: one.timeline.total_s)
    return Answer(
        cluster, job, net.world, tuple(found), tuple(placed), tuple(limits), tuple(changed), price_of(cluster)
    )


def _placed(net: Net, contender: Contender, size_bytes: int) -> Placement:
    """HDRM chooses partners by the places of ranks (NETFOLD_TOPOLOGY), so shuffling does not change it."""
    count = size_bytes // 4
    as_listed = net.simulate(contender, count)["time_s"]
    times = []
    for seed in range(SHUFFLES if net.world <= LARGE_WORLD else 1):
        order = [int(at) for at in np.random.default_rng(seed).permutation(net.world)]
        options = dict(contender.options)
        if contender.algorithm == "hdrm":
            options["order"] = [order.index(at) for at in range(net.world)]
        shuffled = net.on(net.graph, ranks=tuple(order))
        times.append(shuffled.simulate(replace(contender, options=tuple(options.items())), count)["time_s"])
    return Placement(contender, as_listed, statistics.median(times))


def _limits(cluster: Cluster, net: Net, job: Job, best: Outcome) -> list[Limit]:
    """Make each kind of resource twice as fast, with the same algorithm; the largest gain first."""
    largest = max((span.size_bytes for span in best.timeline.spans), default=0) // 4
    run = net.simulate(best.contender, max(1, largest))
    use = _use(net, run)
    found = []
    for role, (busy, name) in use.items():
        faster = net.on(_faster(net.graph, role))
        found.append(Limit(role, name, busy, job.line(cluster, faster, best.contender).total_s))
    if all(each.step_s > (1 - NOTHING) * best.timeline.total_s for each in found):
        whole = net.graph
        for role in {each.role for each in net.graph.resources}:
            whole = whole.scaled(role, FASTER)
        faster = net.on(whole)
        busy, name = max(use.values(), default=(0.0, EVERY_LINK))
        found.append(Limit(EVERY_LINK, name, busy, job.line(cluster, faster, best.contender).total_s))
    quick = replace(cluster.software, step_latency_s=cluster.software.step_latency_s / FASTER)
    messages = net.on(net.graph, quick)
    found.append(Limit(MESSAGES, MESSAGES, 0.0, job.line(cluster, messages, best.contender).total_s))
    device = replace(cluster.device, flop_s=cluster.device.flop_s * FASTER)
    line = job.line(cluster, net, best.contender, device)
    found.append(Limit(COMPUTATION, COMPUTATION, best.timeline.compute_s / best.timeline.total_s, line.total_s))
    return sorted(found, key=lambda one: (one.step_s, -one.busy))


def _use(net: Net, run: dict[str, Any]) -> dict[str, tuple[float, str]]:
    """For each role: the fraction of the time that its busiest resource is in use, and the name of that resource."""
    capacity = net.topology.capacity_bit_s
    use: dict[str, tuple[float, str]] = {}
    for at, bits in enumerate(run["bits_by_resource"].tolist()):
        if not bits > 0 or not run["time_s"] > 0:
            continue
        name = net.topology.resource_name(at)
        if at < len(net.graph.resources):
            role = net.graph.resources[at].role
        else:
            is_switch = any(node.kind == SWITCH and node.name in name for node in net.graph.nodes)
            role = SWITCH_FOLDING if is_switch else HOST_FOLDING
        busy = bits / (float(capacity[at]) * run["time_s"])
        if busy > use.get(role, (0.0, ""))[0]:
            use[role] = (busy, name)
    return use


def _faster(graph: Graph, role: str) -> Graph:
    if role not in (HOST_FOLDING, SWITCH_FOLDING):
        return graph.scaled(role, FASTER)
    made = Graph(list(graph.nodes), list(graph.resources), list(graph.links), graph.spread)
    kind = HOST if role == HOST_FOLDING else SWITCH
    for at, node in enumerate(graph.nodes):
        if node.kind == kind and node.fold_bit_s:
            made.fold_at([at], node.fold_bit_s * FASTER)
    return made


def gain(before_s: float, after_s: float) -> str:
    """The gain in words."""
    if abs(before_s - after_s) <= NOTHING * before_s:
        return "nothing"
    return f"{before_s / after_s:.2f}x" if after_s < before_s else f"{after_s / before_s:.2f}x slower"
