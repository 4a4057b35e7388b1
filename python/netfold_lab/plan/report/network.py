"""Draws a network: nodes, and links with a colour for their use. Names appear under the pointer (plotly) or in a
file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from netfold_lab.plan.cluster.graph import SWITCH, Graph
from netfold_lab.plan.report.layout import Places

SHADES = ("#c9ced6", "#8fb7e3", "#3f8ad4", "#e39b3f", "#d64545")
STEPS = (0.05, 0.35, 0.7, 0.9)
MARKS = {  # plotly's symbol, matplotlib's, colour, size
    "switch": ("square", "s", "#6b7685", 15),
    "folding": ("diamond", "D", "#8f3fbf", 16),
    "NIC": ("circle", "o", "#4d7c0f", 9),
    "GPU": ("square", "s", "#0b6bcb", 14),
    "worker": ("circle", "o", "#0b6bcb", 10),
    "PCIe switch": ("hexagon", "h", "#5b6675", 14),
    "port": ("circle", "o", "#aab2bd", 6),
    "socket": ("square", "s", "#b8860b", 20),
}
LEGEND = ("idle", "to 35%", "to 70%", "to 90%", "above 90%")


def shade(busy: float) -> int:
    """The index of the shade in SHADES."""
    return sum(busy > step for step in STEPS)


def _mark(graph: Graph, at: int) -> str:
    node = graph.nodes[at]
    if node.kind == SWITCH:
        return "folding" if node.fold_bit_s else "switch"
    return node.role if node.role in MARKS else "worker"


def edges(graph: Graph, where: Places, busy: Mapping[int, float]) -> dict[tuple[int, int], tuple[float, str]]:
    """For each pair of drawn nodes: the use of the busier direction, and its text."""
    found: dict[tuple[int, int], tuple[float, str]] = {}
    for link in graph.links:
        if link.source not in where or link.target not in where:
            continue
        pair = (min(link.source, link.target), max(link.source, link.target))
        resource = graph.resources[link.resource]
        used = busy.get(link.resource, 0.0)
        rate = f"{resource.capacity_bit_s / 1e9:g} Gbit/s" if resource.capacity_bit_s < float("inf") else "unlimited"
        if used >= found.get(pair, (-1.0, ""))[0]:
            found[pair] = (used, f"{resource.name}<br>{resource.role}, {rate}, in use {used:.0%} of the time")
    return found


def figure(graph: Graph, where: Places, busy: Mapping[int, float], title: str) -> Any:
    """A plotly figure."""
    import plotly.graph_objects as go

    drawn = go.Figure()
    lines = edges(graph, where, busy)
    for level, colour in enumerate(SHADES):
        some = [pair for pair, (used, _) in lines.items() if shade(used) == level]
        if not some:
            continue
        xs = [value for one, other in some for value in (where[one][0], where[other][0], None)]
        ys = [value for one, other in some for value in (where[one][1], where[other][1], None)]
        width = 1 + level * 0.6
        drawn.add_trace(
            go.Scatter(
                x=xs, y=ys, mode="lines", line={"color": colour, "width": width}, name=LEGEND[level], hoverinfo="skip"
            )
        )
    middles = [
        ((where[a][0] + where[b][0]) / 2, (where[a][1] + where[b][1]) / 2, text) for (a, b), (_, text) in lines.items()
    ]
    if middles:
        across, down, texts = zip(*middles, strict=True)
        drawn.add_trace(
            go.Scatter(
                x=across,
                y=down,
                mode="markers",
                marker={"size": 9, "opacity": 0},
                hovertext=texts,
                hoverinfo="text",
                showlegend=False,
            )
        )
    by_mark: dict[str, list[int]] = {}
    for node in where:
        by_mark.setdefault(_mark(graph, node), []).append(node)
    for mark, members in by_mark.items():
        symbol, _, colour, size = MARKS[mark]
        drawn.add_trace(
            go.Scatter(
                x=[where[node][0] for node in members],
                y=[where[node][1] for node in members],
                mode="markers",
                marker={"symbol": symbol, "color": colour, "size": size},
                name="folding switch" if mark == "folding" else mark,
                hovertext=[graph.nodes[node].name for node in members],
                hoverinfo="text",
            )
        )
    drawn.update_layout(title=title, height=480, xaxis={"visible": False}, yaxis={"visible": False})
    return drawn


def draw(graph: Graph, where: Places, busy: Mapping[int, float], title: str, path: Path) -> None:
    """A file. Raises OSError where it cannot be written."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    span = max((x for x, _ in where.values()), default=1.0) - min((x for x, _ in where.values()), default=0.0)
    plot, axes = pyplot.subplots(figsize=(min(20, max(6, 0.3 * span + 3)), 5))
    for (one, other), (used, _) in edges(graph, where, busy).items():
        level = shade(used)
        xs, ys = zip(where[one], where[other], strict=True)
        axes.plot(xs, ys, color=SHADES[level], linewidth=0.6 + 0.5 * level, zorder=level)
    for at, (x, y) in where.items():
        _, symbol, colour, size = MARKS[_mark(graph, at)]
        axes.plot(x, y, symbol, color=colour, markersize=size / 2, zorder=9)
    for name, colour in zip(LEGEND, SHADES, strict=True):
        axes.plot([], [], color=colour, label=name)
    axes.legend(title="in use", loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    axes.set_title(title)
    axes.axis("off")
    path.parent.mkdir(parents=True, exist_ok=True)
    plot.savefig(path, dpi=130, bbox_inches="tight")
    pyplot.close(plot)
