"""`netfold bench roce`: workers without RDMA NICs run collectives over RoCE, through an Ethernet switch."""

from __future__ import annotations

import contextlib
import json as json_module
import statistics
import subprocess
import sys
import tempfile
import threading
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from netfold.json_output import envelope, print_json
from netfold_lab.bench.screen import progress_bar
from netfold_lab.errors import LabError, UsageError
from netfold_lab.guard import sentences
from netfold_lab.lab import names, processes
from netfold_lab.lab.cables import Cables
from netfold_lab.outputs import output

ELEMENT_BYTES = 4
END_TIMEOUT_S = 5.0
ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, BROADCAST = "all-reduce", "reduce-scatter", "all-gather", "broadcast"
COLLECTIVES = (ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, BROADCAST)
SUMMED = ("sent_writes", "resent_writes", "naks", "timeouts", "duplicate_writes", "writes_not_summed", "bad_icrcs")


@dataclass(frozen=True)
class RoceSettings:
    """Settings of the measurement."""

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
    version: int = 1
    collective: str = ALL_REDUCE
    leaves: int = 1

    @property
    def count(self) -> int:
        """Elements of the whole tensor."""
        return self.size_bytes // ELEMENT_BYTES

    @property
    def has_parts(self) -> bool:
        """Whether each rank has a part of the tensor."""
        return self.collective in (REDUCE_SCATTER, ALL_GATHER)

    def check(self) -> None:
        """Raises UsageError for invalid values."""
        if not 2 <= self.workers <= 26:
            raise UsageError(f"--workers must be from 2 to 26, not {self.workers}: they write to each other in a ring")
        if self.count < 1 or self.size_bytes % ELEMENT_BYTES:
            raise UsageError(f"--size-bytes must be a multiple of {ELEMENT_BYTES}, not {self.size_bytes}")
        if self.format not in ("fp32", "int32", "bfp", "fp16", "bf16"):
            raise UsageError(f"--format must be fp32, bfp, fp16, bf16 or int32, not {self.format}")
        if self.engine not in ("software", "rtl"):
            raise UsageError(f"--engine must be software or rtl (netfold rtl switch build), not {self.engine}")
        if self.version not in (1, 2):
            raise UsageError(f"--version must be 1 or 2, not {self.version}")
        self._check_collective()
        self._check_leaves()
        if not 0 <= self.loss < 0.5:
            raise UsageError(f"--loss must be a probability below 0.5, not {self.loss}")

    def _check_leaves(self) -> None:
        if self.leaves < 1 or self.workers % self.leaves:
            raise UsageError(
                f"--leaves must divide --workers, so that each switch has as many: not {self.leaves} for {self.workers}"
            )
        if self.leaves > 1 and (self.engine != "software" or self.collective != ALL_REDUCE):
            raise UsageError("--leaves: a tree of switches has all-reduces only, and runs in software")

    def _check_collective(self) -> None:
        if self.collective not in COLLECTIVES:
            raise UsageError(f"--collective must be one of {', '.join(COLLECTIVES)}, not {self.collective}")
        if self.has_parts and self.count % self.workers:
            whole = ELEMENT_BYTES * self.workers
            raise UsageError(
                f"--size-bytes must be a multiple of {whole}, so that each of {self.workers} workers has a part, "
                f"not {self.size_bytes}"
            )


