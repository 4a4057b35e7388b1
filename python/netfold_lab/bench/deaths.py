"""`netfold bench deaths`: ranks that are killed, one after another, and how soon the others go on without them."""

from __future__ import annotations

import json as json_module
import math
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from netfold.json_output import envelope, print_json
from netfold_lab.bench.control import MeasurementError, tail
from netfold_lab.bench.screen import progress_bar
from netfold_lab.errors import UsageError
from netfold_lab.guard import sentences
from netfold_lab.lab import kept
from netfold_lab.sizes import numbers_in, sizes_of

SYSTEMS = ("netfold", "gloo")
SHRINK, RECONFIGURE = WAYS = ("shrink", "reconfigure")  # of Netfold's ranks to go on
FP32_BYTES = 4
OWN_NETWORK = ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
ENDING_S = 10.0
COLUMNS = {
    "heard": "from the death until the last rank has an error; median",
    "whole again": "from the death until the last rank has its first sum in the smaller group; median, and the longest",
    "joined": "from the moment that another rank is ready until all have their first sum with it; median",
    "lost": "steps to do again, at most",
    "torn": "tensors that a failed all-reduce left neither whole nor as they were",
}
RANKS_MAX = 1024


@dataclass(frozen=True)
class DeathSettings:
    """Settings of the measurement. The ranks all-reduce `size_bytes`; one of them is killed at a random moment,
    `every_s` after the others are whole again."""

    ranks: tuple[int, ...] = (8,)
    deaths: int = 5
    every_s: float = 0.0
    size_bytes: int = 1 << 20
    against: tuple[str, ...] = ("gloo",)
    by: str = SHRINK
    replace: bool = False
    seed: int = 1
    timeout_s: float = 60.0

    def __post_init__(self) -> None:
        if self.replace and self.by != RECONFIGURE:
            raise UsageError(f"--replace needs --by {RECONFIGURE}: a rank cannot join a group that shrinks")
        least = 2 if self.replace else self.deaths + 2
        if min(self.ranks) < least:
            raise UsageError(f"--ranks must be at least {least}, so that two are left after --deaths")
        if not (math.isfinite(self.every_s) and self.every_s >= 0):
            raise UsageError(f"--every-s must be a number of seconds, 0 or more, not {self.every_s}")
        for system in self.against:
            if system not in SYSTEMS[1:]:
                raise UsageError(f"--against knows gloo, not {system}")
        if self.by not in WAYS:
            raise UsageError(f"--by knows {' and '.join(WAYS)}, not {self.by}")


