"""Part of `netfold bench switch` (--dialect pcie): 192-byte writes of PCIe over Ethernet, which go on to their host
unmodified while the switch folds them (case 2 of "An In-Network Parameter Aggregation using DPDK").

The pipeline forwards them with no port folding, and with all workers' ports folding, in turns of the same run; so the
ratio says what folding costs the forwarding.
"""

from __future__ import annotations

from typing import Any

from rich.table import Table

from netfold.lab.errors import UsageError

RUN_TO_COMPLETION, PER_PORT = "run-to-completion", "per-port"
LAYOUTS = (RUN_TO_COMPLETION, PER_PORT)
ONLY_NETFOLD = ("rate_gbit_s", "search", "plain", "chunks_a_job", "faults")


def check(options: dict[str, Any]) -> None:
    """Raises UsageError for options that mean nothing here."""
    for name in ONLY_NETFOLD:
        if options[name]:
            raise UsageError(f"--{name.replace('_', '-')} is for --dialect netfold")
    if options["threads"] != 1:
        raise UsageError("--threads is for --dialect netfold; --layout per-port takes a core to receive, one to fold")


def result_of(measured: dict[str, Any], workers: int, layout: str) -> dict[str, Any]:
    """What is reported of a run."""
    forwarding, both, folding = (measured[name] for name in ("forwarding", "forwarding_and_folding", "folding"))
    folded_frames_s = (folding or both)["frames_s"]
    return {
        "system": "netfold",
        "algorithm": "in-network",
        "dialect": "pcie",
        "format": "fp32",
        "layout": layout,
        "workers": workers,
        "size_bytes": measured["frame_bytes"],
        "forwarded_frames_s": forwarding["frames_s"],
        "forwarded_frames_s_while_folding": both["frames_s"],
        "folding_to_forwarding": both["frames_s"] / forwarding["frames_s"],
        "folded_frames_s": folded_frames_s,
        "folded_gbit_s_per_core": folded_frames_s * measured["frame_bytes"] * 8 / 1e9,
        **{name: measured[name] for name in ("right", "wrong_sums", "wrong_writes", "sums_checked", "buffers_leaked")},
        "turns": {"forwarding": forwarding, "forwarding_and_folding": both, "folding": folding},
    }


def table_of(results: list[dict[str, Any]]) -> Table:
    """What people see: a row a run."""
    table = Table(title="writes of 192 bytes, memory to memory; millions a second")
    for heading in ("workers", "cores", "forwards", "while it folds", "of it", "folds", "Gbit/s", "sums"):
        table.add_column(heading, justify="right")
    for one in results:
        table.add_row(
            str(one["workers"]),
            "1" if one["layout"] == RUN_TO_COMPLETION else "1 + 1",
            f"{one['forwarded_frames_s'] / 1e6:.1f}",
            f"{one['forwarded_frames_s_while_folding'] / 1e6:.1f}",
            f"{one['folding_to_forwarding']:.0%}",
            f"{one['folded_frames_s'] / 1e6:.1f}",
            f"{one['folded_gbit_s_per_core']:.1f}",
            "right" if one["right"] else f"{one['wrong_sums']:,} WRONG",
        )
    return table
