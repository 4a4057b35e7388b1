"""What people see: one table of results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table

MILLI = 1000


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}x"


def results_table(title: str, results: Sequence[dict[str, Any]]) -> Table:
    """Medians beside bounds, ratios and wire bytes."""
    table = Table(title=title)
    for name in ("tensor", "workers", "system", "algorithm", "format", "faults"):
        table.add_column(name)
    for name in ("median ms", "best ms", "of bound", "speed-up over best peer", "sent MB", "goodput", "max error"):
        table.add_column(name, justify="right")
    table.add_column("same bits")
    for one in results:
        sent, goodput = one.get("wire_bytes_sent"), one.get("goodput_sent")
        error = one["max_abs_error"]
        table.add_row(
            one["tensor"],
            str(one["workers"]),
            one["system"],
            one["algorithm"],
            one["format"],
            one["faults"] or "",
            f"{one['time_s_median'] * MILLI:.1f}",
            f"{min(one['time_s']) * MILLI:.1f}",
            _ratio(one.get("ratio_to_bound")),
            _ratio(one.get("speedup_over_best_peer")),
            "" if sent is None else f"{sent / 1e6:.2f}",
            "" if goodput is None else f"{goodput:.1%}",
            "not a number" if error is None else f"{error:.2g}",
            "yes" if one["same_bits"] else "NO",
            style="bold" if one["system"] == "netfold" else None,
        )
    return table
