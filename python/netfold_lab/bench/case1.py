"""`netfold bench case1`: gradients on their way to a host. Either the switch folds them, or the host sums them.

Figure 10 of "An In-Network Parameter Aggregation using DPDK": a host, workers and the Ethernet switch between them, in
a lab whose links have one rate. The blue bars show sums of an application on the host, the red bars sums of the switch.
If the host sums, its link carries the gradients of every worker. So the gain of the switch is the number of workers,
less the difference between the overheads of the two transports.
"""

from __future__ import annotations

import json as json_module
import math
import statistics
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from netfold.json_output import envelope, print_json
from netfold_lab.bench import bounds, tensors
from netfold_lab.bench.measure import SETTLE_S, Team
from netfold_lab.bench.screen import progress_bar
from netfold_lab.bench.sites import LabSite, Site
from netfold_lab.bench.systems import spawn
from netfold_lab.errors import LabError, UsageError
from netfold_lab.guard import sentences
from netfold_lab.lab import kept, processes
from netfold_lab.lab.cluster import Lab
from netfold_lab.lab.shaping import Traffic
from netfold_lab.lab.spec import DPDK, LINKS, STAR, LabSpec
from netfold_lab.outputs import output

MODEL_MB = {"GoogleNet": 24.7, "VGG 19": 80.2, "ResNet 50": 94.0, "ResNet 101": 170.0, "ResNet 152": 232.6}
"""Gradients of the five models, dpdk-switch, Table 2."""

PAPER_SPEEDUP = (2.2, 2.5)  # over the models, with three workers (Figure 10)
SUM_PORT = 42000
PLOT_SUFFIXES = (".png", ".svg")
PLOT_INCHES = (7.5, 4.5)


@dataclass(frozen=True)
class Case1Settings:
    """Settings of the measurement. `scale`: the fraction of the models' sizes to sum."""

    models: tuple[str, ...] = tuple(MODEL_MB)
    workers: int = 3
    scale: float = 0.1
    rate_mbit_s: float = LINKS[STAR][0]
    mtu: int = 1500
    repeat: int = 3
    format: str = "fp32"
    seed: int = 1
    timeout_s: float = 120.0

    def __post_init__(self) -> None:
        if not self.models:
            raise UsageError(f"--models must name one of {', '.join(MODEL_MB)}")
        if unknown := [model for model in self.models if model not in MODEL_MB]:
            raise UsageError(f"--models takes {', '.join(MODEL_MB)}, not {', '.join(unknown)}")
        if not 0 < self.scale <= 1:
            raise UsageError(f"--scale must be above 0 and at most 1, not {self.scale}")
        if self.repeat < 1:
            raise UsageError(f"--repeat must be at least 1, not {self.repeat}")
        if self.format not in ("fp32", "int32"):
            raise UsageError(f"--format must be fp32 or int32, as a program on the host would add, not {self.format}")
        if not (math.isfinite(self.timeout_s) and self.timeout_s > 0):
            raise UsageError(f"--timeout-s must be a positive number of seconds, not {self.timeout_s}")
        self.lab()

    def size_bytes(self, model: str) -> int:
        """Bytes of one worker's gradients, in whole elements."""
        return max(1, round(MODEL_MB[model] * 1e6 * self.scale / tensors.ELEMENT_BYTES)) * tensors.ELEMENT_BYTES

    def lab(self) -> LabSpec:
        """The workers, one more for the host, and the Ethernet switch between them. Raises UsageError."""
        return LabSpec(
            workers=self.workers + 1,
            rate_mbit_s=self.rate_mbit_s,
            mtu=self.mtu,
            switch=DPDK,
        )


class Case1System:
    """Workers and a host that sum in one of the two ways."""

    algorithms: tuple[str, ...] = ("",)

    def __init__(self, name: str, settings: Case1Settings, role: str, host_role: str) -> None:
        self.name = self.key = name
        self._settings = settings
        self._roles = [role] * settings.workers + [host_role]

    def wire(self, wanted: str) -> str:
        """The type of the elements in memory."""
        return wanted

    def launch(self, site: Site, control: Path, log: Path, timeout_s: float) -> list[subprocess.Popen]:
        """The workers, then the host."""
        host = self._settings.workers
        options = {"world": host, "timeout_s": timeout_s, "switch": site.running_switch()}
        # Workers without pacing overflow the queue of the host's link and lose packets. With pacing they sum faster.
        options["pace_bytes_s"] = int(self._settings.rate_mbit_s * 1e6 / bounds.BITS / host)
        words = json_module.dumps(options | {"host": site.address(host), "port": SUM_PORT})
        started: list[subprocess.Popen] = []
        try:
            for rank, role in enumerate(self._roles):
                module = [sys.executable, "-m", "netfold_lab.bench.workers.case1", role, str(control), str(rank), words]
                started.append(spawn([*site.command(rank), *module], site, log))
        except BaseException:
            processes.end_children(started)
            raise
        return started


