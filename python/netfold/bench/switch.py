"""`netfold bench switch`: what one core of the frame switch folds, memory to memory, or what a switch at the other end
of this machine's cables does; every sum is checked.

The program netfold-switch-bench measures. Memory to memory a generator and the switch take turns on each core, and only
the switch's turns count: the figure is the switch's own, whatever the generator costs, and no NIC is needed. At the end
of cables (cables.py) it is the generator alone.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from netfold import native
from netfold.bench import cables, rounds
from netfold.bench.report import envelope, print_json
from netfold.lab.errors import LabError, UsageError
from netfold.lab.guard import sentences

PAYLOAD_BYTES = 1464  # 366 fp32 gradients
GRADIENTS = {
    "fp32": 366,
    "int32": 366,
    "fp16": 732,
    "bf16": 732,
    "bfp": 1376,
}  # that fill it; bfp: 86 blocks of 17 bytes
FIRST_SUMS = ("frames_s_per_core", "folded_gbit_s_per_core", "gradients_s_per_core", "gradient_frames", "chunks")


def arguments_of(options: dict[str, Any]) -> list[str]:
    """Words for the program: an option that is false or None is left out."""
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
    """One run of the program, behind the words `before`: its JSON object. Raises LabError with what it said, where it
    failed."""
    program = native.find(native.SWITCH_BENCH)
    if program is None:
        raise LabError(native.not_built(native.SWITCH_BENCH))
    given = {"workers": workers, "format": wire, "gradients": gradients, **options}
    words = [*before, str(program), *arguments_of(given)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    said = done.stderr.strip().splitlines()
    if not done.stdout:
        sentence = (said or ["it said nothing"])[-1].removeprefix("netfold bench switch: ")
        raise (UsageError if done.returncode == 2 else LabError)(sentence)
    return json.loads(done.stdout) | {"notices": said}


def result_of(measured: dict[str, Any], workers: int, wire: str, gradients: int) -> dict[str, Any]:
    """What is reported of a run: the mean core, its cores, and whether everything was right."""
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
    """For people; n/a where this machine cannot say."""
    return "n/a" if value is None else f"{value:,.{digits}f}"


def row_of(one: dict[str, Any]) -> dict[str, str]:
    """What people see of a run, by column."""
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


def table_of(results: list[dict[str, Any]]) -> Table:
    """What people see: a column a run, for what is told of each is wider than a screen."""
    table = Table(title="folded by one core of the switch, memory to memory", box=SIMPLE_HEAD, title_justify="left")
    rows = [row_of(one) for one in results]
    names = list(dict.fromkeys(name for row in rows for name in row))
    table.add_column(names[0])
    for row in rows:
        table.add_column(row[names[0]], justify="right")
    for name in names[1:]:
        table.add_row(name, *(row.get(name, "") for row in rows))
    return table


def numbers_in(text: str, option: str, most: int) -> list[int]:
    """Whole numbers with commas between them."""
    try:
        values = [int(word) for word in text.split(",")]
    except ValueError:
        raise UsageError(f"{option} takes whole numbers with commas, not {text}") from None
    for value in values:
        if not 1 <= value <= most:
            raise UsageError(f"{option} is from 1 to {most}, not {value}")
    return values


DIALECTS = ("netfold", "pcie", "roce")


def check(devices: list[str], wires: list[str], options: dict[str, Any]) -> bool:
    """Whether frames come in rounds (rounds.py). Raises UsageError."""
    dialect, layout = options["dialect"], options["layout"]
    if dialect not in DIALECTS:
        raise UsageError(f"--dialect is {', '.join(DIALECTS[:-1])} or {DIALECTS[-1]}, not {dialect}")
    if layout not in rounds.LAYOUTS:
        raise UsageError(f"--layout is {' or '.join(rounds.LAYOUTS)}, not {layout}")
    for name in wires:
        if name not in GRADIENTS:
            raise UsageError(f"--format is of {', '.join(GRADIENTS)}, not {name}")
    if not cables.is_ring(devices):
        cables.check(dialect, devices, options)
        return False
    for name in cables.ONLY_CABLES:
        if options[name]:
            raise UsageError(f"--{name.replace('_', '-')} is for a switch at the other end of a --device")
    in_rounds = dialect != "netfold" or layout != rounds.RUN_TO_COMPLETION
    if in_rounds:
        rounds.check(dialect, layout, wires, options)
    return in_rounds


def measure_all(
    devices: list[str], worlds: list[int], wires: list[str], gradients: int, options: dict[str, Any]
) -> tuple[list[dict[str, Any]], list[str]]:
    """The results of every combination, and what the program said besides."""
    is_ring = cables.is_ring(devices)
    in_rounds = check(devices, wires, options)
    results, notices = [], {}
    screen = Console(stderr=True)
    for world in worlds:
        for name in wires:
            count = gradients or (GRADIENTS[name] if is_ring else 0)
            with ExitStack() as stack:
                stack.enter_context(screen.status(f"{world} workers, {name}"))
                before, where = [], options | {"device": devices}
                if not is_ring:
                    before, where = stack.enter_context(cables.ends(devices, world, options))
                measured = measure(world, name, count, where, before)
            notices.update(dict.fromkeys(measured["notices"]))
            if not is_ring:
                results.append(cables.result_of(measured, where["device"], world, name))
            elif in_rounds:
                results.append(rounds.result_of(measured, options["dialect"], options["layout"], world, name))
            else:
                results.append(result_of(measured, world, name, count))
    return results, list(notices)


def show(results: list[dict[str, Any]]) -> None:
    """For people: the table of whatever was measured."""
    if "devices" in results[0]:
        table = cables.table_of(results)
    else:
        table = rounds.table_of(results) if "turns" in results[0] else table_of(results)
    Console().print(table)


def register(app: typer.Typer) -> None:
    """Add the command to `netfold bench`."""

    @app.command("switch")
    def switch(
        workers: Annotated[str, typer.Option(help="Workers, each at a port (8); several runs, with commas.")] = "",
        device: Annotated[
            list[str] | None,
            typer.Option(
                help="ring: ports in memory (without it). veth, memif: a switch in a lab of its own. Else any DPDK "
                "device, once a worker, with a switch at its other end."
            ),
        ] = None,
        where: Annotated[str, typer.Option("--switch", help="HOST:PORT of the switch at the devices' ends.")] = "",
        address: Annotated[str, typer.Option(help="There, the first worker's IP address; the next follow.")] = "",
        dialect: Annotated[
            str, typer.Option(help="netfold; pcie: writes of 192 bytes to a host; roce: RoCE v1 frames.")
        ] = "netfold",
        layout: Annotated[
            str, typer.Option(help="run-to-completion, or per-port: one core receives, one folds.")
        ] = rounds.RUN_TO_COMPLETION,
        wire: Annotated[str, typer.Option("--format", help="fp32, bfp, ...; several, with commas.")] = "fp32",
        gradients: Annotated[int, typer.Option(min=0, help="A frame; 0: those that fill it.")] = 0,
        window: Annotated[
            int, typer.Option(min=0, help="Chunks in flight; 0: 16 in memory, else what the switch grants.")
        ] = 0,
        threads: Annotated[int, typer.Option(min=1, help="Cores at once, each with queues and slots of its own.")] = 1,
        cores: Annotated[str, typer.Option(help="Which, such as 0,1; none: any.")] = "",
        rate_gbit_s: Annotated[
            float, typer.Option(min=0, help="Gradients offered; 0: as fast as they are taken.")
        ] = 0.0,
        search: Annotated[bool, typer.Option("--search", help="Find the highest rate that loses nothing.")] = False,
        plain: Annotated[
            float, typer.Option(min=0, max=1, help="Share of plain frames, that are only forwarded.")
        ] = 0.0,
        plain_bytes: Annotated[int, typer.Option(help="Their size.")] = 512,
        frames: Annotated[
            float, typer.Option(min=0, help="Of gradients, at least; 1e9 makes a soak. 0: some seconds' worth.")
        ] = 0,
        chunks_a_job: Annotated[
            int, typer.Option(min=0, help="Then the job goes and another of another size comes; 0: one job.")
        ] = 0,
        faults: Annotated[str, typer.Option(help="On the way in, as loss=0.01,reorder=0.05; duplicate, too.")] = "",
        queue_frames: Annotated[int, typer.Option(min=1, help="That a port's queue holds.")] = 512,
        buffers: Annotated[int, typer.Option(min=1, help="Frame buffers, all together.")] = 16384,
        job: Annotated[str, typer.Option(help="Name of the job at the switch.")] = "",
        mtu: Annotated[int, typer.Option(help="Of the way to the switch.")] = 1500,
        timeout_s: Annotated[float, typer.Option(min=0.1, help="To wait for the switch, and for a result.")] = 30.0,
        require_auth: Annotated[bool, typer.Option("--require-auth", help="Tag packets by NETFOLD_SECRET.")] = False,
        seed: Annotated[int, typer.Option(min=0, help="Of gradients, faults and jobs.")] = 1,
        as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
    ) -> None:
        """Measure what a switch of frames folds, with every sum checked.

        Without --device one core of it, memory to memory. With devices this is the generator alone: it joins a job as
        workers do, over the same devices, and offers gradients to the switch at their other ends.
        """
        with sentences():
            devices = device or [cables.RING]
            is_ring = cables.is_ring(devices)
            worlds = numbers_in(workers, "--workers", 64) if workers else []
            worlds = (worlds or [8]) if is_ring else cables.worlds_of(devices, worlds)
            wires = wire.split(",")
            if cores and not all(core.isdecimal() for core in cores.split(",")):
                raise UsageError(f"--cores are numbers with commas, as 0,1, not {cores}")
            options = {
                "window": window or None, "threads": threads, "cores": cores or None, "plain": plain,
                "rate_gbit_s": rate_gbit_s, "search": search, "plain_bytes": plain_bytes,
                "frames": int(frames or (4e6 if is_ring else cables.FRAMES)), "chunks_a_job": chunks_a_job,
                "faults": faults or None, "queue_frames": queue_frames, "buffers": buffers, "seed": seed,
                "dialect": dialect, "layout": layout, "switch": where or None, "address": address or None,
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
                raise LabError("something was wrong: a sum, a counter that does not add up, or a buffer not given back")
