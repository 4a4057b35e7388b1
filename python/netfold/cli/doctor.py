"""`netfold doctor`: checks this machine, and prints what to fix for full speed."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict

from rich.console import Console
from rich.markup import escape

from netfold.cli import arguments as cli_arguments
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


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = cli_arguments.parser(
        "doctor",
        """Check this machine and print what to fix for full speed. The exit status is 1 only if a required part is
        missing.""",
        ("netfold doctor", "netfold doctor --json"),
    )
    cli_arguments.add_json(made)
    return made


def examine() -> list[Check]:
    """All checks, in the order of the table."""
    return [check for look in CHECKS for check in look()]


def run(arguments: list[str]) -> None:
    """Run all checks and print them; exits with 1 if a required part is missing."""
    given = parser().parse_args(arguments)
    checks = examine()
    if given.as_json:
        from netfold.json_output import envelope, print_json

        print_json(envelope("doctor", {}, [asdict(check) for check in checks]))
    else:
        _show(checks)
    if any(check.required and check.status == MISSING for check in checks):
        sys.exit(1)


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
    console.print(f"{len(checks) - wanting} of {len(checks)} checks are as they should be")
