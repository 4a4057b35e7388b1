"""`netfold doctor`: what this machine lacks for full speed, and how to get it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from netfold.cli.checks import MISSING, OK, SLOW, Check, machine, package, sockets

COLORS = {OK: "green", SLOW: "yellow", MISSING: "red"}
CHECKS = (
    package.extension,
    package.own_programs,
    package.libraries,
    package.torch,
    package.tuning,
    sockets.offloads,
    sockets.buffers,
    machine.cores,
    machine.pages,
    machine.tracing,
    sockets.mtus,
    machine.namespaces,
    package.programs,
)


def register(app: typer.Typer) -> None:
    """Add `doctor` to the program."""
    app.command()(doctor)


def examine() -> list[Check]:
    """All checks, in the order they are shown."""
    return [check for look in CHECKS for check in look()]


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """Say what this machine lacks for full speed and how to get it. Fails only where something required is missing."""
    checks = examine()
    if as_json:
        from netfold.bench.report import envelope, print_json

        print_json(envelope("doctor", {}, [asdict(check) for check in checks]))
    else:
        _show(checks)
    if any(check.required and check.status == MISSING for check in checks):
        raise SystemExit(1)


def _show(checks: list[Check]) -> None:
    console = Console(highlight=False, soft_wrap=True)
    width = max(len(check.name) for check in checks)
    for check in checks:
        color = COLORS[check.status]
        line = f"[{color}]{check.status:8}[/] {escape(check.name):{width}}  {escape(check.found)}"
        console.print(line)
        if check.fix and check.status != OK:
            console.print(f"{'':8} {'':{width}}  -> {escape(check.fix)}", style="dim")
    wanting = sum(check.status != OK for check in checks)
    console.print(f"{len(checks) - wanting} of {len(checks)} as they should be")
