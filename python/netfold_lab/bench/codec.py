"""`netfold bench codec`: the codec and the fold on one core, beside memcpy of the same floats."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Annotated, Any

import psutil
import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from netfold.json_output import envelope, print_json
from netfold_lab.errors import UsageError
from netfold_lab.guard import sentences
from netfold_lab.sizes import size_name, sizes_of

FLOAT_BYTES = 4
COPIES = 3  # of the floats: more than a measurement keeps in memory
SIZES = "16384,262144,268435456"  # of floats: with a copy they fit in L1, in L2, and in no cache
GIGA = 1e9
BOUNDS = ("memcpy", "read")  # measured beside the kernels: glibc's copy, and only reading the floats


def cache_that_holds(size_bytes: int) -> str:
    """The smallest cache of the first core that holds floats and a copy of them, or memory."""
    caches = []
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        if (index / "type").read_text().strip() != "Instruction":
            kib = int((index / "size").read_text().strip().removesuffix("K"))
            caches.append((kib * 1024, "L" + (index / "level").read_text().strip()))
    return next((name for capacity, name in sorted(caches) if 2 * size_bytes <= capacity), "memory")


def results_of(timings: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add rates and ratios. A ratio is the median of the rounds' ratios, so that drift between rounds cancels."""
    copy_time_s = next(timing["time_s"] for timing in timings if timing["system"] == "memcpy")
    results = []
    for timing in timings:
        times = timing["time_s"]
        ratios = [copied / time for copied, time in zip(copy_time_s, times, strict=True)]
        kernels = None if timing["system"] in BOUNDS else timing["system"]
        results.append(
            timing
            | {
                "system": "netfold" if kernels else timing["system"],
                "kernels": kernels,
                "place": cache_that_holds(timing["size_bytes"]),
                "time_s_median": statistics.median(times),
                "rate_gbyte_s": timing["size_bytes"] / statistics.median(times) / GIGA,
                "ratio_to_memcpy": statistics.median(ratios),
            }
        )
    return results


def table_of(results: list[dict[str, Any]]) -> Table:
    """The table: a row for each size and kernel table, a column for each operation."""
    tables = list(dict.fromkeys(one["kernels"] for one in results if one["kernels"]))
    title = "GB/s of floats on one core, and times memcpy of the same floats"
    table = Table(
        title=f"{title} ({', '.join(tables)})", caption=errors_of(results), box=SIMPLE_HEAD, padding=(0, 1, 0, 0)
    )
    names_kernels = len(tables) > 1
    for name in ("from", "kernels") if names_kernels else ("from",):
        table.add_column(name, no_wrap=True)
    operations = dict.fromkeys((one["algorithm"], one["format"]) for one in results if one["kernels"])
    for bound in BOUNDS:
        table.add_column(bound, justify="right", style="dim", no_wrap=True)
    for algorithm, wire in operations:
        heading = algorithm.replace("-", "-\n")
        table.add_column(f"{heading}\n{wire}", justify="right", no_wrap=True)
    bounds = {(one["size_bytes"], one["system"]): one for one in results if not one["kernels"]}
    for size, kernels in dict.fromkeys((one["size_bytes"], one["kernels"]) for one in results if one["kernels"]):
        mine = {
            (one["algorithm"], one["format"]): f"{one['rate_gbyte_s']:.1f}\n{one['ratio_to_memcpy']:.2f}x"
            for one in results
            if (one["size_bytes"], one["kernels"]) == (size, kernels)
        }
        where = [f"{bounds[size, 'memcpy']['place']}\n{size_name(size)}", *([kernels] if names_kernels else [])]
        rates = [f"{bounds[size, bound]['rate_gbyte_s']:.1f}" for bound in BOUNDS]
        table.add_row(*where, *rates, *(mine[operation] for operation in operations))
    return table


def errors_of(results: list[dict[str, Any]]) -> str:
    """The difference between the folds and the exact sum."""
    largest: dict[str, float] = {}
    for one in results:
        if "max_abs_error" in one:
            largest[one["format"]] = max(largest.get(one["format"], 0.0), one["max_abs_error"])
    return "largest error of a fold: " + ", ".join(f"{wire} {error:.2g}" for wire, error in largest.items())


def sizes_to_measure(text: str) -> list[int]:
    """A comma-separated list of sizes: whole floats that fit in free memory."""
    sizes = sizes_of(text)
    most = psutil.virtual_memory().available // COPIES
    for size in sizes:
        if size <= 0 or size % FLOAT_BYTES:
            raise UsageError(f"--size-bytes takes positive multiples of {FLOAT_BYTES}, not {size}")
        if size > most:
            raise UsageError(f"--size-bytes must be at most {most} with the free memory of this machine, not {size}")
    return sizes


def register(app: typer.Typer) -> None:
    """Add the command to `netfold bench`."""

    @app.command("codec")
    def codec(
        size_bytes: Annotated[
            str,
            typer.Option(help="Bytes of floats, rounded down to whole blocks of eight workers; several with commas."),
        ] = SIZES,
        kernels: Annotated[
            str, typer.Option(help="Kernel tables, with commas; all: every table (default: the fastest).")
        ] = "",
        repeat: Annotated[int, typer.Option(min=1, help="Rounds; each times every operation once.")] = 15,
        block: Annotated[int, typer.Option(min=1, help="Elements that share an exponent.")] = 16,
        mantissa: Annotated[int, typer.Option(min=1, help="Bits of a mantissa, without its sign.")] = 7,
        json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
    ) -> None:
        """Measure encode, decode, decode-and-add and a fold of eight workers on one core, interleaved with memcpy."""
        from netfold import _core

        with sentences():
            tables = _core.kernel_names() if kernels == "all" else (kernels or _core.kernels_in_use()).split(",")
            results = []
            sizes = sizes_to_measure(size_bytes)
            least = _core.FOLD_WORKERS * block * FLOAT_BYTES
            if min(sizes) < least:
                raise UsageError(f"--size-bytes must be at least {least} with blocks of {block}, not {min(sizes)}")
            for size in sizes:
                try:
                    timings = _core.time_codec(tables, size, repeat, block=block, mantissa=mantissa)
                except ValueError as error:
                    raise UsageError(str(error)) from None
                results += results_of(timings)
            parameters = {"size_bytes": sizes, "kernels": tables, "repeat": repeat}
            parameters |= {"block": block, "mantissa": mantissa, "workers_per_fold": _core.FOLD_WORKERS}
            if json:
                print_json(envelope("bench codec", parameters, results))
            else:
                Console().print(table_of(results))
