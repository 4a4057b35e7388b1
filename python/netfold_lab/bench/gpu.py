"""`netfold bench gpu`: how much of a training step on a GPU waits for the network.

Two ranks share the first GPU. Each has a network namespace of its own and a shaped link. They train the same model with
DDP and with FSDP2 (each rank is a shard group by itself, and the gradients are averaged over the ranks), once for each
system. The steps of all systems take turns. The time that a step takes longer than one without communication is
exposed.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from netfold import native, nccl
from netfold.json_output import envelope, print_json
from netfold_lab.bench import gpu_timeline
from netfold_lab.bench.screen import progress_bar
from netfold_lab.bench.sites import LabSite
from netfold_lab.bench.train.workers import Workers
from netfold_lab.errors import LabError, UsageError
from netfold_lab.guard import sentences
from netfold_lab.lab import kept, names
from netfold_lab.lab.cluster import Lab
from netfold_lab.lab.spec import LabSpec
from netfold_lab.outputs import output, output_folder
from netfold_lab.packages import need

WORKERS = 2
MODULE = "netfold_lab.bench.workers.gpu"
DDP, FSDP = WRAPS = ("ddp", "fsdp2")
WARM_UP = 2  # steps of each way
PLOT_SUFFIXES = (".png", ".svg")
CPU = "cpu"
NETFOLD = "netfold"  # the way that is drawn
GLOO, NCCL = PEERS = ("gloo", "nccl")


@dataclass(frozen=True)
class Way:
    """A wrap of the model, and the system that averages its gradients: none, netfold, gloo or nccl. `label`: for
    people. `settings`: of Netfold."""

    wrap: str
    label: str
    system: str
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class GpuSettings:
    """Settings of the measurement. The model has `layers` square layers of `width`; a batch has `batch` rows.
    `switch_rate_mbit_s` 0: the rate of all workers' links together."""

    rate_mbit_s: float = 2000.0
    switch_rate_mbit_s: float = 0.0
    layers: int = 16
    width: int = 1024
    batch: int = 16384
    rounds: int = 8
    timeout_s: float = 120.0
    device: str = ""

    def lab(self) -> LabSpec:
        """The workers and the switch's machine. Raises UsageError."""
        switch_rate = self.switch_rate_mbit_s or WORKERS * self.rate_mbit_s
        return LabSpec(workers=WORKERS, rate_mbit_s=self.rate_mbit_s, switch_rate_mbit_s=switch_rate)

    @property
    def gradient_bytes(self) -> int:
        """Of a step, in float32."""
        return 4 * self.layers * (self.width + 1) * self.width


@dataclass(frozen=True)
class Job:
    """Workers that run at the same time, with their environment."""

    ways: list[Way]
    environment: dict[str, str]


def jobs(against: list[str]) -> list[Job]:
    """All ways. NCCL takes one network plugin in a process, so the one with ours has a job of its own."""
    with_switch, without = {"with_switch": True}, {"with_switch": False}
    systems: list[tuple[str, str, dict[str, Any]]] = [
        ("none", "none", {}),
        (NETFOLD, "netfold", with_switch),
        ("netfold bfp", "netfold", with_switch | {"format": "bfp"}),
        ("netfold without a switch", "netfold", without),
        *((peer, peer, {}) for peer in against),
    ]
    usual = {"NCCL_SOCKET_IFNAME": names.INTERFACE, "NCCL_IB_DISABLE": "1"}
    found = [Job(_ways(systems), usual | {"NCCL_NET": "Socket"})]
    plugin = native.find(native.NCCL_PLUGIN)
    if NCCL in against and plugin is not None:
        ours = usual | {"NETFOLD_SWITCH": "{switch}"}
        ours |= nccl.variables(plugin.parent, os.environ | ours)
        found.append(Job(_ways([systems[0], ("nccl, netfold's plugin", "nccl", {})]), ours))
    return found


def _ways(systems: list[tuple[str, str, dict[str, Any]]]) -> list[Way]:
    return [Way(wrap, *system) for wrap in WRAPS for system in systems]


