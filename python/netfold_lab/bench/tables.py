"""The table of results.

Speed-up is over the better peer with its best algorithm; "same" says whether all ranks always had the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

MILLI = 1000


def _milliseconds(time_s: float) -> str:
    """Three digits, or all digits before the point if there are more."""
    time_ms = time_s * MILLI
    return f"{time_ms:.1f}" if time_ms >= 10 else f"{time_ms:.3g}"


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}x"


def results_table(title: str, results: Sequence[dict[str, Any]]) -> Table:
    """Medians with bounds, ratios and wire bytes. Values that all rows share are printed once, below the table."""
    varying = [name for name in ("tensor", "workers") if len({one[name] for one in results}) > 1]
    shared = [name for name in ("tensor", "workers") if name not in varying]
    words = [f"{name} {results[0][name]}" for name in shared]
    words += [f"faulty: by {text}" for text in sorted({one["faults"] for one in results if one["faults"]})]
    table = Table(title=title, caption="; ".join(words), box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in varying:
        table.add_column(name, no_wrap=True)
    table.add_column("system")
    measured = [_measured(one) for one in results]
    told = [name for name in measured[0] if any(row[name] for row in measured)]  # columns with at least one value
    for name in told:
        table.add_column(name, justify="right", no_wrap=True)
    for one, row in zip(results, measured, strict=True):
        system = f"{one['system']} {one['algorithm']} {one['format']}{', faulty' if one['faults'] else ''}"
        cells = [*(str(one[name]) for name in varying), system, *(row[name] for name in told)]
        table.add_row(*cells, style="bold" if one["system"] == "netfold" else None)
    return table


def _measured(one: dict[str, Any]) -> dict[str, str]:
    """Cells by heading; unknown values are empty."""
    sent, goodput, error = one.get("wire_bytes_sent"), one.get("goodput_sent"), one["max_abs_error"]
    return {
        "ms": _milliseconds(one["time_s_median"]),
        "of bound": _ratio(one.get("ratio_to_bound")),
        "speed-up": _ratio(one.get("speedup_over_best_peer")),
        "MB sent": "" if sent is None else f"{sent / 1e6:.2f}",
        "goodput": "" if goodput is None else f"{goodput:.1%}",
        "error": "NaN" if error is None else f"{error:.1g}",
        "same": "yes" if one["same_bits"] else "NO",
    }
