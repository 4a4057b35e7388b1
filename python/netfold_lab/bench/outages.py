"""`netfold bench outages`: a training whose switch is killed, or hangs, again and again.

The same training runs once more, undisturbed. Both must end with the same parameters, bit for bit. The cost of an
outage is the difference of the steps' times.
"""

from __future__ import annotations

import json as json_module
import math
import random
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from netfold import native
from netfold.json_output import envelope, print_json
from netfold_lab.bench.control import POLL_S, MeasurementError, Ranks
from netfold_lab.bench.screen import progress_bar
from netfold_lab.bench.sites import LabSite
from netfold_lab.bench.systems import spawn
from netfold_lab.bench.train.workers import OWN_SHARED_MEMORY
from netfold_lab.errors import LabError, UsageError
from netfold_lab.guard import sentences
from netfold_lab.lab import kept, processes
from netfold_lab.lab.cluster import Lab
from netfold_lab.lab.spec import LabSpec
from netfold_lab.outputs import output
from netfold_lab.sizes import sizes_of

KILL, HANG = WAYS = ("kill", "hang")
PORT = 7171
FP32_BYTES = 4
WARM_UP_STEPS = 10  # of a switch that is back, before the next outage
UP_S = (0.5, 2.0)  # then a random time
PLOT_SUFFIXES = (".png", ".svg")
PLOT_INCHES = (9.0, 4.0)


