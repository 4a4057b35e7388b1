"""Reports of predicted and measured times."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from netfold_lab.plan.truth.calibrate import Calibration
from netfold_lab.plan.truth.check import ASKED_LARGE, ASKED_SMALL, ASKED_WINNERS, LARGE_BYTES, Cell, winners
from netfold_lab.plan.truth.model import Machine
from netfold_lab.sizes import size_name

HEADS = ("fabric", "size", "algorithm", "predicted, s", "measured, s", "off", "asked")


def findings(machine: Machine, cells: Sequence[Cell]) -> dict[str, Any]:
    """The summary: errors by size, and correctly predicted winners."""
    named = winners(cells)
    large = [abs(cell.off) for cell in cells if cell.size_bytes >= LARGE_BYTES]
    small = [abs(cell.off) for cell in cells if cell.size_bytes < LARGE_BYTES]
    return {
        "step_us": 1e6 * machine.step_s,
        "efficiency": machine.efficiency,
        "switch_step_us": 1e6 * machine.switch_step_s,
        "switch_efficiency": machine.switch_efficiency,
        "off_large_median": statistics.median(large) if large else None,
        "off_large_max": max(large, default=None),
        "off_small_median": statistics.median(small) if small else None,
        "off_small_max": max(small, default=None),
        "cells_within": sum(cell.is_within for cell in cells),
        "cells": len(cells),
        "winners_right": sum(each.is_right for each in named),
        "winners": len(named),
    }


def show(machine: Machine, cells: Sequence[Cell]) -> None:
    """Print the results on a terminal."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title="All-reduces in labs on this machine")
    for head in HEADS:
        is_text = head in ("fabric", "algorithm")
        table.add_column(head, justify="left" if is_text else "right", no_wrap=is_text)
    for cell in sorted(cells, key=lambda each: (each.fabric, each.size_bytes)):
        colour = "green" if cell.is_within else "red"
        table.add_row(
            cell.fabric,
            size_name(cell.size_bytes),
            cell.algorithm,
            f"{cell.predicted_s:.4f}",
            f"{cell.median_s:.4f}",
            f"[{colour}]{cell.off:+.1%}[/]",
            f"{cell.asked:.0%}",
        )
    console = Console()
    console.print(table)
    found = findings(machine, cells)
    console.print(
        f"within the limits ({ASKED_LARGE:.0%} from {size_name(LARGE_BYTES)} up, {ASKED_SMALL:.0%} below): "
        f"{found['cells_within']} of {found['cells']}; winner predicted correctly: {found['winners_right']} of "
        f"{found['winners']} (limit {ASKED_WINNERS:.0%})",
        highlight=False,
    )
    wrong = [each for each in winners(cells) if not each.is_right]
    for each in wrong:
        console.print(
            f"  {each.fabric}, {size_name(each.size_bytes)}: predicted {each.predicted}, measured {each.measured}"
        )


def show_calibration(found: Calibration) -> None:
    """Print the results on a terminal."""
    from rich.console import Console
    from rich.table import Table

    ranks = " and ".join(map(str, found.ranks))
    table = Table(title=f"This machine, {ranks} ranks over {found.link}", title_justify="left")
    for head in (
        "algorithm",
        "us per message",
        "ns per byte sent",
        "ns per byte folded",
        "error, median",
        "error, max",
    ):
        table.add_column(head, justify="left" if head == "algorithm" else "right", no_wrap=head == "algorithm")
    for name, costs in found.costs.items():
        table.add_row(
            name,
            f"{1e6 * costs.alpha:.1f}",
            f"{1e9 * costs.beta:.3f}",
            f"{1e9 * costs.gamma:.3f}",
            f"{found.off_median[name]:.0%}",
            f"{found.off_max[name]:.0%}",
        )
    console = Console()
    console.print(table)
    console.print(
        f"error: of {found.points_unseen} points that were not fitted to; faster algorithm predicted correctly in "
        f"{found.winners_right} of {found.winners} cases\n"
        f"folding {found.fold_gbyte_s:.1f} GB/s per core, copying {found.copy_gbyte_s:.1f} GB/s, computing "
        f"{found.compute_gflop_s:.0f} GFLOP/s",
        highlight=False,
    )
