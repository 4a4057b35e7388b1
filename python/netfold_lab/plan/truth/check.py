"""Compares predicted and measured times: ring, halving-doubling, HDRM and in-network folding in labs of three fabrics.

The predictions are not fitted to these measurements. Two small labs give this machine's constants. With two workers on
a star, the largest tensor gives the usable part of a link's rate. With all workers on a star, the smallest tensor gives
the time of messages. On a fat tree the kernel's hash chooses routes; the model reads them from its counters, as from a
switch's tables.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from netfold.algorithms import IN_NETWORK
from netfold.chooser.work import work_of
from netfold.topology.wiring import BIGRAPH, FAT_TREE
from netfold_lab.bench import comparison
from netfold_lab.bench.comparison import ComparisonSettings
from netfold_lab.bench.sites import LabSite
from netfold_lab.errors import UsageError
from netfold_lab.lab import flows, netns
from netfold_lab.lab.cluster import Lab
from netfold_lab.lab.routed import WORKER_SETTINGS
from netfold_lab.lab.spec import STAR, LabSpec
from netfold_lab.plan.truth.model import LabModel, Machine, Routes, shape_of
from netfold_lab.sizes import by_name

HOSTS_OWN = ("ring", "halving-doubling", "hdrm")
BURST_BYTES, QUEUE_MS = 16384, 1000.0  # deep queues, because the model predicts lossless networks
PILOT_WORKERS, PILOT_BYTES, LEAST_BYTES = 2, 4 << 20, 1 << 10
LARGE_BYTES = 4 << 20
ASKED_LARGE, ASKED_SMALL, ASKED_WINNERS = 0.03, 0.15, 0.95
TIE = 0.02  # times closer than this count as equal: repetitions differ as much
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Cell:
    """One all-reduce, predicted and measured; seconds."""

    fabric: str
    algorithm: str
    size_bytes: int
    predicted_s: float
    measured_s: tuple[float, ...]

    @property
    def median_s(self) -> float:
        """The median of the repetitions."""
        return statistics.median(self.measured_s)

    @property
    def off(self) -> float:
        """Predicted divided by measured, less 1."""
        return self.predicted_s / self.median_s - 1

    @property
    def asked(self) -> float:
        """The largest allowed error."""
        return ASKED_LARGE if self.size_bytes >= LARGE_BYTES else ASKED_SMALL

    @property
    def is_within(self) -> bool:
        """Whether the error is within its limit."""
        return abs(self.off) <= self.asked


@dataclass(frozen=True)
class Winner:
    """Of one fabric and size: the algorithm that was predicted to be fastest, the one that was, and whether the
    predicted one is as fast, within TIE."""

    fabric: str
    size_bytes: int
    predicted: str
    measured: str
    is_right: bool


def algorithms_of(fabric: str) -> tuple[str, ...]:
    """The algorithms of a fabric: only a star has a switch that folds."""
    return (*HOSTS_OWN, IN_NETWORK) if fabric == STAR else HOSTS_OWN


def lab_spec(fabric: str, shape: tuple[int, int], rate_mbit_s: float, workers: int = 0) -> LabSpec:
    """A lab with lossless links."""
    count = workers or shape[0] * shape[1]
    return LabSpec(
        count,
        rate_mbit_s,
        burst_bytes=BURST_BYTES,
        latency_ms=QUEUE_MS,
        fabric=fabric,
        shape=(0, 0) if fabric == STAR else shape,
    )


def steps(fabrics: Sequence[str], sizes: Sequence[int], repeat: int) -> int:
    """The number of repetitions, for a progress bar."""
    runs = sum(len(algorithms_of(fabric)) for fabric in fabrics) * len(sizes) + 2 + 2
    return runs * (repeat + 1)


def measure(
    spec: LabSpec, algorithms: Sequence[str], sizes: Sequence[int], repeat: int, tell: Tell
) -> tuple[dict[tuple[str, int], tuple[float, ...]], Routes]:
    """Measure times by algorithm and size in a lab of its own, and the routes that the kernel chose."""
    settings = ComparisonSettings(
        by_name(sizes),
        ",".join(algorithms),
        against=(),
        repeat=repeat,
        bigraph=shape_of(spec),
    )
    settings.check(spec.workers)
    with Lab(spec) as lab:
        if spec.fabric == STAR:
            for rank in range(spec.workers):
                netns.configure(lab.worker(rank), WORKER_SETTINGS)
        if spec.fabric == FAT_TREE:
            flows.start(lab)
        entries = comparison.compare_on(
            LabSite(lab, settings.places(spec.workers)), settings, spec.burst_bytes, lambda _: None, tell
        )
        routes = _routes(lab) if spec.fabric == FAT_TREE else {}
    return {(one["algorithm"], one["size_bytes"]): tuple(one["time_s"]) for one in entries}, routes


def _routes(lab: Lab) -> Routes:
    """The spine between any two workers of different leaves: the spine that carried most of their bytes."""
    wiring = lab.spec.wiring()
    assert wiring is not None
    rank_of = {lab.fabric.address(rank): rank for rank in range(lab.spec.workers)}
    most: dict[tuple[int, int], tuple[int, int]] = {}
    for (start, _, sender, receiver), size in flows.read(lab).items():
        pair = rank_of[sender], rank_of[receiver]
        if start < wiring.half and size > most.get(pair, (0, 0))[0]:
            most[pair] = size, start
    return {
        (one, other): [wiring.switch_of(one), spine, wiring.switch_of(other)]
        for (one, other), (_, spine) in most.items()
    }


def machine_here(rate_mbit_s: float, workers: int, repeat: int, tell: Tell) -> Machine:
    """This machine's constants, from the two small labs."""
    names = ("ring", IN_NETWORK)
    pair = lab_spec(STAR, (1, 2), rate_mbit_s, PILOT_WORKERS)
    large, _ = measure(pair, names, [PILOT_BYTES], repeat, tell)
    least, _ = measure(lab_spec(STAR, (1, 2), rate_mbit_s, workers), names, [LEAST_BYTES], repeat, tell)
    ideal = LabModel(pair)
    efficiency = {
        name: ideal.seconds(name, PILOT_BYTES) / statistics.median(large[name, PILOT_BYTES]) for name in names
    }
    ring_steps = work_of("ring", workers, workers).steps
    return Machine(
        statistics.median(least["ring", LEAST_BYTES]) / ring_steps,
        min(1.0, efficiency["ring"]),
        statistics.median(least[IN_NETWORK, LEAST_BYTES]) / 2,
        min(1.0, efficiency[IN_NETWORK]),
    )