def run(system: str, ranks: int, settings: DeathSettings, tell: Callable[[str], None]) -> dict[str, Any]:
    """The entry of one system."""
    setup = {
        "system": system,
        "by": settings.by if system == SYSTEMS[0] else "new-group",
        "replace": settings.replace,
        "ranks": ranks,
        "deaths": settings.deaths,
        "every_s": settings.every_s,
        "count": max(3, settings.size_bytes // FP32_BYTES),
        "seed": settings.seed,
        "timeout_s": settings.timeout_s,
    }
    module = [sys.executable, "-m", "netfold_lab.bench.workers.deaths", json_module.dumps(setup)]
    said: list[dict[str, Any]] = []
    with tempfile.NamedTemporaryFile(prefix="netfold-deaths-") as log:  # not a pipe, which would be full of warnings
        process = subprocess.Popen([*OWN_NETWORK, *module], stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            assert process.stdout is not None
            for line in process.stdout:
                said.append(json_module.loads(line))
                if "again_s" in said[-1]:
                    tell(f"{system}, {ranks} ranks: death {sum('again_s' in each for each in said)}")
            process.wait(ENDING_S)
        finally:
            process.terminate()
            process.wait(ENDING_S)
        if process.returncode != 0 or not said or "steps" not in said[-1]:
            raise MeasurementError(
                f"{system} with {ranks} ranks did not go on after {len(said)} of its deaths and newcomers. "
                f"{tail(Path(log.name))}"
            )
    return entry_of(system, ranks, said)


def entry_of(system: str, ranks: int, said: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The entry of the results. Times are those of the last rank, from the death on."""
    deaths = [each for each in said if "again_s" in each]
    heard, again = ([each[name] for each in deaths] for name in ("heard_s", "again_s"))
    joined = [each["joined_s"] for each in said if "joined_s" in each]
    return {
        "system": system,
        "ranks": ranks,
        "deaths": len(deaths),
        "heard_s_median": statistics.median(heard),
        "heard_s_max": max(heard),
        "again_s_median": statistics.median(again),
        "again_s_max": max(again),
        "joined": len(joined),
        "joined_s_median": statistics.median(joined) if joined else None,
        "joined_s_max": max(joined, default=None),
        "steps": said[-1]["steps"],
        "lost_steps_max": max(each["lost"] for each in deaths),
        "torn_tensors": sum(each["torn"] for each in deaths),
    }


def table_of(entries: Sequence[dict[str, Any]]) -> Table:
    """One row for each system and number of ranks."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("system", no_wrap=True)
    joins = any(each["joined"] for each in entries)
    headings = ["ranks", "deaths", "heard", "whole again", "at most", "gain", *["joined"] * joins]
    for heading in (*headings, "lost", "torn"):
        table.add_column(heading, justify="right")
    ours = {each["ranks"]: each["again_s_median"] for each in entries if each["system"] == SYSTEMS[0]}
    for each in entries:
        table.add_row(
            each["system"],
            str(each["ranks"]),
            str(each["deaths"]),
            f"{each['heard_s_median'] * 1e3:.0f} ms",
            f"{each['again_s_median'] * 1e3:.0f} ms",
            f"{each['again_s_max'] * 1e3:.0f} ms",
            "" if each["system"] == SYSTEMS[0] else f"{each['again_s_median'] / ours[each['ranks']]:.2f}x",
            *[f"{each['joined_s_median'] * 1e3:.0f} ms"] * joins,
            str(each["lost_steps_max"]),
            str(each["torn_tensors"]),
        )
    return table


def register(app: typer.Typer) -> None:
    """Add the command to `netfold bench`."""
    usual = DeathSettings()

    @app.command("deaths")
    def deaths(
        ranks: Annotated[str, typer.Option(help="Numbers of ranks, with commas, such as 8,64.")] = "8",
        number: Annotated[int, typer.Option("--deaths", min=1, help="How many ranks are killed.")] = usual.deaths,
        every_s: Annotated[
            float, typer.Option(help="Time from one death to the next, in seconds; 0: a random half second.")
        ] = usual.every_s,
        size_bytes: Annotated[str, typer.Option(help="Size of the fp32 tensors, such as 1MiB.")] = "1MiB",
        against: Annotated[str, typer.Option(help="gloo, or nothing.")] = "gloo",
        replace: Annotated[
            bool, typer.Option("--replace", help="Start another rank for each that is killed; it joins the others.")
        ] = usual.replace,
        by: Annotated[
            str,
            typer.Option(help=f"How the others go on with Netfold: {' or '.join(WAYS)}."),
        ] = usual.by,
        seed: Annotated[int, typer.Option(min=0, help="Seed of the moments and of the ranks killed.")] = usual.seed,
        timeout_s: Annotated[
            float, typer.Option(min=1, max=1e5, help="Longest time for the others to go on, in seconds.")
        ] = usual.timeout_s,
        json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
    ) -> None:
        """Kill ranks: the others form a smaller group in their processes, and go on.

        The ranks are processes of this machine, in a network of their own, and all-reduce without end. One of them is
        killed, again and again. With Netfold the others call torch.distributed.shrink_group for the rank that the
        error names, or torch.distributed._reconfigure with the handles of all that are left. With Gloo they make a new
        process group, and are told which rank it was. They do not use Gloo's own reconfigure: it leaves the old
        connections open, so a rank that exchanges nothing with the dead one would wait for its timeout.
        """
        with sentences():
            sizes = sizes_of(size_bytes)
            if len(sizes) != 1:
                raise UsageError(f"--size-bytes takes one size, not {size_bytes}")
            others = tuple(name for name in against.split(",") if name)
            settings = DeathSettings(
                tuple(numbers_in(ranks, "--ranks", RANKS_MAX)),
                number,
                every_s,
                sizes[0],
                others,
                by,
                replace,
                seed,
                timeout_s,
            )
            kept.prepare()
            systems = (SYSTEMS[0], *settings.against)
            with progress_bar(len(settings.ranks) * len(systems) * settings.deaths) as tell:
                entries = []
                for each in settings.ranks:
                    for system in systems:
                        tell(f"starting {each} ranks of {system}")
                        entries.append(run(system, each, settings, tell))
            if json:
                print_json(envelope("bench deaths", asdict(settings), entries))
            else:
                show(entries)


def show(entries: Sequence[dict[str, Any]]) -> None:
    """The table, and what its columns are."""
    Console().print(table_of(entries))
    for name, meaning in COLUMNS.items():
        Console().print(f"{name}: {meaning}", style="dim")
