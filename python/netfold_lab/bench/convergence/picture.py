"""Loss and accuracy over the epochs, a line for each run; dashed lines have error feedback."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

DPI = 110


def draw(entries: Sequence[dict[str, Any]], title: str, out: Path) -> None:
    """Write the picture; the file's suffix determines its type."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4.2))
    colours = {mantissa: f"C{i}" for i, mantissa in enumerate(dict.fromkeys(one["mantissa"] for one in entries))}
    for one in entries:
        style = {"color": colours[one["mantissa"]], "linestyle": "--" if one["error_feedback"] else "-"}
        epochs = range(1, len(one["loss_by_epoch"]) + 1)
        left.plot(epochs, one["loss_by_epoch"], label=one["name"], linewidth=1.3, **style)
        right.plot(epochs, [100 * value for value in one["accuracy_by_epoch"]], linewidth=1.3, **style)
    left.set_yscale("log")
    left.set_ylabel("training loss")
    right.set_ylabel("test accuracy, %")
    right.set_ylim(bottom=max(0.0, 100 * min(one["accuracy"] for one in entries) - 10), top=100.5)
    for axes in (left, right):
        axes.set_xlabel("epoch")
        axes.grid(alpha=0.3)
    left.legend(fontsize=8)
    figure.suptitle(title, fontsize=10)
    figure.tight_layout()
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=DPI)
    pyplot.close(figure)
