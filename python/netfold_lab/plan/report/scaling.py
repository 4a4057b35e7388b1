"""Reports of the closed forms over numbers of nodes: a table, a picture, a page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from netfold_lab.plan.analytic.scaling import Point
from netfold_lab.plan.models.layers import Model
from netfold_lab.plan.report import charts
from netfold_lab.plan.report.page import Page, Section, Table, write_page

IDEAL = "ideal"
HEADS = ("system", "nodes", "step, ms", "forward", "backward", "update", "exposed", "x 1 node", "x base")


def rows(points: Sequence[Point], nodes: Sequence[int]) -> list[list[str]]:
    """Entries for these numbers of nodes."""
    return [
        [
            point.system,
            str(point.nodes),
            *(f"{1e3 * seconds:.1f}" for seconds in (point.step.total_s, point.step.forward_s)),
            *(f"{1e3 * seconds:.1f}" for seconds in (point.step.backward_s, point.step.update_s)),
            f"{1e3 * point.step.exposed_s:.1f}",
            f"{point.scaling:.2f}",
            f"{point.speedup_over_baseline:.2f}",
        ]
        for point in points
        if point.nodes in nodes
    ]


def lines_of(points: Sequence[Point]) -> dict[str, list[tuple[float, float]]]:
    """Throughput relative to one node, by system, and the ideal."""
    named: dict[str, list[tuple[float, float]]] = {IDEAL: sorted({(p.nodes, float(p.nodes)) for p in points})}
    for point in points:
        named.setdefault(point.system, []).append((point.nodes, point.scaling))
    return named


def draw(path: Path, points: Sequence[Point], title: str) -> None:
    """Figure 4b."""
    charts.draw_lines({title: lines_of(points)}, "nodes", "throughput, one node = 1", path, [IDEAL])


def write(path: Path, points: Sequence[Point], model: Model, batch: int) -> None:
    """The page."""
    nodes = sorted({point.nodes for point in points})
    last = [point for point in points if point.nodes == nodes[-1]]
    parts = {
        "forward": [1e3 * p.step.forward_s for p in last],
        "backward": [1e3 * p.step.backward_s for p in last],
        "weight update": [1e3 * p.step.update_s for p in last],
        "exposed all-reduce": [1e3 * p.step.exposed_s for p in last],
    }
    title = f"{model.name}: {len(model.layers)} layers, {model.parameters / 1e6:.1f} million parameters, batch {batch}"
    sections = [
        Section(
            "Throughput",
            ["Samples per second of all nodes, relative to one node. Hover for numbers; click a name to hide it."],
            [charts.lines(lines_of(points), "nodes", "throughput, one node = 1", dashed=[IDEAL])],
        ),
        Section(
            f"A step at {nodes[-1]} nodes",
            ["The parts of a step."],
            [charts.bars(parts, [p.system for p in last], "milliseconds")],
        ),
        Section(
            "Numbers",
            [
                "The model of section IV-C of FPGA-based AI Smart NICs, with the constants of its systems; other "
                "algorithms run on the same NIC, in-network folding on a switch that folds at its ports' rate."
            ],
            tables=[Table(HEADS, rows(points, nodes))],
        ),
    ]
    facts = [
        (f"{p.system}, {p.nodes} nodes, relative to the baseline", f"{p.speedup_over_baseline:.2f}x")
        for p in sorted(last[1:], key=lambda p: -p.speedup_over_baseline)[:4]
    ]
    write_page(path, Page(title, ["Throughput over the number of nodes."], facts, sections))