def check(
    fabrics: Sequence[str], shape: tuple[int, int], rate_mbit_s: float, sizes: Sequence[int], repeat: int, tell: Tell
) -> tuple[Machine, list[Cell]]:
    """Predict and measure. Raises UsageError, LabError, MeasurementError."""
    if strange := [each for each in fabrics if each not in (STAR, BIGRAPH, FAT_TREE)]:
        raise UsageError(f"--fabric takes {STAR}, {BIGRAPH}, {FAT_TREE}, not {strange[0]}")
    if not rate_mbit_s > 0:
        raise UsageError(f"--rate-mbit-s must be above 0, not {rate_mbit_s}")
    machine = machine_here(rate_mbit_s, shape[0] * shape[1], repeat, tell)
    cells = []
    for fabric in fabrics:
        spec = lab_spec(fabric, shape, rate_mbit_s)
        times, routes = measure(spec, algorithms_of(fabric), sizes, repeat, tell)
        model = LabModel(spec, machine, routes)
        cells += [
            Cell(fabric, algorithm, size, model.seconds(algorithm, size), measured)
            for (algorithm, size), measured in times.items()
        ]
    return machine, cells


def winners(cells: Sequence[Cell]) -> list[Winner]:
    """The fastest algorithm, by fabric and size."""
    found = []
    for fabric, size in dict.fromkeys((cell.fabric, cell.size_bytes) for cell in cells):
        some = [cell for cell in cells if (cell.fabric, cell.size_bytes) == (fabric, size)]
        said = min(some, key=lambda cell: cell.predicted_s)
        best = min(some, key=lambda cell: cell.median_s)
        is_right = said.median_s <= best.median_s * (1 + TIE)
        found.append(Winner(fabric, size, said.algorithm, best.algorithm, is_right))
    return found


def entries(machine: Machine, cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """The entries of reports."""
    return [
        {
            "system": "netfold",
            "fabric": cell.fabric,
            "algorithm": cell.algorithm,
            "format": "fp32",
            "size_bytes": cell.size_bytes,
            "time_s": list(cell.measured_s),
            "time_s_median": cell.median_s,
            "time_s_predicted": cell.predicted_s,
            "off": cell.off,
            "asked": cell.asked,
        }
        for cell in cells
    ]
