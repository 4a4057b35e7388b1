"""The values that two workers calibrate, and the steps that follow from them.

Steps without communication give the computation of each batch: forward, backward until each bucket is full, update.
They are measured twice: with a core for each worker, and with both workers on one core, where they take the caches from
each other. The second one is for more workers than cores.
Steps that exchange after backward give the part of a link's rate that arrives. The CPU times of all steps that exchange
give the CPU time of the engine and the switch, and the CPU time that starts an all-reduce. Steps that exchange within
backward give the part of its speed that the network keeps beside computation: the part with which the model has their
time. Of all batches, the one tells it in whose steps it shows most.

All else follows from these values: the bytes of more workers, the time of the network (simulated), the computation that
hides it, and how workers, engines and the switch share the cores (step_model.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

from netfold.algorithms import IN_NETWORK
from netfold_lab.bench.train.profile import Series
from netfold_lab.bench.train.rates import ring_share
from netfold_lab.bench.train.step_timer import BACKWARD, EXPOSED, FORWARD, SKEW, UPDATE
from netfold_lab.lab.spec import LabSpec
from netfold_lab.plan.truth.model import LabModel, Machine
from netfold_lab.plan.truth.step_model import Computation, Exchange, PredictedStep, predict
from netfold_lab.plan.truth.train_cases import CALIBRATION_WORKERS, CheckSettings, Way

BESIDE_LEAST = 0.5  # a network that keeps less is not believed: other programs disturbed the calibration
HALVINGS = 20
Link = tuple[str, str, bool]
"""What a link carries: algorithm, format, and whether the link of the switch is narrow."""


@dataclass(frozen=True)
class LinkCosts:
    """Of all gradients, with two workers. `efficiency`: the part of a link's rate that arrives. CPU seconds: of one
    worker's engine, of the switch for one worker, and of the computing thread to start all all-reduces in backward.
    `beside`: the part of its speed that the network keeps beside computation."""

    efficiency: float
    engine_cpu_s: float
    switch_cpu_s: float
    submit_cpu_s: float
    beside: float = 1.0


@dataclass(frozen=True)
class Calibration:
    """`counts`: the elements of each bucket; computation by batch, with a core for each worker and with a shared one;
    costs by link; `cores` that the workers share."""

    cores: int
    counts: tuple[int, ...]
    computation: dict[int, Computation]
    crowded: dict[int, Computation]
    links: dict[Link, LinkCosts]

    def predicted(self, settings: CheckSettings, workers: int, batch: int, way: Way) -> PredictedStep:
        """The step of one case."""
        exchange = exchange_of(settings, workers, way, self.counts, self.links[link_of(way)])
        computation = self.crowded if workers > self.cores else self.computation
        return predict(computation[batch], exchange, workers, self.cores, way.overlaps)


def exchange_of(settings: CheckSettings, workers: int, way: Way, counts: Sequence[int], costs: LinkCosts) -> Exchange:
    """The all-reduces of one case."""
    spec = settings.lab(workers, way.is_narrow)
    seconds = bucket_seconds(spec, way, counts, costs.efficiency)
    busy_s = sum(seconds)
    more_bytes = 1.0 if way.algorithm == IN_NETWORK else ring_share(workers) / ring_share(CALIBRATION_WORKERS)
    return Exchange(
        seconds,
        burst_s(spec, way),
        costs.submit_cpu_s / len(counts),
        costs.engine_cpu_s * more_bytes / busy_s,
        costs.switch_cpu_s * workers / busy_s,
        costs.beside,
    )


def link_of(way: Way) -> Link:
    """The calibrated link of a way."""
    return way.algorithm, way.format, way.is_narrow


def burst_s(spec: LabSpec, way: Way) -> float:
    """The time that a full token bucket saves at the slowest link."""
    saved_s = LabModel(spec).burst_s
    return saved_s * spec.rate_mbit_s / spec.switch_rate_mbit_s if way.is_narrow else saved_s


def bucket_seconds(spec: LabSpec, way: Way, counts: Sequence[int], efficiency: float = 1.0) -> tuple[float, ...]:
    """The time of each bucket's all-reduce on busy links."""
    model = LabModel(spec, Machine(efficiency=efficiency, switch_efficiency=efficiency))
    seconds = cache(lambda count: model.busy_seconds(way.algorithm, count, way.format))
    return tuple(seconds(count) for count in counts)


