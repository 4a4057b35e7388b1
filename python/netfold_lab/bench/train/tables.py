"""Tables of a profile: the breakdown of a step, and the CPU time by role."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from netfold_lab.bench.train.step_timer import EXPOSED, LOADING, PARTS
from netfold_lab.bench.train.variants import ALONE

MILLI = 1000
EXPLAINED = "median step in ms, mean of the workers; changes relative to the overlapped baseline"
CPU_EXPLAINED = (
    "CPU time of one worker. compute: the thread that computes; engine: all threads that communicate; added: all "
    "threads less the CPU time of computation without communication"
)


def _change(down: float | None) -> str:
    return "" if not down else f"{-down:+.0%}"


def _table(title: str, caption: str, columns: Sequence[str]) -> Table:
    table = Table(title=title, caption=caption, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("variant", min_width=12)
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def breakdown(title: str, entries: Sequence[dict[str, Any]]) -> Table:
    """A row for each variant: parts, the whole, and changes relative to the baseline."""
    shown = [part for part in PARTS if part != LOADING or any(one["parts_s"][LOADING] for one in entries)]
    with_workers = len({one["workers"] for one in entries}) > 1
    table = _table(title, EXPLAINED, [*(["workers"] if with_workers else []), *shown, "step", "step\n±", "exposed\n±"])
    for one in entries:
        changes = [_change(one.get("step_reduction")), _change(one.get("exposed_reduction"))]
        table.add_row(
            one["name"],
            *([str(one["workers"])] if with_workers else []),
            *(f"{one['parts_s'][part] * MILLI:.1f}" for part in shown),
            f"{one['time_s_median'] * MILLI:.1f}",
            *(changes if one["variant"] != ALONE else ["", ""]),
            style="bold" if one["system"] == "netfold" else None,
        )
    assert EXPOSED in shown
    return table


def cpu(entries: Sequence[dict[str, Any]]) -> Table:
    """A row for each variant: the CPU time of a step by role, and of a gigabyte of gradients."""
    columns = ["compute\nuser", "\nsystem", "engine\nuser", "\nsystem", "engine\ns/GB", "added\ns/GB", "switch\ns/GB"]
    table = _table("CPU, ms a step", CPU_EXPLAINED, columns)
    for one in entries:
        spent = one["cpu_s_per_step"]
        modes = [spent[role][mode] for role in ("compute", "communication") for mode in ("user_s", "system_s")]
        costs = [one["engine_cpu_s_per_gb"], one["added_cpu_s_per_gb"], one["switch_cpu_s_per_gb"]]
        table.add_row(
            one["name"],
            *(f"{seconds * MILLI:.0f}" for seconds in modes),
            *(f"{cost:.2f}" if one["variant"] != ALONE else "" for cost in costs),
            style="bold" if one["system"] == "netfold" else None,
        )
    return table
