"""`netfold switch --engine rtl`: the simulated hardware between interfaces, in place of the software's switch."""

from __future__ import annotations

import signal
import threading
import time
from typing import Annotated, Any

import typer

REPORT_PERIOD_S = 1.0

app = typer.Typer(add_completion=False)


@app.command()
def run(
    port: Annotated[list[str], typer.Option(help="Interface whose link leads to a worker; once for each worker.")],
    engine: Annotated[str, typer.Option(help="rtl: the hardware, Verilated (netfold rtl switch build).")] = "rtl",
    fold: Annotated[list[int] | None, typer.Option(help="Ports that fold, by number from 0 (default: all).")] = None,
    integers: Annotated[
        bool, typer.Option(help="AGG_MODE 0: messages without an element type are int32, not fp32.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="At the end, one JSON object of counters.")] = False,
) -> None:
    """Switch frames between interfaces, and fold gradients of RoCE v1 and v2, in the hardware of rtl/ simulated by
    Verilator. Frames are real, but the simulation is some thousand times slower than the FPGA. Ctrl-C ends it. It needs
    root (CAP_NET_RAW)."""
    from netfold import native

    if engine != "rtl":
        raise typer.BadParameter("use --engine rtl, or leave out --engine", param_hint="--engine")
    if len(port) < 2:
        raise typer.BadParameter("a switch has at least two ports", param_hint="--port")
    try:
        switch = native.simulated_switch(len(port)).FrameSwitch(port, ports=fold or [], is_float=not integers)
    except (RuntimeError, ValueError) as error:
        typer.echo(f"netfold switch: {error}", err=True)
        raise typer.Exit(1) from None
    started = time.monotonic()
    _until_interrupted(switch)
    counts = switch.counts()
    switch.close()
    _report(counts, {"ports": port, "fold": fold, "time_s": time.monotonic() - started}, as_json)


def _until_interrupted(switch: Any) -> None:
    from rich.console import Console

    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    with Console(stderr=True).status("switching") as status:
        while not ended.wait(REPORT_PERIOD_S):
            counts = switch.counts()
            status.update(
                f"{counts['roce_folded']:.0f} folded, {counts['cycles']:.3g} cycles, "
                f"{counts['cycles_per_s']:.3g} per second while frames are in flight"
            )


def _report(counts: dict[str, float], parameters: dict[str, Any], as_json: bool) -> None:
    from netfold.json_output import envelope, print_json

    if as_json:
        print_json(envelope("switch", {"engine": "rtl", **parameters}, [counts]))
        return
    for name, count in counts.items():
        if count:
            typer.echo(f"{name}: {count:.10g}")