class Process:
    """A worker or a switch in its namespace; it reads and writes lines."""

    def __init__(self, kind: str, namespace: str, options: dict[str, Any], log: Path, timeout_s: float) -> None:
        module = [sys.executable, "-m", "netfold_lab.bench.workers.roce", kind, json_module.dumps(options)]
        enter = ["ip", "netns", "exec", namespace]
        self._name, self._log, self._timeout_s = kind, log, timeout_s
        with log.open("wb") as errors:
            self.child = subprocess.Popen(
                [*enter, *module], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
            )

    def tell(self, value: Any) -> None:
        """Send one line to the process."""
        assert self.child.stdin
        try:
            print(json_module.dumps(value), file=self.child.stdin, flush=True)
        except BrokenPipeError:
            self._fail()

    def hear(self) -> Any:
        """The next line from the process. It is ended if no line arrives in time."""
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
        last = self._log.read_text(errors="replace").strip().splitlines()[-1:] or ["its log is empty"]
        raise LabError(f"the {self._name} ended: {last[0]}")

    def end(self) -> None:
        """Close its input: there are no more commands."""
        assert self.child.stdin
        self.child.stdin.close()

    def wait(self) -> None:
        """Wait until the process has ended by itself, within a time limit."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.child.wait(END_TIMEOUT_S)


def expected_checksums(settings: RoceSettings) -> list[int]:
    """The CRC32 of the result that each rank must have, folded in software."""
    import numpy as np

    import netfold
    from netfold_lab.bench.workers.roce import elements

    dtype = "int32" if settings.format == "int32" else "fp32"
    world, part = settings.workers, settings.count // settings.workers
    count = part if settings.collective == ALL_GATHER else settings.count
    inputs = [elements(settings.seed, rank, count, dtype) for rank in range(world)]
    if settings.leaves > 1:  # the sum of a leaf goes up as it is encoded
        mates = world // settings.leaves
        inputs = [netfold.fold(inputs[first : first + mates], settings.format) for first in range(0, world, mates)]
    if settings.collective == REDUCE_SCATTER:
        parts = [slice(rank * part, (rank + 1) * part) for rank in range(world)]
        results = [netfold.fold([each[one] for each in inputs], settings.format) for one in parts]
    elif settings.collective == ALL_GATHER:
        results = [np.concatenate(inputs)] * world
    else:
        copied = settings.collective == BROADCAST
        results = [inputs[0] if copied else netfold.fold(inputs, settings.format)] * world
    return [zlib.crc32(np.ascontiguousarray(result).view(np.uint8).data) for result in results]


def counters_of(switches: list[Process]) -> dict[str, int]:
    """The counters of all switches together."""
    sums: Counter[str] = Counter()
    for switch in switches:
        switch.tell("counters")
        sums.update(switch.hear())
    return dict(sums)


@contextlib.contextmanager
def switched(
    cables: Cables, engine: str, kind: str, options: list[dict[str, Any]], timeout_s: float, ports: Sequence[int] = ()
) -> Iterator[tuple[list[Process], list[Process]]]:
    """The switches and a process for each rank, which know each other. They end with the block; after an error they end
    with the cables. With `ports` only those fold, of the only switch."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        switches = []
        for number, placed in enumerate(cables.switches()):
            served = {**placed, "engine": engine, **({"ports": list(ports)} if ports else {})}
            switches.append(Process("switch", cables.fabric, served, folder / f"switch{number}.log", timeout_s))
        for switch in switches:
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
        yield switches, workers
        for group in (workers, switches):  # workers finish what is in flight through the switches, so they end first
            for process in group:
                process.end()
            for process in group:
                process.wait()
        processes.end_children([process.child for process in (*workers, *switches)])


def options_of_ranks(settings: RoceSettings, pcap: Path | None) -> list[dict[str, Any]]:
    """The options of each worker."""
    options = []
    for rank in range(settings.workers):
        client: dict[str, Any] = {"timeout_s": settings.timeout_s, "window": settings.window}
        client["version"] = settings.version
        client["one_way"] = settings.collective != ALL_REDUCE
        if settings.loss:
            client["faults"] = f"loss={settings.loss},seed={settings.seed * 1000 + rank}"
        if pcap is not None and rank == 0:
            client["pcap"] = str(pcap)
        one = {"interface": names.INTERFACE, "rank": rank, "world": settings.workers, "count": settings.count}
        one |= {"collective": settings.collective, "format": settings.format, "seed": settings.seed}
        options.append({**one, "client": client})
    return options


def measure(settings: RoceSettings, tell: Any, pcap: Path | None = None) -> dict[str, Any]:
    """One entry of results: times, the ranks whose bits differ from the software fold, and counters of both sides."""
    right = expected_checksums(settings)
    times_s, wrong, answers = [], 0, []
    options = options_of_ranks(settings, pcap)
    with (
        Cables(
            settings.workers, settings.rate_mbit_s, has_addresses=settings.version == 2, leaves=settings.leaves
        ) as cables,
        switched(cables, settings.engine, "worker", options, settings.timeout_s + 10) as (switches, workers),
    ):
        for run in range(settings.repeat + 1):  # the first run is the warm-up
            for worker in workers:
                worker.tell("go")
            answers = [worker.hear() for worker in workers]
            wrong += sum(answer["crc32"] != its for answer, its in zip(answers, right, strict=True))
            if run > 0:
                times_s.append(max(answer["time_s"] for answer in answers))
            tell(f"{settings.collective} {run}")
        counts = {name: count for name, count in counters_of(switches).items() if count}
    return {
        "system": "netfold",
        "algorithm": "in-network",
        "protocol": "roce",
        "collective": settings.collective,
        "version": settings.version,
        "leaves": settings.leaves,
        "engine": settings.engine,
        "format": settings.format,
        "size_bytes": settings.size_bytes,
        "time_s": times_s,
        "time_s_median": statistics.median(times_s),
        "ranks_with_wrong_bits": wrong,
        "workers_counters": {name: sum(answer["counters"][name] for answer in answers) for name in SUMMED},
        "switch_counters": counts,
    }


