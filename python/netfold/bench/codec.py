"""`netfold bench codec`: the codec and the fold on one core, beside memcpy of the same floats."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from netfold.bench.report import envelope, print_json
from netfold.lab.errors import UsageError
from netfold.lab.guard import sentences

FLOAT_BYTES = 4
SIZES = "16384,262144,268435456"  # of floats: with a copy beside them they fit in L1, in L2, in no cache
GIGA = 1e9


def cache_that_holds(size_bytes: int) -> str:
    """The smallest cache of the first core that holds floats and a copy of them, or memory."""
    caches = []
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        if (index / "type").read_text().strip() != "Instruction":
            kib = int((index / "size").read_text().strip().removesuffix("K"))
            caches.append((kib * 1024, "L" + (index / "level").read_text().strip()))
    return next((name for capacity, name in sorted(caches) if 2 * size_bytes <= capacity), "memory")


def results_of(timings: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Adds rates and ratios. A ratio is the median of each round's own, so that drift between rounds cancels."""
    copy_time_s = next(timing["time_s"] for timing in timings if timing["system"] == "memcpy")
    results = []
    for timing in timings:
        times = timing["time_s"]
        ratios = [copied / time for copied, time in zip(copy_time_s, times, strict=True)]
        kernels = None if timing["system"] == "memcpy" else timing["system"]
        results.append(
            timing
            | {
                "system": "netfold" if kernels else "memcpy",
                "kernels": kernels,
                "place": cache_that_holds(timing["size_bytes"]),
                "time_s_median": statistics.median(times),
                "rate_gbyte_s": timing["size_bytes"] / statistics.median(times) / GIGA,
                "ratio_to_memcpy": statistics.median(ratios),
            }
        )
    return results


def table_of(results: list[dict[str, Any]]) -> Table:
    """What people see."""
    table = Table(title="One core: bytes of floats per second, and times memcpy of the same floats")
    for name in ("from", "floats", "kernels", "operation", "format"):
        table.add_column(name)
    for name in ("GB/s", "of memcpy", "median us", "max error"):
        table.add_column(name, justify="right")
    for one in results:
        error = one.get("max_abs_error")
        is_copy = one["system"] == "memcpy"
        table.add_row(
            one["place"],
            f"{one['size_bytes'] / 1024:,.0f} KiB",
            one["kernels"] or "glibc",
            "memcpy" if is_copy else one["algorithm"],
            "" if is_copy else one["format"],
            f"{one['rate_gbyte_s']:.1f}",
            f"{one['ratio_to_memcpy']:.2f}x",
            f"{one['time_s_median'] * 1e6:,.1f}",
            "" if error is None else f"{error:.2g}",
            style="dim" if is_copy else None,
        )
    return table


def sizes_of(text: str) -> list[int]:
    """Sizes with commas between them."""
    try:
        return [int(word) for word in text.split(",")]
    except ValueError:
        raise UsageError(f"--size-bytes takes whole numbers with commas, not {text}") from None


def register(app: typer.Typer) -> None:
    """Add the command to `netfold bench`."""

    @app.command("codec")
    def codec(
        size_bytes: Annotated[str, typer.Option(help="Bytes of floats; several, with commas.")] = SIZES,
        kernels: Annotated[str, typer.Option(help="Kernel tables, with commas; all for every one.")] = "",
        repeat: Annotated[int, typer.Option(help="Rounds; each times every operation once.")] = 9,
        block: Annotated[int, typer.Option(help="Elements that share an exponent.")] = 16,
        mantissa: Annotated[int, typer.Option(help="Bits of a mantissa, without its sign.")] = 7,
        json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
    ) -> None:
        """Measure encode, decode, decode-and-add and a fold of eight workers on one core, interleaved with memcpy."""
        from netfold import _core

        with sentences():
            tables = _core.kernel_names() if kernels == "all" else (kernels or _core.kernels_in_use()).split(",")
            results = []
            for size in sizes_of(size_bytes):
                try:
                    timings = _core.time_codec(tables, size, repeat, block=block, mantissa=mantissa)
                except ValueError as error:
                    raise UsageError(str(error)) from None
                results += results_of(timings)
            parameters = {"size_bytes": sizes_of(size_bytes), "kernels": tables, "repeat": repeat}
            parameters |= {"block": block, "mantissa": mantissa, "workers_per_fold": _core.FOLD_WORKERS}
            if json:
                print_json(envelope("bench codec", parameters, results))
            else:
                Console().print(table_of(results))
