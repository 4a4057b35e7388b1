"""Stacked bars of a step's parts ("AI Smart NICs", figures 2a and 4a), and lines of speed-up by workers (figure 2b)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from netfold_lab.bench.train.step_timer import BACKWARD, EXPOSED, FORWARD, LOADING, PARTS, SKEW, UPDATE
from netfold_lab.bench.train.variants import ALONE
from netfold_lab.errors import UsageError

SUFFIXES = (".png", ".svg")
COLOURS = {
    LOADING: "#8d8d8d",
    FORWARD: "#2a78c2",
    BACKWARD: "#7fb6e6",
    SKEW: "#e3d5b8",
    EXPOSED: "#d95f30",
    UPDATE: "#4a9a63",
}
LABELS = {
    LOADING: "data loading",
    FORWARD: "forward",
    BACKWARD: "backward",
    SKEW: "waiting for slower workers",
    EXPOSED: "exposed communication",
    UPDATE: "weight update",
}
MILLI = 1000
DPI = 110


def check(out: Path | None) -> None:
    """Raises UsageError for a file type that is not supported."""
    if out and out.suffix not in SUFFIXES:
        raise UsageError(f"--out must end in {' or '.join(SUFFIXES)}, not {out.suffix or 'nothing'}")


def _save(figure: Any, out: Path) -> None:
    from matplotlib import pyplot

    out.parent.mkdir(parents=True, exist_ok=True)
    figure.tight_layout()
    figure.savefig(out, dpi=DPI)
    pyplot.close(figure)


def _axes(width: float, height: float) -> tuple[Any, Any]:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    return pyplot.subplots(figsize=(width, height))


def draw_breakdown(entries: Sequence[dict[str, Any]], title: str, out: Path) -> None:
    """A bar for each variant. The time that backward takes longer than without communication is hatched, as in the
    paper."""
    figure, axes = _axes(max(5.0, 1.25 * len(entries) + 1.5), 4.6)
    names = [one["name"].replace(" ", "\n") for one in entries]
    base = [0.0] * len(entries)
    for part in PARTS:
        heights = [one["parts_s"][part] * MILLI for one in entries]
        if not any(heights):
            continue
        axes.bar(names, heights, bottom=base, color=COLOURS[part], label=LABELS[part], width=0.62)
        base = [below + height for below, height in zip(base, heights, strict=True)]
    _hatch_slowdown(axes, names, entries)
    for name, top, one in zip(names, base, entries, strict=True):
        down = one.get("step_reduction")
        words = f"{top:.0f} ms" + (f"\n{-down:+.0%}" if down else "")
        axes.annotate(words, (name, top), ha="center", va="bottom", fontsize=8)
    axes.set_ylim(top=1.18 * max(base))
    axes.set_ylabel("ms a step")
    axes.set_title(title, fontsize=10)
    axes.tick_params(axis="x", labelsize=8)
    axes.legend(fontsize=8, loc="upper right", ncols=2)
    axes.grid(axis="y", alpha=0.3)
    _save(figure, out)


def _hatch_slowdown(axes: Any, names: Sequence[str], entries: Sequence[dict[str, Any]]) -> None:
    slower = [
        (name, one["parts_s"], one["backward_increase_s"])
        for name, one in zip(names, entries, strict=True)
        if one["variant"] != ALONE and one.get("backward_increase_s", 0.0) > 0
    ]
    for name, parts, increase_s in slower:
        top = (parts[LOADING] + parts[FORWARD] + parts[BACKWARD]) * MILLI
        axes.bar(
            [name],
            [increase_s * MILLI],
            bottom=[top - increase_s * MILLI],
            width=0.62,
            color="none",
            edgecolor="black",
            hatch="///",
            linewidth=0,
            label="slowdown of backward by communication" if name == slower[0][0] else None,
        )


def draw_scaling(entries: Sequence[dict[str, Any]], out: Path) -> None:
    """Speed-up over one worker by the number of workers; dashed: the ideal."""
    figure, axes = _axes(6.4, 4.6)
    workers = sorted({one["workers"] for one in entries})
    axes.plot(workers, workers, "k--", label="ideal", linewidth=1)
    for name in dict.fromkeys(one["name"] for one in entries if one["variant"] != ALONE):
        points = [(one["workers"], one["speedup"]) for one in entries if one["name"] == name]
        axes.plot(*zip(*points, strict=True), "o-", label=name, markersize=4)
    axes.set_xlabel("workers")
    axes.set_ylabel("times the throughput of one worker")
    axes.set_xticks(workers)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    _save(figure, out)
