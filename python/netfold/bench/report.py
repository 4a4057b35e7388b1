"""The table and the JSON of `netfold.bench`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import torch

from netfold.bench.rounds import Entry
from netfold.sizes import size_name

REFERENCES = ("nccl", "gloo")  # speeds are compared with the first of them that was measured


class Progress:
    """One line on standard error that changes."""

    def tell(self, what: str) -> None:
        """Show what runs now."""
        sys.stderr.write(f"\r\x1b[K{what}")
        sys.stderr.flush()

    def clear(self) -> None:
        """Remove the line."""
        self.tell("")


def time_name(seconds: float) -> str:
    """Three digits, in us, ms or s."""
    if seconds >= 1:
        return f"{seconds:.3g} s"
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} us"


def results(entries: Sequence[Entry], world: int) -> list[dict[str, Any]]:
    """One object for each size and system. `bus_gbit_s` is nccl-tests' bus bandwidth: 2(n-1)/n times the size over the
    time."""
    found = []
    for entry in entries:
        one: dict[str, Any] = {"system": entry.system, "size_bytes": entry.size_bytes}
        if entry.error:
            one["error"] = entry.error
        else:
            bits = entry.size_bytes * 8 * 2 * (world - 1) / world
            one |= {
                "time_s": entry.times_s,
                "time_s_median": entry.median_s,
                "bus_gbit_s": bits / entry.median_s / 1e9,
            }
        found.append(one)
    return found


def table(entries: Sequence[Entry], world: int, device: torch.device) -> str:
    """The table as text, with the errors below it."""
    measured = [entry for entry in entries if not entry.error]
    names = [entry.system for entry in measured]
    reference = next((name for name in REFERENCES if name in names), "")
    times = {(entry.size_bytes, entry.system): entry.median_s for entry in measured}
    rows = [("size", "system", "all-reduce", "bus Gbit/s", f"against {reference}" if reference else "")]
    last = 0
    for entry, result in zip(measured, results(measured, world), strict=True):
        theirs = times.get((entry.size_bytes, reference))
        faster = f"{theirs / entry.median_s:.2f}x" if theirs and entry.system != reference else ""
        size = size_name(entry.size_bytes) if entry.size_bytes != last else ""
        rows.append((size, entry.system, time_name(entry.median_s), f"{result['bus_gbit_s']:.3g}", faster))
        last = entry.size_bytes
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [f"All-reduce of float32 on {world} ranks, tensors on {device.type}; medians, by the slowest rank", ""]
    for row in rows:
        cells = [row[0].rjust(widths[0]), row[1].ljust(widths[1])]
        cells += [cell.rjust(width) for cell, width in zip(row[2:], widths[2:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    failed = {entry.system: entry.error for entry in entries if entry.error}
    if failed:
        lines += ["", *(f"{name} was not measured: {error}" for name, error in failed.items())]
    return "\n".join(lines)
