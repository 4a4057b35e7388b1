"""Plots of a routed fabric: time over size for each algorithm, and the load of every link in every swap."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from netfold.topology.wiring import Wiring
from netfold_lab.bench.links import LinkUse

SUFFIXES = (".png", ".svg")


def _pyplot() -> Any:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    return pyplot


def draw_times(entries: Sequence[dict[str, Any]], title: str, path: Path) -> None:
    """Median time over size, a line for each system and algorithm (like Fig. 12 of eflops.md)."""
    pyplot = _pyplot()
    figure, axes = pyplot.subplots(figsize=(7, 4.5))
    for system, algorithm in dict.fromkeys((one["system"], one["algorithm"]) for one in entries):
        own = [one for one in entries if (one["system"], one["algorithm"]) == (system, algorithm)]
        points = sorted((one["size_bytes"], one["time_s_median"]) for one in own)
        axes.plot(*zip(*points, strict=True), "o-", label=f"{system} {algorithm}")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlabel("bytes of gradients")
    axes.set_ylabel("seconds")
    axes.set_title(title)
    axes.grid(alpha=0.3, which="both")
    axes.legend()
    _save(figure, path)


def draw_links(uses: Sequence[LinkUse], wiring: Wiring, path: Path) -> None:
    """A map for each of `uses`: links from top to bottom, swaps from left to right. The colour of a cell is the number
    of connections, its text the bytes."""
    pyplot = _pyplot()
    links = [link for upper, lower in wiring.cables() for link in ((upper, lower), (lower, upper))]
    most = max(use.connections_max() for use in uses)
    wide, high = 1.6 + 0.75 * max(use.swaps for use in uses), 1.6 + 0.22 * len(links)
    figure, maps = pyplot.subplots(1, len(uses), figsize=(wide * len(uses), high), sharey=True, squeeze=False)
    for axes, use in zip(maps[0], uses, strict=True):
        colours = [[len(use.cells.get((link, swap), [])) for swap in range(use.swaps)] for link in links]
        image = axes.imshow(colours, aspect="auto", cmap="YlOrRd", vmin=0, vmax=most)
        for row, link in enumerate(links):
            for swap in range(use.swaps):
                if each := use.cells.get((link, swap)):
                    colour = "white" if len(each) > 0.6 * most else "black"
                    axes.text(swap, row, f"{sum(each) / 1e3:.0f}", ha="center", va="center", fontsize=6, color=colour)
        axes.set_title(f"{use.algorithm}, {use.source}", fontsize=9)
        axes.set_xticks(range(use.swaps), [str(swap + 1) for swap in range(use.swaps)])
        axes.set_xlabel("swap (down and up)")
    names = [f"{wiring.name_of(begin)} to {wiring.name_of(end)}" for begin, end in links]
    maps[0][0].set_yticks(range(len(links)), names, fontsize=6)
    bar = figure.colorbar(image, ax=list(maps[0]), ticks=range(most + 1), pad=0.02)
    bar.set_label("connections (colour), their kB (text)")
    _save(figure, path, tight=False)


def _save(figure: Any, path: Path, tight: bool = True) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if tight:
        figure.tight_layout()
    figure.savefig(path, dpi=130, bbox_inches="tight")
    _pyplot().close(figure)
