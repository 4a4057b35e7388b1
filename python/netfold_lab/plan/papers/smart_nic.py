"""Figures 2 and 4 of "FPGA-based AI Smart NICs", by the model of its section IV-C (plan/analytic/smart_nic.py)."""

from __future__ import annotations

from netfold_lab.plan.analytic import scaling
from netfold_lab.plan.analytic.smart_nic import BFP_RATIO, SYSTEMS, XEON
from netfold_lab.plan.models.zoo import mlp
from netfold_lab.plan.papers.figure import COMPUTED, FITTED, Constant, Figure, Row

LAYERS = mlp(20, 2048)
NODES = range(1, 33)
ASSUMPTIONS = (
    "20 layers of 2048 x 2048. No skew between the workers of the smart NIC, as in the paper's model.",
    "The paper has no formula for the baseline: here it is MPI's ring on two cores.",
)
CONSTANTS = (
    Constant(
        "computation of a worker", "2.33 TFLOPS", "fitted to Figure 4a: steps of 0.82 and 0.60, exposed, backward"
    ),
    Constant("weight update", "126 GB/s", "fitted to Figure 4a"),
    Constant("the NIC's link", "40 Gbit/s", "section V-A"),
    Constant("additions", "8 adders at 250 MHz", "Table I (8 DSPs); the clock is assumed"),
    Constant("PCIe", "3.0 x8, 63 Gbit/s each way", "section V-A, and the standard"),
    Constant("bfp", "64 bytes in 17", "section IV-B"),
    Constant("the baseline's ring", "36 Gbit/s, 85 us a step", "fitted to Figure 4a"),
    Constant("backward pass of the baseline", "1.11 times as long", "section III"),
    Constant(
        "waiting of the baseline", "0.9% of the computation for each worker", "fitted to 2.5x and 1.4x at 32 nodes"
    ),
)


def figure_2() -> Figure:
    """Overlap: exposed parts of the baseline."""
    line = SYSTEMS["baseline"].step(LAYERS.layers, 1792, 6, XEON)
    naive = 0.51 * 1.85  # exposed without overlap, relative to the overlapped step; with overlap it is fifty times less
    scaled = {n: scaling.points(LAYERS, 1792, [n])[0].scaling for n in (6, 12, 32)}
    return Figure(
        "2",
        "Training with all-reduces beside the backward pass, 6 nodes, batch 1792",
        ASSUMPTIONS,
        [
            Row("exposed all-reduce, of the overlapped step", naive / 50, line.exposed_s / line.total_s),
            Row("compression by bfp16 (section IV-B)", 3.8, BFP_RATIO, "x", COMPUTED),
        ],
        [
            ("it scales well to 12 workers (over 80% of the ideal)", scaled[12] > 0.8 * 12),
            ("the gap to the ideal grows with the workers", scaled[6] / 6 > scaled[12] / 12 > scaled[32] / 32),
        ],
        constants=CONSTANTS,
    )


def figure_4a() -> Figure:
    """The parts of a step on six nodes."""
    base, plain, bfp = (point.step for point in scaling.points(LAYERS, 448, [6]))
    return Figure(
        "4a",
        "A step on 6 nodes, batch 448, relative to the baseline",
        ASSUMPTIONS,
        [
            Row("step, smart NIC", 0.82, plain.total_s / base.total_s, "", FITTED),
            Row("step, smart NIC with bfp", 0.60, bfp.total_s / base.total_s, "", FITTED),
            Row("backward pass, smart NIC", 0.90, plain.backward_s / base.backward_s, "", FITTED),
            Row("exposed, smart NIC", 0.63, plain.exposed_s / base.exposed_s, "", FITTED),
            Row("step, smart NIC with bfp (speed-up)", 1.6, base.total_s / bfp.total_s, "x", FITTED),
        ],
        constants=CONSTANTS,
    )


def figure_4b() -> Figure:
    """Throughput over numbers of nodes."""
    found = {batch: scaling.points(LAYERS, batch, [*NODES]) for batch in (448, 1792)}

    def over(system: str, batch: int, nodes: int) -> float:
        return scaling.ratio(found[batch], system, nodes)

    panels = {}
    for batch, points in found.items():
        panels[f"batch {batch}"] = {
            "ideal": [(n, float(n)) for n in NODES],
            **{name: [(p.nodes, p.scaling) for p in points if p.system == name] for name in SYSTEMS},
        }
    return Figure(
        "4b",
        "Throughput relative to one node",
        ASSUMPTIONS,
        [
            Row("32 nodes, batch 448, bfp", 2.5, over("smart NIC, bfp", 448, 32), "x", FITTED),
            Row("32 nodes, batch 448", 1.8, over("smart NIC", 448, 32), "x"),
            Row("6 nodes, batch 448, bfp", 1.6, over("smart NIC, bfp", 448, 6), "x", FITTED),
            Row("32 nodes, batch 1792", 1.4, over("smart NIC", 1792, 32), "x", FITTED),
            Row("6 nodes, batch 1792", 1.1, over("smart NIC", 1792, 6), "x"),
        ],
        [
            (
                "batch 1792: bfp adds nothing (below 1%)",
                over("smart NIC, bfp", 1792, 32) < 1.01 * over("smart NIC", 1792, 32),
            )
        ],
        panels,
        ("nodes", "throughput, one node = 1"),
        constants=CONSTANTS,
    )
