"""`netfold bench switch`: the rate at which one core of the Ethernet switch folds from memory to memory, or the rate of
a switch at the other end of this machine's cables. Every sum is checked.

The program netfold-switch-bench measures. From memory to memory, a generator and the switch take turns on each core,
and only the switch's turns count. So the cost of the generator does not matter, and no NIC is needed. With cables
(cables.py) the program is only the generator.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from netfold import native
from netfold.json_output import envelope, print_json
from netfold_lab.bench import cables, rounds
from netfold_lab.errors import LabError, UsageError
from netfold_lab.guard import sentences
from netfold_lab.sizes import numbers_in

PAYLOAD_BYTES = 1464  # 366 fp32 gradients
GRADIENTS = {
    "fp32": 366,
    "int32": 366,
    "fp16": 732,
    "bf16": 732,
    "bfp": 1376,
}  # elements that fill it; bfp: 86 blocks of 17 bytes
FIRST_SUMS = ("frames_s_per_core", "folded_gbit_s_per_core", "gradients_s_per_core", "gradient_frames", "chunks")


def arguments_of(options: dict[str, Any]) -> list[str]:
    """The arguments for the program, without options that are False or None."""
    words = []
    for name, value in options.items():
        if value is None or value is False:
            continue
        option = f"--{name.replace('_', '-')}"
        for one in value if isinstance(value, list) else [value]:
            words += [option] if one is True else [option, str(one)]
    return words


def measure(
    workers: int, wire: str, gradients: int, options: dict[str, Any], before: Sequence[str] = ()
) -> dict[str, Any]:
    """Run the program, with the words `before` in front; returns its JSON object. Raises LabError with its message if
    it fails."""
    program = native.find(native.SWITCH_BENCH)
    if program is None:
        raise LabError(native.not_built(native.SWITCH_BENCH))
    given = {"workers": workers, "format": wire, "gradients": gradients, **options}
    words = [*before, str(program), *arguments_of(given)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    said = done.stderr.strip().splitlines()
    if not done.stdout:
        sentence = (said or ["it printed no message"])[-1].removeprefix("netfold bench switch: ")
        raise (UsageError if done.returncode == 2 else LabError)(sentence)
    return json.loads(done.stdout) | {"notices": said}


def result_of(measured: dict[str, Any], workers: int, wire: str, gradients: int) -> dict[str, Any]:
    """The report of a run: the mean of the cores, each core, and whether all checks passed."""
    cores = measured["cores"]
    mean = {name: sum(core[name] for core in cores) / len(cores) for name in FIRST_SUMS}
    return {
        "system": "netfold",
        "algorithm": "in-network",
        "format": wire,
        "workers": workers,
        "gradients": gradients,
        "size_bytes": measured["frame_bytes"],
        **mean,
        "ns_per_frame": 1e9 / mean["frames_s_per_core"] if mean["frames_s_per_core"] else None,
        "lossless_gbit_s": measured.get("lossless_gbit_s"),
        "right": measured["right"],
        "buffers_leaked": measured["buffers_leaked"],
        "cores": cores,
    }


def number(value: float | None, digits: int = 1) -> str:
    """A number as text; n/a if this machine cannot measure it."""
    return "n/a" if value is None else f"{value:,.{digits}f}"


def row_of(one: dict[str, Any]) -> dict[str, str]:
    """The cells of a run, by column."""
    first = one["cores"][0]
    wrong = sum(core["wrong_sums"] for core in one["cores"])
    checked = sum(core["results_checked"] for core in one["cores"])
    row = {
        "workers": str(one["workers"]),
        "format": one["format"],
        "bytes a frame": str(one["size_bytes"]),
        "Gbit/s": number(one["folded_gbit_s_per_core"]),
        "Mframes/s": number(one["frames_s_per_core"] / 1e6, 2),
        "ns a frame": number(one["ns_per_frame"]),
        "cycles a frame": number(first["cycles_per_frame"]),
        "instructions a frame": number(first["instructions_per_frame"]),
    }
    if one["lossless_gbit_s"] is not None:
        row["lossless Gbit/s"] = number(one["lossless_gbit_s"])
    for name, title in (("latency_us", "p50/p99 us"), ("plain_delay_us", "plain p50/p99 us")):
        if name in first:
            row[title] = f"{number(first[name]['p50'])}/{number(first[name]['p99'])}"
    if "plain_frames_lost" in first:
        row["plain lost"] = str(sum(core["plain_frames_lost"] for core in one["cores"]))
    return row | {"sums": f"{checked:,} right" if one["right"] else f"{wrong:,} WRONG"}


RUNS_A_TABLE = 3  # more columns do not fit 80 characters


def tables_of(results: list[dict[str, Any]]) -> Iterator[Table]:
    """Tables with a column for each run, because a row would be wider than a screen."""
    for first in range(0, len(results), RUNS_A_TABLE):
        yield _table_of([row_of(one) for one in results[first : first + RUNS_A_TABLE]])


def _table_of(rows: list[dict[str, str]]) -> Table:
    table = Table(title="folded by one core of the switch, memory to memory", box=SIMPLE_HEAD, title_justify="left")
    names = list(dict.fromkeys(name for row in rows for name in row))
    table.add_column(names[0])
    for row in rows:
        table.add_column(row[names[0]], justify="right")
    for name in names[1:]:
        table.add_row(name, *(row.get(name, "") for row in rows))
    return table


PROTOCOLS = ("netfold", "pcie", "roce")


def check(devices: list[str], wires: list[str], options: dict[str, Any]) -> bool:
    """Whether frames come in rounds (rounds.py). Raises UsageError."""
    protocol, layout = options["protocol"], options["layout"]
    if protocol not in PROTOCOLS:
        raise UsageError(f"--protocol must be {', '.join(PROTOCOLS[:-1])} or {PROTOCOLS[-1]}, not {protocol}")
    if layout not in rounds.LAYOUTS:
        raise UsageError(f"--layout must be {' or '.join(rounds.LAYOUTS)}, not {layout}")
    for name in wires:
        if name not in GRADIENTS:
            raise UsageError(f"--format takes {', '.join(GRADIENTS)}, not {name}")
    if not cables.is_ring(devices):
        cables.check(protocol, devices, options)
        return False
    for name in cables.ONLY_CABLES:
        if options[name]:
            raise UsageError(f"--{name.replace('_', '-')} is only for a switch at the other end of a --device")
    in_rounds = protocol != "netfold" or layout != rounds.RUN_TO_COMPLETION
    if in_rounds:
        rounds.check(protocol, layout, wires, options)
    return in_rounds


def measure_all(
    devices: list[str], worlds: list[int], wires: list[str], gradients: int, options: dict[str, Any]
) -> tuple[list[dict[str, Any]], list[str]]:
    """The results of every combination, and the program's messages."""
    is_ring = cables.is_ring(devices)
    in_rounds = check(devices, wires, options)
    results, notices = [], {}
    screen = Console(stderr=True)
    for world in worlds:
        for name in wires:
            count = gradients or (GRADIENTS[name] if is_ring else 0)
            with ExitStack() as stack:
                stack.enter_context(screen.status(f"{world} workers, {name}"))
                before: list[Any] = []
                where = options | {"device": devices}
                if not is_ring:
                    before, where = stack.enter_context(cables.ends(devices, world, options))
                measured = measure(world, name, count, where, before)
            notices.update(dict.fromkeys(measured["notices"]))
            if not is_ring:
                results.append(cables.result_of(measured, where["device"], world, name))
            elif in_rounds:
                results.append(rounds.result_of(measured, options["protocol"], options["layout"], world, name))
            else:
                results.append(result_of(measured, world, name, count))
    return results, list(notices)


