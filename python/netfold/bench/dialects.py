"""`netfold bench dialects`: what one core of the switch of frames makes of RoCE and PCIe frames, memory to memory."""

from __future__ import annotations

import statistics
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from netfold.bench.report import envelope, print_json
from netfold.bench.screen import waiting
from netfold.lab.errors import UsageError
from netfold.lab.guard import sentences

DIALECTS = ("pcie", "roce")
ROUNDS = {"pcie": 4000, "roce": 1000}
GIGA = 1e9


def entry_of(dialect: str, workers: int, rounds: int) -> dict[str, Any]:
    """One entry of results. The ratio is the median of each round's own, so that drift between rounds cancels."""
    from netfold import _core

    timing = _core.time_dialect(dialect, workers, rounds)
    frames, bits = timing["frames_a_round"], timing["frame_bytes"] * 8
    pairs = zip(timing["forwarding_s"], timing["folding_s"], strict=True)
    forwarding_s, folding_s = (statistics.median(timing[name]) for name in ("forwarding_s", "folding_s"))
    return {
        "system": "netfold",
        "dialect": dialect,
        "workers": workers,
        "frame_bytes": timing["frame_bytes"],
        "forwarded_frames_s_per_core": frames / forwarding_s,
        "frames_s_per_core": frames / folding_s,
        "folded_gbit_s_per_core": frames * bits / folding_s / GIGA,
        "ns_per_frame_forwarding": forwarding_s / frames * GIGA,
        "ns_per_frame_folding": folding_s / frames * GIGA,
        "folding_to_forwarding": statistics.median(forwarded / folded for forwarded, folded in pairs),
    }


def show(entries: list[dict[str, Any]]) -> None:
    """A row a dialect and number of workers."""
    table = Table(title="one core, memory to memory; sums checked")
    for heading in ("dialect", "workers", "frame", "forwards", "folds", "Gbit/s", "of forwarding"):
        table.add_column(heading, justify="right")
    for entry in entries:
        table.add_row(
            entry["dialect"],
            str(entry["workers"]),
            f"{entry['frame_bytes']} B",
            f"{entry['forwarded_frames_s_per_core'] / 1e6:.2f} M/s",
            f"{entry['frames_s_per_core'] / 1e6:.2f} M/s",
            f"{entry['folded_gbit_s_per_core']:.1f}",
            f"{entry['folding_to_forwarding']:.0%}",
        )
    Console().print(table)


def register(app: typer.Typer) -> None:
    """Add the command to `netfold bench`."""

    @app.command("dialects")
    def dialects(
        dialect: Annotated[str, typer.Option(help="roce, pcie, or both with a comma.")] = ",".join(DIALECTS),
        workers: Annotated[str, typer.Option(help="Numbers of workers, 2 to 16, with commas.")] = "2,4,8",
        rounds: Annotated[int, typer.Option(min=0, help="Rounds of each; 0: some seconds' worth.")] = 0,
        json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
    ) -> None:
        """Frames a second that one core folds, beside what the same pipeline forwards without folding.

        Ports are queues in memory; a generator fills them, and only the pipeline's work is timed. RoCE: messages of 128
        packets of 1 KiB. PCIe: writes of 32 elements in 192 bytes. Every 16th round's sums are checked bit by bit.
        """
        with sentences():
            names = dialect.split(",")
            if unknown := set(names) - set(DIALECTS):
                raise UsageError(f"--dialect knows {', '.join(DIALECTS)}, not {', '.join(sorted(unknown))}")
            counts = [int(word) if word.isdigit() else 0 for word in workers.split(",")]
            if not all(2 <= count <= 16 for count in counts):
                raise UsageError(f"--workers are 2 to 16, not {workers}")
            entries = []
            with waiting("") as tell:
                for name in names:
                    for count in counts:
                        tell(f"{name}, {count} workers")
                        entries.append(entry_of(name, count, rounds or ROUNDS[name] * 2 // count))
            if json:
                parameters = {"dialects": names, "workers": counts, "rounds": rounds}
                print_json(envelope("bench dialects", parameters, entries))
            else:
                show(entries)