def measure(
    settings: GpuSettings, planned: list[Job], traces: Path, tell: Callable[[str], None]
) -> list[dict[str, Any]]:
    """The entries of the results; torch's traces of a step with Netfold are written to the folder `traces`."""
    entries: list[dict[str, Any]] = []
    with Lab(settings.lab()) as lab:
        site = LabSite(lab)
        for job in planned:
            tell("starting the workers")
            setup = asdict(settings) | {"ways": [asdict(way) for way in job.ways]}
            with Workers(site, MODULE, setup, settings.timeout_s, True, job.environment) as workers:
                entries += _measure_job(settings, job, site, workers, traces, tell)
    return entries


def _measure_job(
    settings: GpuSettings, job: Job, site: LabSite, workers: Workers, traces: Path, tell: Callable[[str], None]
) -> list[dict[str, Any]]:
    answers: list[list[dict[str, float]]] = [[] for _ in job.ways]
    sent = [0] * len(job.ways)
    for number in range(WARM_UP + settings.rounds):
        for index, way in enumerate(job.ways):
            before = site.traffic() or []
            said = workers.ask(f"step {index}")
            after = site.traffic() or []
            if number >= WARM_UP:
                answers[index].append({name: max(rank[name] for rank in said) for name in said[0]})
                sent[index] += sum(now[0].bytes - then[0].bytes for now, then in zip(after, before, strict=True))
            tell(f"{way.wrap} {way.label}")
    medians = [{name: statistics.median(one[name] for one in steps) for name in steps[0]} for steps in answers]
    alone_s = {way.wrap: median["step_s"] for way, median in zip(job.ways, medians, strict=True) if way.label == "none"}
    entries = []
    for index, (way, median) in enumerate(zip(job.ways, medians, strict=True)):
        digests = workers.ask(f"digest {index}")
        entry: dict[str, Any] = {
            "system": way.label,
            "wrap": way.wrap,
            "step_s": median["step_s"],
            "slowest_step_s": max(one["step_s"] for one in answers[index]),
            "exposed_s": median["step_s"] - alone_s[way.wrap],
            "python_s": median["python_s"],
            "sent_bytes": sent[index] / WORKERS / settings.rounds,
            "same_parameters": len(set(digests)) == 1 if way.system != "none" else None,
        }
        if way.system == "netfold":
            path = _trace_file(traces, way.wrap, way.label)
            workers.ask(f"trace {index} {path}")
            entry["timeline"] = gpu_timeline.read(path)
        entries.append(entry)
    return entries


def show(entries: list[dict[str, Any]], settings: GpuSettings) -> None:
    """Print the table."""
    lab = settings.lab()
    place = "this machine's processor" if settings.device == CPU else "one GPU"
    title = f"{WORKERS} ranks on {place}, {lab.links_text()}, {settings.gradient_bytes / 2**20:.0f} MiB of gradients"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD)
    for column in (
        "wrap",
        "system",
        "step, ms",
        "exposed, ms",
        "Python is back, ms",
        "sent, MiB",
        "computed in flight",
    ):
        table.add_column(column, justify="left" if column in ("wrap", "system") else "right")
    for wrap in WRAPS:
        for entry in (one for one in entries if one["wrap"] == wrap):
            timeline = entry.get("timeline") or {}
            share = timeline.get("in_flight_share")
            table.add_row(
                wrap,
                entry["system"],
                f"{entry['step_s'] * 1e3:.1f}",
                f"{entry['exposed_s'] * 1e3:.1f}",
                f"{entry['python_s'] * 1e3:.1f}",
                f"{entry['sent_bytes'] / 2**20:.1f}",
                f"{share:.0%}" if share is not None else "",
            )
    Console().print(table)
    Console().print(
        "exposed: the time that the step takes longer than one without communication. Python is back: from the start "
        "of the step until backward has returned. computed in flight: the share of the kernels' time while gradients "
        "were on their way.",
        style="dim",
    )