def show(results: list[dict[str, Any]]) -> None:
    """Print the tables of the results."""
    if "devices" in results[0]:
        tables: Iterable[Table] = [cables.table_of(results)]
    else:
        tables = [rounds.table_of(results)] if "turns" in results[0] else tables_of(results)
    for table in tables:
        Console().print(table)


def register(app: typer.Typer) -> None:
    """Add the command to `netfold bench`."""

    @app.command("switch")
    def switch(
        workers: Annotated[
            str, typer.Option(help="Number of workers, one at each port (default 8); several with commas.")
        ] = "",
        device: Annotated[
            list[str] | None,
            typer.Option(
                help="ring (the default): ports in memory. veth, memif: a switch in a lab of its own. Or any DPDK "
                "device, one per worker, with a switch at its other end."
            ),
        ] = None,
        where: Annotated[
            str, typer.Option("--switch", help="HOST:PORT of the switch that the devices are connected to.")
        ] = "",
        address: Annotated[
            str, typer.Option(help="IP address of the first worker; the other workers get the next addresses.")
        ] = "",
        protocol: Annotated[
            str, typer.Option(help="Protocol of the frames: netfold, pcie (writes of 192 bytes) or roce (v1).")
        ] = "netfold",
        layout: Annotated[
            str, typer.Option(help="Threads: run-to-completion, or per-port (one receives, one folds).")
        ] = rounds.RUN_TO_COMPLETION,
        wire: Annotated[
            str, typer.Option("--format", help="Formats on the wire: fp32, bfp, ...; several with commas.")
        ] = "fp32",
        gradients: Annotated[int, typer.Option(min=0, help="Gradients in a frame; 0: as many as fit.")] = 0,
        window: Annotated[
            int,
            typer.Option(
                min=0, help="Chunks in flight; 0: 16 for ports in memory, else the window that the switch grants."
            ),
        ] = 0,
        threads: Annotated[
            int, typer.Option(min=1, help="Number of switch threads, each with its own queues and slots.")
        ] = 1,
        cores: Annotated[str, typer.Option(help="CPU cores to pin to, such as 0,1 (default: not pinned).")] = "",
        rate_gbit_s: Annotated[
            float, typer.Option(min=0, help="Rate of gradient traffic offered; 0: as fast as the switch takes it.")
        ] = 0.0,
        search: Annotated[bool, typer.Option("--search", help="Find the highest rate without loss.")] = False,
        plain: Annotated[
            float, typer.Option(min=0, max=1, help="Share of plain frames, which are only forwarded.")
        ] = 0.0,
        plain_bytes: Annotated[int, typer.Option(help="Size of a plain frame.")] = 512,
        frames: Annotated[
            float,
            typer.Option(
                min=0, help="Least number of gradient frames, such as 1e9 for a soak test; 0: run for some seconds."
            ),
        ] = 0,
        chunks_a_job: Annotated[
            int, typer.Option(min=0, help="Start a new job of another size after this many chunks; 0: one job.")
        ] = 0,
        faults: Annotated[
            str, typer.Option(help="Faults of arriving frames: loss=0.01,reorder=0.05; also duplicate.")
        ] = "",
        queue_frames: Annotated[int, typer.Option(min=1, help="Length of a port's queue in frames.")] = 512,
        buffers: Annotated[int, typer.Option(min=1, help="Number of frame buffers in all.")] = 16384,
        job: Annotated[str, typer.Option(help="Name of the job at the switch.")] = "",
        mtu: Annotated[int, typer.Option(help="MTU of the path to the switch, in bytes.")] = 1500,
        timeout_s: Annotated[
            float, typer.Option(min=0.1, help="Longest wait for the switch and for a result, in seconds.")
        ] = 30.0,
        require_auth: Annotated[bool, typer.Option("--require-auth", help="Tag packets with NETFOLD_SECRET.")] = False,
        seed: Annotated[int, typer.Option(min=0, help="Seed of gradients, faults and jobs.")] = 1,
        as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
    ) -> None:
        """Measure how fast an Ethernet switch folds. Every sum is checked.

        Without --device it measures one core of the switch, from memory to memory. With devices this program is only
        the generator: it joins a job as workers do, over the same devices, and sends gradients to the switch at their
        other ends.
        """
        with sentences():
            devices = device or [cables.RING]
            is_ring = cables.is_ring(devices)
            worlds = numbers_in(workers, "--workers", 64) if workers else []
            worlds = (worlds or [8]) if is_ring else cables.worlds_of(devices, worlds)
            wires = wire.split(",")
            if cores and not all(core.isdecimal() for core in cores.split(",")):
                raise UsageError(f"--cores takes numbers with commas, such as 0,1, not {cores}")
            options = {
                "window": window or None, "threads": threads, "cores": cores or None, "plain": plain,
                "rate_gbit_s": rate_gbit_s, "search": search, "plain_bytes": plain_bytes,
                "frames": int(frames or (4e6 if is_ring else cables.FRAMES)), "chunks_a_job": chunks_a_job,
                "faults": faults or None, "queue_frames": queue_frames, "buffers": buffers, "seed": seed,
                "protocol": protocol, "layout": layout, "switch": where or None, "address": address or None,
                "job": job or None, "mtu": mtu, "timeout_s": timeout_s, "require_auth": require_auth,
            }  # fmt: skip
            results, notices = measure_all(devices, worlds, wires, gradients, options)
            for notice in notices:
                Console(stderr=True).print(notice, style="dim", highlight=False)
            if as_json:
                parameters = {"workers": worlds, "format": wires, "device": devices, **options}
                print_json(envelope("bench switch", parameters, results))
            else:
                show(results)
            if not all(one["right"] for one in results):
                raise LabError(
                    "a check failed: a wrong sum, a counter that does not add up, or a buffer that was not returned"
                )
