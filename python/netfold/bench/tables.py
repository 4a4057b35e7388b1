"""What people see: one table of results. Speed-up is over the better peer at its best algorithm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table

MILLI = 1000


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}x"


def results_table(title: str, results: Sequence[dict[str, Any]]) -> Table:
    """Medians beside bounds, ratios and wire bytes. What all rows share is said once, below the table."""
    varying = [name for name in ("tensor", "workers", "faults") if len({one[name] for one in results}) > 1]
    shared = [name for name in ("tensor", "workers", "faults") if name not in varying]
    caption = ", ".join(f"{name} {results[0][name]}" for name in shared if results and results[0][name])
    table = Table(title=title, caption=caption)
    for name in (*varying, "system", "algorithm", "format"):
        table.add_column(name)
    for name in ("ms", "of bound", "speed-up", "MB sent", "goodput", "max error", "same bits"):
        table.add_column(name, justify="right")
    for one in results:
        sent, goodput = one.get("wire_bytes_sent"), one.get("goodput_sent")
        error = one["max_abs_error"]
        table.add_row(
            *(str(one[name] or "none") for name in varying),
            one["system"],
            one["algorithm"],
            one["format"],
            f"{one['time_s_median'] * MILLI:.1f}",
            _ratio(one.get("ratio_to_bound")),
            _ratio(one.get("speedup_over_best_peer")),
            "" if sent is None else f"{sent / 1e6:.2f}",
            "" if goodput is None else f"{goodput:.1%}",
            "not a number" if error is None else f"{error:.2g}",
            "yes" if one["same_bits"] else "NO",
            style="bold" if one["system"] == "netfold" else None,
        )
    return table