def _device(wanted: str) -> str:
    """The device to compute on. Raises UsageError."""
    need("torch")
    from netfold.torch.devices import accelerator, has_accelerator

    if not wanted and not has_accelerator():
        raise UsageError(f"this machine has no GPU that torch can use; --device {CPU} tries the command without one")
    return wanted or accelerator()


def _peers(wanted: str, device: str) -> list[str]:
    """The peers to measure. Raises UsageError."""
    import torch.distributed as dist

    there = [GLOO, *([NCCL] if device == "cuda" and dist.is_nccl_available() else [])]
    if wanted == "none":
        return []
    chosen = [name.strip() for name in wanted.split(",")] if wanted else there
    if unknown := [name for name in chosen if name not in there]:
        raise UsageError(f"--against takes {', '.join(there)} here, not {', '.join(unknown)}")
    return chosen


def _trace_file(folder: Path, wrap: str, label: str) -> Path:
    return folder / f"{wrap}-{label.replace(' ', '-')}.json"


def register(app: typer.Typer) -> None:
    """Add the command."""
    usual = GpuSettings()

    @app.command()
    def gpu(
        rate_mbit_s: Annotated[
            float, typer.Option(min=1, help="Rate of a worker's link, in Mbit/s.")
        ] = usual.rate_mbit_s,
        switch_rate_mbit_s: Annotated[
            float, typer.Option(min=0, help="Rate of the switch's link, in Mbit/s; 0: of all workers' links together.")
        ] = usual.switch_rate_mbit_s,
        layers: Annotated[int, typer.Option(min=1, help="Layers of the model.")] = usual.layers,
        width: Annotated[int, typer.Option(min=8, help="Inputs and outputs of each layer.")] = usual.width,
        batch: Annotated[int, typer.Option(min=1, help="Rows of a batch: more of them compute longer.")] = usual.batch,
        rounds: Annotated[int, typer.Option(min=1, help="Measured steps of each system.")] = usual.rounds,
        timeout_s: Annotated[
            float, typer.Option(min=1, max=1e6, help="Longest time to start, and for a step, in seconds.")
        ] = usual.timeout_s,
        against: Annotated[
            str, typer.Option(help="Peers to measure too: gloo,nccl, or none. Default: those that are there.")
        ] = "",
        device: Annotated[str, typer.Option(help=f"Where the ranks compute: cuda, xpu, {CPU}. Default: the GPU.")] = "",
        out: Annotated[Path | None, output("Draw a step with Netfold to this file (.png, .svg).")] = None,
        traces: Annotated[
            Path | None, output_folder("Keep torch's traces of those steps in this folder (chrome://tracing).")
        ] = None,
        json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
    ) -> None:
        """Train on a GPU over shaped links: how much of a step waits for the network, with Netfold, Gloo and NCCL.

        Two ranks share the first GPU; each has a network namespace and a link of its own. Systems: Netfold with and
        without a switch, Gloo, NCCL over sockets, and NCCL with Netfold's plugin. Needs root for the namespaces.
        """
        with sentences():
            settings = GpuSettings(
                rate_mbit_s, switch_rate_mbit_s, layers, width, batch, rounds, timeout_s, _device(device)
            )
            if out and out.suffix not in PLOT_SUFFIXES:
                raise UsageError(f"--out must end in {' or '.join(PLOT_SUFFIXES)}, not {out.suffix or 'nothing'}")
            kept.prepare()
            planned = jobs(_peers(against, settings.device))
            steps = sum(len(job.ways) for job in planned) * (WARM_UP + rounds)
            with tempfile.TemporaryDirectory(prefix="netfold-bench-gpu-") as temporary, progress_bar(steps) as tell:
                folder = (traces or Path(temporary)).resolve()
                entries = measure(settings, planned, folder, tell)
                if out:
                    drawn = {wrap: gpu_timeline.load(_trace_file(folder, wrap, NETFOLD)) for wrap in WRAPS}
                    gpu_timeline.draw(drawn, out)
            if json:
                print_json(envelope("bench gpu", asdict(settings), entries))
            else:
                show(entries, settings)
            if any(one["same_parameters"] is False for one in entries):
                raise LabError("the ranks ended with different parameters")
