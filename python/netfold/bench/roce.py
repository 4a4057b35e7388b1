"""`netfold bench roce`: workers without RDMA NICs all-reduce over RoCE v1, through a switch of frames."""

from __future__ import annotations

import contextlib
import json as json_module
import statistics
import subprocess
import sys
import tempfile
import threading
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from netfold.bench.report import envelope, print_json
from netfold.bench.screen import progress_bar
from netfold.lab import names, processes
from netfold.lab.cables import Cables
from netfold.lab.errors import LabError, UsageError
from netfold.lab.guard import sentences
from netfold.outputs import output

ELEMENT_BYTES = 4
END_TIMEOUT_S = 5.0
SUMMED = ("sent_writes", "resent_writes", "naks", "timeouts", "duplicate_writes", "writes_not_summed", "bad_icrcs")


@dataclass(frozen=True)
class Plan:
    """What is measured."""

    workers: int = 8
    size_bytes: int = 4 << 20
    format: str = "fp32"
    loss: float = 0.0
    rate_mbit_s: float = 0.0
    window: int = 128
    repeat: int = 3
    seed: int = 1
    timeout_s: float = 60.0
    engine: str = "software"

    @property
    def count(self) -> int:
        """Elements of a tensor."""
        return self.size_bytes // ELEMENT_BYTES

    def check(self) -> None:
        """Raises UsageError where it makes no sense."""
        if not 2 <= self.workers <= 26:
            raise UsageError(f"--workers is 2 to 26, not {self.workers}: they write to each other in a ring")
        if self.count < 1 or self.size_bytes % ELEMENT_BYTES:
            raise UsageError(f"--size-bytes is a multiple of {ELEMENT_BYTES}, not {self.size_bytes}")
        if self.format not in ("fp32", "int32", "bfp", "fp16", "bf16"):
            raise UsageError(f"--format is fp32, bfp, fp16, bf16 or int32, not {self.format}")
        if self.engine not in ("software", "rtl"):
            raise UsageError(f"--engine is software or rtl (netfold rtl switch build), not {self.engine}")
        if not 0 <= self.loss < 0.5:
            raise UsageError(f"--loss is a probability below 0.5, not {self.loss}")


class Process:
    """A worker or the switch in its namespace, spoken to line by line."""

    def __init__(self, kind: str, namespace: str, options: dict[str, Any], log: Path, timeout_s: float) -> None:
        module = [sys.executable, "-m", "netfold.bench.workers.roce", kind, json_module.dumps(options)]
        enter = ["ip", "netns", "exec", namespace]
        self._name, self._log, self._timeout_s = kind, log, timeout_s
        with log.open("wb") as errors:
            self.child = subprocess.Popen(
                [*enter, *module], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
            )

    def tell(self, value: Any) -> None:
        """One line to it."""
        assert self.child.stdin
        try:
            print(json_module.dumps(value), file=self.child.stdin, flush=True)
        except BrokenPipeError:
            self._fail()

    def hear(self) -> Any:
        """The next line from it; it is ended if there is none in time."""
        assert self.child.stdout
        timer = threading.Timer(self._timeout_s, self.child.kill)
        timer.start()
        try:
            line = self.child.stdout.readline()
        finally:
            timer.cancel()
        if not line:
            self._fail()
        return json_module.loads(line)

    def _fail(self) -> None:
        self.child.wait(self._timeout_s)
        last = self._log.read_text(errors="replace").strip().splitlines()[-1:] or ["it said nothing"]
        raise LabError(f"the {self._name} ended: {last[0]}")

    def end(self) -> None:
        """Nothing more will be asked of it."""
        assert self.child.stdin
        self.child.stdin.close()

    def wait(self) -> None:
        """Until it has finished by itself; bounded."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.child.wait(END_TIMEOUT_S)


def expected_sum(plan: Plan) -> np.ndarray:
    """What every rank must end with, folded in software."""
    import netfold
    from netfold.bench.workers.roce import elements

    dtype = "int32" if plan.format == "int32" else "fp32"
    return netfold.fold([elements(plan.seed, rank, plan.count, dtype) for rank in range(plan.workers)], plan.format)


@contextlib.contextmanager
def switched(
    cables: Cables, engine: str, kind: str, options: list[dict[str, Any]], timeout_s: float
) -> Iterator[tuple[Process, list[Process]]]:
    """The switch and a process of this kind for each rank's options, which know each other. They end with the block;
    if it fails, with the cables."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        served = {"interfaces": cables.ports, "engine": engine}
        switch = Process("switch", cables.fabric, served, folder / "switch.log", timeout_s)
        switch.hear()
        workers = [
            Process(kind, cables.worker(rank), one, folder / f"{rank}.log", timeout_s)
            for rank, one in enumerate(options)
        ]
        cards = [worker.hear() for worker in workers]
        for worker in workers:
            worker.tell(cards)
        for worker in workers:
            worker.hear()
        yield switch, workers
        for group in (workers, [switch]):  # workers settle what is under way among themselves, through the switch
            for process in group:
                process.end()
            for process in group:
                process.wait()
        processes.end_children([process.child for process in (*workers, switch)])