def computation_of(alone: Series, filled_s: Sequence[Sequence[float]], share: float) -> Computation:
    """Computation, from steps of workers that have a `share` of a core each. `filled_s`: of each of some backwards, the
    seconds until each bucket was full."""
    parts = alone.median.parts
    means = [sum(each) / len(each) for each in zip(*filled_s, strict=True)]
    ends = [max(means[: at + 1]) for at in range(len(means))]
    last = ends[-1] or 1.0  # backward ends with its last bucket
    fractions = [(end - begin) / last for begin, end in zip([0.0, *ends], ends, strict=False)]
    return Computation(
        share * parts[FORWARD],
        tuple(share * parts[BACKWARD] * fraction for fraction in fractions),
        (share * parts[UPDATE] / len(ends),) * len(ends),
    )


def link_costs(
    settings: CheckSettings, way: Way, counts: Sequence[int], alone: Series, overlapped: Series, after: Series
) -> LinkCosts:
    """The costs of one link. `overlapped` and `after`: its steps that exchange within backward and after it."""
    spec = settings.lab(CALIBRATION_WORKERS, way.is_narrow)
    ideal_s = sum(bucket_seconds(spec, way, counts))
    parts = after.median.parts
    took_s = parts[EXPOSED] + parts[UPDATE] * (len(counts) - 1) / len(counts)  # the last update comes after it
    both = [*overlapped.steps, *after.steps]
    return LinkCosts(
        min(1.0, ideal_s / (took_s + burst_s(spec, way))),
        sum(sum(step.cpu["communication"].values()) for step in both) / len(both),
        sum(step.switch_cpu_s for step in both) / len(both) / CALIBRATION_WORKERS,
        max(0.0, _computing_cpu_s(overlapped) - _computing_cpu_s(alone)),
    )


def delay_shown(
    settings: CheckSettings, way: Way, counts: Sequence[int], computation: Computation, costs: LinkCosts
) -> float:
    """The part of a step's time by which two workers show how the network is delayed beside computation. It is small
    where little of the network runs beside computation, or all is hidden. An estimate from it then follows the noise.
    """
    exchange = exchange_of(settings, CALIBRATION_WORKERS, way, counts, costs)
    slow_s, fast_s = (predict(computation, replace(exchange, beside=each), 1, 1).time_s for each in (BESIDE_LEAST, 1.0))
    return slow_s / fast_s - 1


def with_beside(
    costs: LinkCosts,
    settings: CheckSettings,
    way: Way,
    counts: Sequence[int],
    computation: Computation,
    overlapped: Series,
) -> LinkCosts:
    """The costs with the part of its speed that the network keeps beside computation. `computation`: of the two workers
    whose steps that exchange within backward are `overlapped`.

    The model gets forward, backward and update as they were in the median step. So neither other programs nor what the
    engines take of the cores count as a delay of the network."""
    step = overlapped.median
    stretch = (step.parts[BACKWARD] + step.parts[SKEW]) / sum(computation.bucket_s)
    measured = Computation(
        step.parts[FORWARD],
        tuple(stretch * seconds for seconds in computation.bucket_s),
        (step.parts[UPDATE] / len(counts),) * len(counts),
    )
    exchange = exchange_of(settings, CALIBRATION_WORKERS, way, counts, LinkCosts(costs.efficiency, 0.0, 0.0, 0.0))
    slow, fast = BESIDE_LEAST, 1.0
    for _ in range(HALVINGS):
        middle = (slow + fast) / 2
        is_later = predict(measured, replace(exchange, beside=middle), 1, 1).time_s > step.time_s
        slow, fast = (middle, fast) if is_later else (slow, middle)
    return replace(costs, beside=fast)


def _computing_cpu_s(series: Series) -> float:
    return sum(sum(step.cpu["compute"].values()) for step in series.steps) / len(series.steps)