@dataclass
class Bar:
    """One bar of the figure: how one system summed one model's gradients."""

    system: str
    time_s: list[float] = field(default_factory=list)  # until the last worker has the sum
    signal_s: list[float] = field(default_factory=list)  # until the host is told
    host_cpu_s: list[float] = field(default_factory=list)
    host_link: list[tuple[Traffic, Traffic]] = field(default_factory=list)  # up from the host, down to it
    wrong_ranks: int = 0


def sum_once(team: Team, bar: Bar, site: LabSite, right: str) -> None:
    """One repetition. A time is the slowest worker's."""

    def host_cpu_s() -> float:
        return float(json_module.loads(team.ask("cpu")[-1].removeprefix("done ")))

    def host_link() -> tuple[Traffic, Traffic]:
        traffic = site.traffic()
        assert traffic is not None, "every rank of a lab has a link of its own"
        return traffic[-1]

    cpu_before, before = host_cpu_s(), host_link()
    *workers, host = team.run("sum", 1)
    time.sleep(SETTLE_S)
    after = host_link()
    bar.time_s.append(max(elapsed for elapsed, _, _ in workers))
    bar.signal_s.append(host[0])
    bar.host_cpu_s.append(host_cpu_s() - cpu_before)
    bar.host_link.append((after[0] - before[0], after[1] - before[1]))
    bar.wrong_ranks += sum(digest != right for _, _, digest in workers)


def digest_of(tensor: tensors.Tensor, wire: str) -> str:
    """The digest of the software fold's sum, in the notation of the ranks."""
    import numpy as np

    import netfold

    dtype = np.int32 if tensor.dtype == "int32" else np.float32
    total = netfold.fold([np.fromfile(path, dtype) for path in tensor.inputs], wire)
    return f"{zlib.crc32(total.view(np.uint8)):08x}"


def measure(settings: Case1Settings, tell: Callable[[str], None]) -> list[dict[str, Any]]:
    """Measure every model with both systems, interleaved, in a lab of its own. Returns entries of results."""
    entries = []
    systems = [
        Case1System("netfold", settings, "folded", "folded-host"),
        Case1System("host", settings, "summed", "summing-host"),
    ]
    with Lab(settings.lab()) as lab, ExitStack() as stack:
        site = LabSite(lab)
        tell("starting every rank")
        teams = [stack.enter_context(Team(system, site, settings.timeout_s)) for system in systems]
        for model in settings.models:
            tensor = tensors.make(
                site.directory, model, settings.size_bytes(model), settings.format, settings.workers, settings.seed
            )
            right = digest_of(tensor, settings.format)
            for team in teams:  # the host gets a worker's file but does not read it
                team.prepare(replace(tensor, inputs=[*tensor.inputs, tensor.inputs[0]]), settings.format)
            bars = [Bar(system.name) for system in systems]
            for repetition in range(settings.repeat + 1):
                for team, bar in zip(teams, bars, strict=True):
                    warm_up = Bar(bar.system)
                    sum_once(team, bar if repetition else warm_up, site, right)
                    bar.wrong_ranks += warm_up.wrong_ranks
                    tell(f"{model}: {bar.system} {f'{repetition} of {settings.repeat}' if repetition else 'warm-up'}")
            tensors.discard(tensor)
            entries += entries_of(settings, model, tensor, bars)
    return entries


def entries_of(
    settings: Case1Settings, model: str, tensor: tensors.Tensor, bars: Sequence[Bar]
) -> list[dict[str, Any]]:
    """One entry for each bar. The ratio is the median of the rounds' ratios, so that drift between rounds cancels."""
    entries: list[dict[str, Any]] = []
    wire_bytes = {  # through the busiest link: a worker's, the host's
        "netfold": bounds.in_network_wire_bytes(tensor.count, settings.mtu, settings.format),
        "host": settings.workers * bounds.tcp_wire_bytes(tensor.size_bytes, settings.mtu),
    }
    for bar in bars:
        up, down = (statistics.median(link[way].bytes for link in bar.host_link) for way in (0, 1))
        entries.append(
            {
                "system": bar.system,
                "algorithm": "in-network" if bar.system == "netfold" else "host-sum",
                "format": settings.format,
                "tensor": model,
                "size_bytes": tensor.size_bytes,
                "workers": settings.workers,
                "time_s": bar.time_s,
                "time_s_median": statistics.median(bar.time_s),
                "host_signal_s_median": statistics.median(bar.signal_s),
                "host_cpu_s_median": statistics.median(bar.host_cpu_s),
                "host_sent_bytes": up,
                "host_received_bytes": down,
                "ranks_with_wrong_bits": bar.wrong_ranks,
                "bound_s": bounds.seconds(wire_bytes[bar.system], settings.rate_mbit_s)
                if settings.rate_mbit_s
                else None,
            }
        )
    ours, theirs = entries
    ratios = [slow / fast for fast, slow in zip(ours["time_s"], theirs["time_s"], strict=True)]
    ours["speedup_over_host"] = statistics.median(ratios)
    ours["paper_speedup_over_host"] = list(PAPER_SPEEDUP)
    return entries