def options_of_ranks(plan: Plan, pcap: Path | None) -> list[dict[str, Any]]:
    """What each worker is told."""
    options = []
    for rank in range(plan.workers):
        client: dict[str, Any] = {"timeout_s": plan.timeout_s, "window": plan.window}
        if plan.loss:
            client["faults"] = f"loss={plan.loss},seed={plan.seed * 1000 + rank}"
        if pcap is not None and rank == 0:
            client["pcap"] = str(pcap)
        one = {"interface": names.INTERFACE, "rank": rank, "world": plan.workers, "count": plan.count}
        options.append({**one, "format": plan.format, "seed": plan.seed, "client": client})
    return options


def measure(plan: Plan, tell: Any, pcap: Path | None = None) -> dict[str, Any]:
    """One entry of results: times, whether all bits were those of the software fold, counters of both sides."""
    right = zlib.crc32(expected_sum(plan).view(np.uint8))
    times_s, wrong, answers = [], 0, []
    options = options_of_ranks(plan, pcap)
    with (
        Cables(plan.workers, plan.rate_mbit_s) as cables,
        switched(cables, plan.engine, "worker", options, plan.timeout_s + 10) as (switch, workers),
    ):
        for run in range(plan.repeat + 1):  # the first one warms up
            for worker in workers:
                worker.tell("go")
            answers = [worker.hear() for worker in workers]
            wrong += sum(answer["crc32"] != right for answer in answers)
            if run > 0:
                times_s.append(max(answer["time_s"] for answer in answers))
            tell(f"all-reduce {run}")
        switch.tell("counters")
        counts = {name: count for name, count in switch.hear().items() if count}
    return {
        "system": "netfold",
        "algorithm": "in-network",
        "dialect": "roce",
        "engine": plan.engine,
        "format": plan.format,
        "size_bytes": plan.size_bytes,
        "time_s": times_s,
        "time_s_median": statistics.median(times_s),
        "ranks_with_wrong_bits": wrong,
        "workers_counters": {name: sum(answer["counters"][name] for answer in answers) for name in SUMMED},
        "switch_counters": counts,
    }


def show(entry: dict[str, Any], workers: int) -> None:
    """One line of what was measured, and what both sides counted."""
    table = Table(title=f"{workers} RoCE workers, {entry['size_bytes']} bytes of {entry['format']}")
    for heading in ("median", "wrong ranks", "writes", "sent again", "folded", "answered again"):
        table.add_column(heading, justify="right")
    counted, folded = entry["workers_counters"], entry["switch_counters"]
    row = [f"{entry['time_s_median'] * 1e3:.1f} ms", entry["ranks_with_wrong_bits"], counted["sent_writes"]]
    row += [counted["resent_writes"], folded.get("roce_v1_folded", 0), folded.get("roce_v1_answered", 0)]
    table.add_row(*map(str, row))
    Console().print(table)


def register(app: typer.Typer) -> None:
    """Add the command to `netfold bench`."""
    default = Plan()

    @app.command("roce")
    def roce(
        workers: Annotated[int, typer.Option(help="RoCE endpoints, each in a namespace of its own.")] = default.workers,
        size_bytes: Annotated[int, typer.Option(help="Bytes of gradients, before encoding.")] = default.size_bytes,
        wire: Annotated[str, typer.Option("--format", help="fp32, bfp, fp16, bf16 or int32.")] = default.format,
        loss: Annotated[float, typer.Option(help="Share of frames lost each way, by seed.")] = default.loss,
        rate_mbit_s: Annotated[float, typer.Option(help="Of every link; 0: as fast as it goes.")] = default.rate_mbit_s,
        window: Annotated[int, typer.Option(min=1, max=512, help="Packets of a worker in flight.")] = default.window,
        repeat: Annotated[int, typer.Option(min=1, help="Timed repetitions, after one warm-up.")] = default.repeat,
        seed: Annotated[int, typer.Option(min=0, help="Of gradients and losses.")] = default.seed,
        timeout_s: Annotated[
            float, typer.Option(min=0.1, max=1e6, help="Longest wait for progress.")
        ] = default.timeout_s,
        engine: Annotated[str, typer.Option(help="The switch: software, or rtl: simulated hardware.")] = default.engine,
        pcap: Annotated[Path | None, output("A capture of rank 0's frames, for Wireshark.")] = None,
        json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
    ) -> None:
        """All-reduce between RoCE v1 endpoints through a switch that folds their frames, and check every bit.

        Endpoints are processes with packet sockets in network namespaces; so is the switch. Needs root.
        """
        plan = Plan(workers, size_bytes, wire, loss, rate_mbit_s, window, repeat, seed, timeout_s, engine)
        with sentences():
            plan.check()
            with progress_bar(plan.repeat + 1) as tell:
                entry = measure(plan, tell, pcap)
            if json:
                print_json(envelope("bench roce", asdict(plan), [entry]))
            else:
                show(entry, workers)
            if entry["ranks_with_wrong_bits"]:
                raise LabError(f"{entry['ranks_with_wrong_bits']} results differ from the software fold")
