"""Part of `netfold bench switch`: frames in rounds. In one run, rounds that are only forwarded alternate with rounds
that are folded. So the ratio shows how much folding slows forwarding. With `--protocol pcie`, writes of 192 bytes go on
to their host unmodified while the switch folds them (case 2 of "An In-Network Parameter Aggregation using DPDK"). With
`roce`, and with `netfold` if one core receives and another folds, sums replace the frames.
"""

from __future__ import annotations

from typing import Any

from rich.table import Table

from netfold_lab.errors import UsageError

RUN_TO_COMPLETION, PER_PORT = "run-to-completion", "per-port"
LAYOUTS = (RUN_TO_COMPLETION, PER_PORT)
NOT_HERE = ("rate_gbit_s", "search", "plain", "chunks_a_job", "faults")
FORMATS = {"pcie": ("fp32",), "roce": ("fp32", "int32")}  # of protocols that do not carry all formats


def check(protocol: str, layout: str, wires: list[str], options: dict[str, Any]) -> None:
    """Raises UsageError for options that do not apply."""
    here = f"--protocol {protocol}" if protocol != "netfold" else f"--layout {layout}"
    for name in NOT_HERE:
        if options[name]:
            raise UsageError(f"--{name.replace('_', '-')} is not possible with {here}, where frames come in rounds")
    if options["threads"] != 1:
        raise UsageError(
            f"--threads is not possible with {here}; --layout per-port uses one core to receive and one to fold"
        )
    for wire in wires:
        if wire not in FORMATS.get(protocol, (wire,)):
            raise UsageError(
                f"--format with --protocol {protocol} must be {' or '.join(FORMATS[protocol])}, not {wire}"
            )


def result_of(measured: dict[str, Any], protocol: str, layout: str, workers: int, wire: str) -> dict[str, Any]:
    """The report of a run."""
    forwarding, both, folding = (measured[name] for name in ("forwarding", "while_folding", "folding"))
    folded_frames_s = (folding or both)["frames_s"]
    return {
        "system": "netfold",
        "algorithm": "in-network",
        "protocol": protocol,
        "format": wire,
        "layout": layout,
        "workers": workers,
        "size_bytes": measured["frame_bytes"],
        "forwarded_frames_s": forwarding["frames_s"],
        "forwarded_frames_s_while_folding": both["frames_s"],
        "folding_to_forwarding": both["frames_s"] / forwarding["frames_s"],
        "folded_frames_s": folded_frames_s,
        "folded_gbit_s_per_core": folded_frames_s * measured["frame_bytes"] * 8 / 1e9,
        "ns_per_frame_folding": (folding or both)["ns_per_frame"],
        **{name: measured[name] for name in ("right", "sums_checked", "buffers_leaked")},
        **{name: measured[name] for name in ("wrong_sums", "wrong_forwarded", "missing")},
        "turns": {"forwarding": forwarding, "while_folding": both, "folding": folding},
    }


def table_of(results: list[dict[str, Any]]) -> Table:
    """The table: a row for each run."""
    table = Table(title=f"{results[0]['protocol']} frames, memory to memory; millions a second", box=None)
    shape = ("workers", "format", "bytes", "cores")
    for heading in (*shape, "forwards", "while it\nfolds", "of it", "folds", "Gbit/s", "sums"):
        table.add_column(heading, justify="right", no_wrap=True)
    for one in results:
        table.add_row(
            str(one["workers"]),
            one["format"],
            str(one["size_bytes"]),
            "1" if one["layout"] == RUN_TO_COMPLETION else "1 + 1",
            f"{one['forwarded_frames_s'] / 1e6:.1f}",
            f"{one['forwarded_frames_s_while_folding'] / 1e6:.1f}",
            f"{one['folding_to_forwarding']:.0%}",
            f"{one['folded_frames_s'] / 1e6:.1f}",
            f"{one['folded_gbit_s_per_core']:.1f}",
            "right" if one["right"] else f"{one['wrong_sums']:,} WRONG",
        )
    return table
