"""Pictures of the switch: histograms of its latencies, its size by the number of ports."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

SIZE_INCHES = (8, 5)
PAPER_PORTS = 8


def _figure(rows: int, columns: int) -> Any:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    return pyplot.subplots(rows, columns, figsize=SIZE_INCHES, squeeze=False)


def draw_latencies(entries: Sequence[dict[str, Any]], path: Path) -> None:
    """The share of frames of each kind up to a latency, a line for each load, and the limits."""
    kinds = list(dict.fromkeys(entry["kind"] for entry in entries))
    figure, axes = _figure(2, (len(kinds) + 1) // 2)
    for kind, plot in zip(kinds, axes.flat, strict=False):
        of_kind = [entry for entry in entries if entry["kind"] == kind and entry["count"]]
        for entry in of_kind:
            places, counts = zip(*entry["histogram"], strict=True)
            shares = [done / entry["count"] for done in accumulate(counts)]
            plot.step(places, shares, where="post", label=f"load {entry['load']:g}")
        for entry in of_kind[:1]:
            plot.axvline(entry["asked_ns"], linestyle="--", color="grey", label="asked")
        plot.set_title(kind)
        plot.set_xlabel("ns")
        plot.set_ylabel("share of frames")
        plot.set_ylim(0, 1.02)
        plot.legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def draw_areas(totals: Sequence[dict[str, Any]], paper: dict[str, float], path: Path) -> None:
    """LUTs, flip-flops and block RAMs over the number of ports, and the paper's switch with eight ports."""
    names = {"luts": "LUT", "flip_flops": "FF", "bram36": "BRAM36"}
    figure, axes = _figure(1, len(names))
    for (key, name), plot in zip(names.items(), axes.flat, strict=True):
        plot.plot([row["ports"] for row in totals], [row[key] for row in totals], "o-", label="here")
        plot.plot([PAPER_PORTS], [paper[key]], "x", color="black", label="paper, 8 ports")
        plot.set_title(name)
        plot.set_xlabel("ports")
        plot.set_ylim(bottom=0)
        plot.legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(path, dpi=110)