@dataclass(frozen=True)
class OutageSettings:
    """Settings of the measurement. A switch is away for `down_s`; `size_bytes` are the gradients of a worker."""

    workers: int = 4
    outages: int = 10
    how: str = KILL
    down_s: float = 5.0
    size_bytes: int = 4 << 20
    rate_mbit_s: float = 200.0
    switch_rate_mbit_s: float = 200.0
    format: str = "fp32"
    seed: int = 1
    timeout_s: float = 60.0

    def __post_init__(self) -> None:
        if self.how not in WAYS:
            raise UsageError(f"--how must be {KILL} or {HANG}, not {self.how}")
        if self.workers < 2:
            raise UsageError(f"--workers must be at least 2, not {self.workers}")
        if not (math.isfinite(self.down_s) and self.down_s > 0):
            raise UsageError(f"--down-s must be a positive number of seconds, not {self.down_s}")
        self.lab()

    def lab(self) -> LabSpec:
        """The workers and the switch's machine. Raises UsageError."""
        return LabSpec(workers=self.workers, rate_mbit_s=self.rate_mbit_s, switch_rate_mbit_s=self.switch_rate_mbit_s)

    @property
    def hidden(self) -> int:
        """The width of a classifier whose gradients have about this size: most of them are one square layer's."""
        return max(8, math.isqrt(self.size_bytes // FP32_BYTES))


class Job:
    """The switch and the workers of one training, in a lab."""

    def __init__(self, settings: OutageSettings, site: LabSite) -> None:
        self._settings = settings
        self._site = site
        self._status = site.directory / "outages.status"
        self._ranks = Ranks("outages", site.directory / "outages.sock", site.directory / "outages.log", site.world)
        self._switch: subprocess.Popen | None = None

    def __enter__(self) -> Job:
        try:
            self.start_switch()
            self._start_workers()
            self._ranks.accept(self._settings.timeout_s)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._ranks.close()
        if self._switch is not None:
            self._switch.send_signal(signal.SIGCONT)
            processes.end_children([self._switch])
        processes.end_children(self._ranks.processes)

    def _start_workers(self) -> None:
        site, settings = self._site, self._settings
        setup = {
            "hosts": [site.address(rank) for rank in range(site.world)],
            "world": site.world,
            "store": str(site.directory / "outages.store"),
            "switch": f"{site.switch_address()}:{PORT}",
            "hidden": settings.hidden,
            "format": settings.format,
            "timeout_s": settings.timeout_s,
            "status": str(self._status),
        }
        path = site.directory / "outages.json"
        path.write_text(json_module.dumps(setup))
        module = [sys.executable, "-m", "netfold_lab.bench.workers.outages", str(self._ranks.path), str(path)]
        for rank in range(site.world):
            command = [*site.command(rank), *OWN_SHARED_MEMORY, *module, str(rank)]
            self._ranks.processes.append(spawn(command, site, self._ranks.log))

    def start_switch(self) -> None:
        """Start the switch's program, or let one that hangs go on."""
        if self._switch is not None and self._settings.how == HANG:
            self._switch.send_signal(signal.SIGCONT)
            return
        switch = native.find(native.SWITCH)
        if switch is None:
            raise UsageError("the program netfold-switch is not built: run `make build`")
        program = [str(switch), "--bind", self._site.switch_address(), "--port", str(PORT)]
        with self._ranks.log.open("ab") as log:
            self._switch = subprocess.Popen([*self._site.switch_command(), *program], stdout=log, stderr=log)

    def stop_switch(self) -> float:
        """Kill the switch, or let it hang; returns when, in CLOCK_MONOTONIC."""
        assert self._switch is not None
        self._switch.send_signal(signal.SIGSTOP if self._settings.how == HANG else signal.SIGKILL)
        when = time.monotonic()
        if self._settings.how == KILL:
            self._switch.wait()
        return when

    def status(self) -> tuple[int, int]:
        """How many steps are done, and how many switches are lost."""
        try:
            done, lost = self._status.read_text().split()
        except FileNotFoundError:
            return 0, 0
        return int(done), int(lost)

    def disturb(self, tell: Callable[[str], None]) -> list[float]:
        """All outages, each at a random moment after the switch is back; returns when they began. Then the training
        ends."""
        moment = random.Random(self._settings.seed)
        began = []
        try:
            for number in range(self._settings.outages):
                self._wait_for_switch()
                time.sleep(moment.uniform(*UP_S))
                began.append(self.stop_switch())
                time.sleep(self._settings.down_s)
                self.start_switch()
                tell(f"outage {number + 1}")
            self._wait_for_switch()
        finally:
            self._status.with_suffix(".stop").touch()
        return began

    def _wait_for_switch(self) -> None:
        """Until all ranks have the switch again, and have made a few steps with it."""
        deadline = time.monotonic() + self._settings.timeout_s
        since: int | None = None
        while True:
            done, lost = self.status()
            since = None if lost else done if since is None else since
            if since is not None and done >= since + WARM_UP_STEPS:
                return
            if time.monotonic() > deadline:
                raise MeasurementError(
                    f"the switch was not back within {self._settings.timeout_s:g} s: {done} steps are done"
                )
            time.sleep(POLL_S)

    def train(self, steps: int, timeout_s: float) -> tuple[list[float], set[str]]:
        """The times at which rank 0's steps ended, and the digests of all ranks' parameters."""
        answers = self._ranks.ask([f"train {steps}"] * self._site.world, timeout_s)
        said = [json_module.loads(answer.removeprefix("done ")) for answer in answers]
        return said[0]["ends"], {one["digest"] for one in said}


def measure(settings: OutageSettings, tell: Callable[[str], None]) -> tuple[dict[str, Any], list[float], list[float]]:
    """The entry of the results; the ends of the disturbed steps, and when outages began, in seconds."""
    longest_s = settings.outages * (settings.down_s + settings.timeout_s) + settings.timeout_s
    with Lab(settings.lab()) as lab, Job(settings, LabSite(lab)) as job:
        tell("starting the training")
        began: list[float] = []
        failed: list[BaseException] = []

        def disturb() -> None:
            try:
                began.extend(job.disturb(tell))
            except BaseException as error:
                failed.append(error)

        outages = threading.Thread(target=disturb, daemon=True)
        outages.start()
        ends, digests = job.train(0, longest_s)
        outages.join()
        if failed:
            raise failed[0]
        tell("starting the training without outages")
        quiet_ends, quiet_digests = job.train(len(ends), longest_s)
    return entry_of(settings, ends, began, quiet_ends, digests | quiet_digests), ends, began


def lost_in_steps(ends: Sequence[float], began: Sequence[float], usual_s: float) -> tuple[list[float], list[float]]:
    """The cost of each outage, in seconds: the step during which it began, and all steps until the next outage."""
    steps = [(start, end, end - start - usual_s) for start, end in pairwise(ends)]
    hit = [sum(more for start, end, more in steps if start <= when < end) for when in began]
    until = [*began[1:], math.inf]
    whole = [
        sum(more for start, end, more in steps if end > when and end <= following)
        for when, following in zip(began, until, strict=True)
    ]
    return hit, whole


def entry_of(
    settings: OutageSettings,
    ends: Sequence[float],
    began: Sequence[float],
    quiet_ends: Sequence[float],
    digests: set[str],
) -> dict[str, Any]:
    """The entry of the results."""
    quiet = [end - start for start, end in pairwise(quiet_ends)]
    usual_s = statistics.median(quiet)
    hit, whole = lost_in_steps(ends, began, usual_s)
    return {
        "system": "netfold",
        "algorithm": "auto",
        "workers": settings.workers,
        "outages": len(began),
        "steps": len(ends),
        "step_s_median": usual_s,
        "step_s_max": max(quiet),
        "lost_s_median": statistics.median(hit),
        "lost_s_max": max(hit),
        "lost_in_all_s_mean": statistics.fmean(whole),
        "same_parameters": len(digests) == 1,
    }


def show(entry: dict[str, Any], settings: OutageSettings) -> None:
    """The table."""
    what = "killed and restarted" if settings.how == KILL else "stopped and continued"
    title = f"{settings.workers} workers, {settings.size_bytes / 1e6:.1f} MB of gradients; the switch is {what}"
    table = Table(title=title, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in ("outages", "steps", "step", "lost at once", "at most", "lost in all", "parameters"):
        table.add_column(heading, justify="right")
    table.add_row(
        str(entry["outages"]),
        str(entry["steps"]),
        f"{entry['step_s_median'] * 1e3:.0f} ms",
        f"{entry['lost_s_median'] * 1e3:.0f} ms",
        f"{entry['lost_s_max'] * 1e3:.0f} ms",
        f"{entry['lost_in_all_s_mean'] * 1e3:.0f} ms",
        "same bits" if entry["same_parameters"] else "differ",
    )
    Console().print(table)
    Console().print(
        "step: undisturbed, median. lost at once: by the step in which the outage began. lost in all: by all steps "
        "until the next outage, also those without the switch; mean.",
        style="dim",
    )


def draw(ends: Sequence[float], began: Sequence[float], path: Path) -> None:
    """The time of each step, and the outages."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=PLOT_INCHES)
    start = ends[0]
    axes.plot([end - start for end in ends[1:]], [(b - a) * 1e3 for a, b in pairwise(ends)], ".", markersize=3)
    for number, when in enumerate(began):
        axes.axvline(when - start, color="tab:red", linewidth=0.8, label="" if number else "the switch goes")
    axes.set_xlabel("time in s")
    axes.set_ylabel("step in ms")
    axes.set_ylim(bottom=0)
    axes.legend(loc="upper right")
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


def register(app: typer.Typer) -> None:
    """Add the command to `netfold bench`."""
    usual = OutageSettings()

    @app.command("outages")
    def outages(
        workers: Annotated[int, typer.Option(help="Workers, each in a namespace of its own.")] = usual.workers,
        number: Annotated[
            int, typer.Option("--outages", min=1, max=10_000, help="How often the switch goes.")
        ] = usual.outages,
        how: Annotated[str, typer.Option(help="kill (SIGKILL, then started again) or hang (SIGSTOP).")] = usual.how,
        down_s: Annotated[float, typer.Option(help="Time for which the switch is away, in seconds.")] = usual.down_s,
        size_bytes: Annotated[str, typer.Option(help="Size of a worker's fp32 gradients, such as 4MiB.")] = "4MiB",
        rate_mbit_s: Annotated[
            float, typer.Option(help="Rate of each worker's link; 0: not limited.")
        ] = usual.rate_mbit_s,
        switch_rate_mbit_s: Annotated[
            float, typer.Option(help="Rate of the switch's link; 0: not limited.")
        ] = usual.switch_rate_mbit_s,
        wire: Annotated[str, typer.Option("--format", help="fp32, bfp, fp16 or bf16.")] = usual.format,
        seed: Annotated[int, typer.Option(min=0, help="Seed of the moments at which the switch goes.")] = usual.seed,
        timeout_s: Annotated[
            float, typer.Option(min=0.1, max=1e6, help="Longest time for a step or the switch's return, in seconds.")
        ] = usual.timeout_s,
        out: Annotated[Path | None, output("Draw the steps' times to this file (.png, .svg).")] = None,
        json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
    ) -> None:
        """Train while the switch is killed, or hangs, again and again: nothing ends, and no bit changes.

        A lab of workers and a switch, with shaped links. The workers train a classifier. The switch goes at random
        moments and comes back. Then the same training runs undisturbed. The parameters must be the same.
        """
        with sentences():
            sizes = sizes_of(size_bytes)
            if len(sizes) != 1 or sizes[0] < FP32_BYTES:
                raise UsageError(f"--size-bytes takes one size of at least {FP32_BYTES} bytes, not {size_bytes}")
            settings = OutageSettings(
                workers,
                number,
                how,
                down_s,
                sizes[0],
                rate_mbit_s,
                switch_rate_mbit_s,
                wire,
                seed,
                timeout_s,
            )
            if out and out.suffix not in PLOT_SUFFIXES:
                raise UsageError(f"--out must end in {' or '.join(PLOT_SUFFIXES)}, not {out.suffix or 'nothing'}")
            kept.prepare()
            with progress_bar(settings.outages) as tell:
                entry, ends, began = measure(settings, tell)
            if json:
                print_json(envelope("bench outages", asdict(settings), [entry]))
            else:
                show(entry, settings)
            if out:
                draw(ends, began, out)
            if not entry["same_parameters"]:
                raise LabError("the parameters differ from those of the training without outages")
