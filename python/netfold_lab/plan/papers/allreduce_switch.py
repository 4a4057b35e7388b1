"""Tables II and VIII and Figure 18 of "AllReduce-Switch"."""

from __future__ import annotations

from netfold_lab.bench.models import MODEL_MIB, PAPER_RATIO
from netfold_lab.plan.analytic import allreduce
from netfold_lab.plan.papers.figure import COMPUTED, Figure, Row

WORKERS = 8
DELAY_S = 2.4e-6  # Figure 17: an aggregated frame of floats
RATE_BIT_S = 10e9  # its eight ports
MIB_BITS = 8 * 2**20
TABLE_VIII_MS = {  # megabytes: ring, switch
    "AlexNet": (322.9, 184.4),
    "GoogLeNet": (70.0, 39.9),
    "ResNet-50": (134.3, 76.6),
    "VGG-11": (693.4, 396.1),
    "VGG-16": (722.2, 412.5),
    "VGG-19": (749.5, 428.1),
}


def table_ii() -> Figure:
    """Delay, bandwidth and the load of the critical node, at 10 Gbit/s and 1 us."""
    rate, delay, nodes = 10e9, 1e-6, 8
    formulas = {
        "tree": (allreduce.tree(nodes, rate, delay), (2 * 3 * delay, rate / 2, 2 * rate)),
        "ring": (allreduce.ring(nodes, rate, delay), (14 * delay, 8 * rate / 14, rate)),
        "in-network": (allreduce.in_network(nodes, rate, delay), (delay, rate, 8 * rate)),
    }
    rows = []
    for name, (ours, (wait, bandwidth, critical)) in formulas.items():
        rows += [
            Row(f"{name}: delay", wait * 1e6, ours.delay_s * 1e6, "us", COMPUTED),
            Row(f"{name}: effective bandwidth", bandwidth / 1e9, ours.bandwidth_bit_s / 1e9, "Gbit/s", COMPUTED),
            Row(f"{name}: critical node", critical / 1e9, ours.critical_bit_s / 1e9, "Gbit/s", COMPUTED),
        ]
    return Figure("Table II", "Topologies compared", ["8 nodes, 10 Gbit/s, 1 us from node to node, binary tree."], rows)


def table_viii() -> Figure:
    """All-reduces of models, 8 workers."""
    ring = allreduce.ring(WORKERS, RATE_BIT_S, DELAY_S)
    folded = allreduce.in_network(WORKERS, RATE_BIT_S, DELAY_S)
    rows = []
    for name, (ring_ms, switch_ms) in TABLE_VIII_MS.items():
        bits = MODEL_MIB[name] * MIB_BITS
        rows += [
            Row(f"{name}: ring", ring_ms, 1e3 * ring.seconds(bits), "ms"),
            Row(f"{name}: switch", switch_ms, 1e3 * folded.seconds(bits), "ms"),
            Row(f"{name}: improvement", PAPER_RATIO[name], ring.seconds(bits) / folded.seconds(bits), "x", COMPUTED),
        ]
    return Figure(
        "Table VIII",
        "All-reduces of models' gradients, 8 workers, 10 Gbit/s",
        [
            "Table II's formulas, 2.4 us from node to node (Figure 17), and the sizes in MiB, as the models' "
            "parameters need them. The table prints MB.",
            "The published times are 7% below what a link of 10 Gbit/s needs for those bytes, and 2% below "
            "what it needs for the printed number of 10^6 bytes. 10.24 Gbit/s would reproduce them, but "
            "is read off these times.",
        ],
        rows,
    )


def figure_18() -> Figure:
    """Improvement over a ring by number of workers."""
    lines = {
        "2 (n - 1) / n": [
            (
                n,
                allreduce.ring(n, RATE_BIT_S, DELAY_S).seconds(8e8)
                / allreduce.in_network(n, RATE_BIT_S, DELAY_S).seconds(8e8),
            )
            for n in range(2, 9)
        ]
    }
    eight = dict(lines["2 (n - 1) / n"])[8]
    return Figure(
        "18",
        "Improvement over a ring by number of workers",
        ["100 MB. The text has the value at 8 workers."],
        [Row("8 workers", 1.7532, eight, "x", COMPUTED)],
        (),
        {"": lines},
        ("workers", "times as fast"),
        marks={"": {COMPUTED: [(8, 1.7532)]}},
    )
