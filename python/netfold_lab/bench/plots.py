"""Plots: the speed-up over the best peer, with the curve 2(n-1)/n, by number of workers and by tensor."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

SUFFIXES = (".png", ".html")
SIZE_INCHES = (7, 4.5)


def _ours(entries: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        one for one in entries if one["system"] == "netfold" and not one["faults"] and "speedup_over_best_peer" in one
    ]


def ring_ratio(workers: int) -> float:
    """The gain of a sum in the network over a ring: 2(n-1)/n."""
    return 2 * (workers - 1) / workers


def draw(entries: Sequence[dict[str, Any]], path: Path) -> None:
    """Write the plot; the file's suffix determines its type. One line for each tensor and peer, over the number of
    workers."""
    ours = _ours(entries)
    workers = sorted({one["workers"] for one in ours})
    lines = {"2(n-1)/n": [(n, ring_ratio(n)) for n in workers]}
    several = len({one["algorithm"] for one in ours}) > 1
    for tensor, algorithm in dict.fromkeys((one["tensor"], one["algorithm"]) for one in ours):
        points = [one for one in ours if (one["tensor"], one["algorithm"]) == (tensor, algorithm)]
        what = f"{tensor}, {algorithm}," if several else tensor
        lines[f"{what} over the better peer"] = [(one["workers"], one["speedup_over_best_peer"]) for one in points]
        peers = sorted({name for one in points for name in one["speedup_over"]})
        for peer in peers if len(peers) > 1 else ():
            lines[f"{what} over {peer}"] = [(one["workers"], one["speedup_over"][peer]) for one in points]
    path.parent.mkdir(parents=True, exist_ok=True)
    (_draw_png if path.suffix == ".png" else _draw_html)(lines, path)


def _draw_png(lines: dict[str, list[tuple[int, float]]], path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=SIZE_INCHES)
    for name, points in lines.items():
        axes.plot(*zip(*points, strict=True), "--" if name == "2(n-1)/n" else "o-", label=name)
    axes.set_xlabel("workers")
    axes.set_ylabel("times faster")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


def _draw_html(lines: dict[str, list[tuple[int, float]]], path: Path) -> None:
    import plotly.graph_objects as go

    figure = go.Figure()
    for name, points in lines.items():
        x, y = zip(*points, strict=True)
        dash = "dash" if name == "2(n-1)/n" else "solid"
        figure.add_trace(go.Scatter(x=x, y=y, name=name, mode="lines+markers", line={"dash": dash}))
    figure.update_layout(xaxis_title="workers", yaxis_title="times faster", yaxis_rangemode="tozero")
    figure.write_html(path, include_plotlyjs=True)