def show(entries: Sequence[dict[str, Any]], settings: Case1Settings) -> None:
    """The table: a row for each model."""
    scale = "" if settings.scale == 1 else f" at {settings.scale:g} of their size"
    links = f"{settings.rate_mbit_s:g} Mbit/s links" if settings.rate_mbit_s else "links without a rate limit"
    title = f"{settings.workers} workers and a host, {links}; models{scale}"
    table = Table(title=title, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in ("model", "MB", "host sums", "switch folds", "faster", "host hears", "host's CPU", "host's link"):
        table.add_column(heading, justify="right", no_wrap=heading == "model")
    for ours, theirs in zip(entries[::2], entries[1::2], strict=True):
        link = [(one["host_sent_bytes"] + one["host_received_bytes"]) / 1e6 for one in (theirs, ours)]
        table.add_row(
            ours["tensor"],
            f"{ours['size_bytes'] / 1e6:.1f}",
            f"{theirs['time_s_median'] * 1e3:.0f} ms",
            f"{ours['time_s_median'] * 1e3:.0f} ms",
            f"{ours['speedup_over_host']:.2f}x",
            f"{ours['host_signal_s_median'] * 1e3:.0f} ms",
            f"{theirs['host_cpu_s_median'] * 1e3:.0f}, {ours['host_cpu_s_median'] * 1e3:.0f} ms",
            f"{link[0]:.1f}, {link[1]:.3f} MB",
        )
    Console().print(table)


def draw(entries: Sequence[dict[str, Any]], path: Path) -> None:
    """Figure 10: a pair of bars for each model."""
    import matplotlib as mpl
    import numpy as np

    mpl.use("Agg")
    from matplotlib import pyplot

    models = [one["tensor"] for one in entries[::2]]
    figure, axes = pyplot.subplots(figsize=PLOT_INCHES)
    places, width = np.arange(len(models)), 0.38
    for offset, color, label, which in ((-width / 2, "tab:blue", "host sums", 1), (width / 2, "tab:red", "switch", 0)):
        axes.bar(places + offset, [one["time_s_median"] for one in entries[which::2]], width, color=color, label=label)
    for place, ours in zip(places, entries[::2], strict=True):
        text = f"{ours['speedup_over_host']:.2f}x"
        axes.annotate(text, (place + width / 2, ours["time_s_median"]), ha="center", va="bottom")
    axes.set_xticks(places, models)
    axes.set_ylabel("aggregation time in s")
    axes.legend()
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


def register(app: typer.Typer) -> None:
    """Add the command to `netfold bench`."""
    usual = Case1Settings()

    @app.command("case1")
    def case1(
        models: Annotated[str, typer.Option(help="Models of the paper's Table 2, with commas.")] = ",".join(MODEL_MB),
        workers: Annotated[
            int, typer.Option(min=1, help="Number of workers beside the host, each in a namespace.")
        ] = usual.workers,
        scale: Annotated[float, typer.Option(help="Fraction of the models' sizes.")] = usual.scale,
        full: Annotated[bool, typer.Option("--full", help="Use the models' real sizes, as --scale 1 does.")] = False,
        rate_mbit_s: Annotated[float, typer.Option(help="Rate of every link; 0: not limited.")] = usual.rate_mbit_s,
        mtu: Annotated[int, typer.Option(help="MTU of every link in bytes.")] = usual.mtu,
        repeat: Annotated[int, typer.Option(help="Timed repetitions of each, after one warm-up.")] = usual.repeat,
        wire: Annotated[str, typer.Option("--format", help="fp32 or int32.")] = usual.format,
        seed: Annotated[int, typer.Option(min=0, help="Seed of the gradients.")] = usual.seed,
        timeout_s: Annotated[
            float, typer.Option(min=0.1, max=1e6, help="Longest time for a step, in seconds.")
        ] = usual.timeout_s,
        out: Annotated[Path | None, output("Draw the result to this file (.png, .svg).")] = None,
        json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
    ) -> None:
        """Compare a switch that sums the gradients for a host with a host that sums them itself.

        A lab with a host and workers at an Ethernet switch (DPDK, af_packet ports). In the first system the workers
        address their gradients to the host; the switch folds them, sends the sum to the workers and tells the host. In
        the second system they send them to the host over TCP; the host sums them, and returns parts of the sum while
        more gradients arrive. Both systems take turns on the same links, and every bit of every sum is checked.
        """
        with sentences():
            named = tuple(filter(None, models.split(",")))
            settings = Case1Settings(
                named, workers, 1.0 if full else scale, rate_mbit_s, mtu, repeat, wire, seed, timeout_s
            )
            if out and out.suffix not in PLOT_SUFFIXES:
                raise UsageError(f"--out must end in {' or '.join(PLOT_SUFFIXES)}, not {out.suffix or 'nothing'}")
            kept.prepare()
            with progress_bar(len(settings.models) * 2 * (settings.repeat + 1)) as tell:
                entries = measure(settings, tell)
            if json:
                print_json(envelope("bench case1", asdict(settings), entries))
            else:
                show(entries, settings)
            if out:
                draw(entries, out)
            if wrong := sum(one["ranks_with_wrong_bits"] for one in entries):
                raise LabError(f"{wrong} results differ from the software fold")