def show(entry: dict[str, Any], workers: int) -> None:
    """One line of measurements and of counters of both sides."""
    what = f"{entry['collective']} of {entry['size_bytes']} bytes of {entry['format']}"
    table = Table(title=f"{workers} RoCE workers, {what}")
    for heading in ("median", "wrong ranks", "writes", "sent again", "folded", "answered again"):
        table.add_column(heading, justify="right")
    counted, folded = entry["workers_counters"], entry["switch_counters"]
    handler = "roce" if entry["engine"] == "rtl" else f"roce_v{entry['version']}"  # hardware counts both together
    row = [f"{entry['time_s_median'] * 1e3:.1f} ms", entry["ranks_with_wrong_bits"], counted["sent_writes"]]
    row += [counted["resent_writes"], folded.get(f"{handler}_folded", 0), folded.get(f"{handler}_answered", 0)]
    table.add_row(*map(str, row))
    Console().print(table)


def register(app: typer.Typer) -> None:
    """Add the command to `netfold bench`."""
    default = RoceSettings()

    @app.command("roce")
    def roce(
        workers: Annotated[int, typer.Option(help="RoCE endpoints, each in a namespace of its own.")] = default.workers,
        size_bytes: Annotated[int, typer.Option(help="Bytes of gradients, before encoding.")] = default.size_bytes,
        wire: Annotated[str, typer.Option("--format", help="fp32, bfp, fp16, bf16 or int32.")] = default.format,
        loss: Annotated[float, typer.Option(help="Share of frames lost each way, by seed.")] = default.loss,
        rate_mbit_s: Annotated[float, typer.Option(help="Rate of every link; 0: not limited.")] = default.rate_mbit_s,
        window: Annotated[int, typer.Option(min=1, max=512, help="Packets in flight per worker.")] = default.window,
        repeat: Annotated[int, typer.Option(min=1, help="Timed repetitions, after one warm-up.")] = default.repeat,
        seed: Annotated[int, typer.Option(min=0, help="Seed of the gradients and of lost frames.")] = default.seed,
        timeout_s: Annotated[
            float, typer.Option(min=0.1, max=1e6, help="Longest wait without progress, in seconds.")
        ] = default.timeout_s,
        engine: Annotated[
            str, typer.Option(help="Switch to use: software, or rtl (simulated hardware).")
        ] = default.engine,
        version: Annotated[int, typer.Option(help="RoCE's: 1, or 2 (over IPv4 and UDP).")] = default.version,
        collective: Annotated[
            str, typer.Option(help="all-reduce, reduce-scatter, all-gather or broadcast.")
        ] = default.collective,
        leaves: Annotated[
            int, typer.Option(help="Switches below another one, with as many workers each; 1: one switch.")
        ] = default.leaves,
        pcap: Annotated[Path | None, output("Write rank 0's frames to this file, for Wireshark.")] = None,
        json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
    ) -> None:
        """A collective of RoCE endpoints through a switch that folds their frames. Check every bit of its results.

        Endpoints are processes with packet sockets in network namespaces; so is each switch. Needs root.
        """
        settings = RoceSettings(
            workers,
            size_bytes,
            wire,
            loss,
            rate_mbit_s,
            window,
            repeat,
            seed,
            timeout_s,
            engine,
            version,
            collective,
            leaves,
        )
        with sentences():
            settings.check()
            with progress_bar(settings.repeat + 1) as tell:
                entry = measure(settings, tell, pcap)
            if json:
                print_json(envelope("bench roce", asdict(settings), [entry]))
            else:
                show(entry, workers)
            if entry["ranks_with_wrong_bits"]:
                raise LabError(f"{entry['ranks_with_wrong_bits']} results differ from the software fold")
