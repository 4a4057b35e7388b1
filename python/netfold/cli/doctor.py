"""`netfold doctor`: checks this machine, and prints what to fix for full speed."""

from __future__ import annotations

import argparse
import shutil
import sys
import textwrap
from dataclasses import asdict

from rich.console import Console
from rich.markup import escape

from netfold.cli import arguments as cli_arguments
from netfold.cli.checks import MISSING, OK, SLOW, Check, gpu, machine, nic, package, sockets, switch

COLORS = {OK: "green", SLOW: "yellow", MISSING: "red"}
STATUS_WIDTH = 8
WHOLE = 10_000  # columns of a line that is not broken
CHECKS = (
    package.extension,
    package.own_programs,
    package.libraries,
    package.torch,
    gpu.accelerator,
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
        missing.

        With --switch: measure what that switch takes from this machine, and print how much faster it makes large
        all-reduces, for each link that it could have. With --rank too, on all workers at the same time, measure its
        link as well: each worker gives another rank, from 0 to --workers less 1. NETFOLD_SECRET is the switch's
        secret, if it has one.

        With --nic: take that smart NIC, as NETFOLD_NIC names it, and print what it says of itself.""",
        (
            "netfold doctor",
            "netfold doctor --json",
            "netfold doctor --switch 10.0.0.5:7171 --workers 8",
            "netfold doctor --switch 10.0.0.5:7171 --workers 8 --rank 0",
            "netfold doctor --nic 0000:65:00.0,bar=2",
        ),
    )
    made.add_argument("--switch", type=cli_arguments.host_port, metavar="HOST:PORT", help="measure this switch")
    made.add_argument("--nic", metavar="PLACE", help="look at this smart NIC")
    made.add_argument(
        "--workers",
        type=cli_arguments.integer_in(2, 1024),
        default=8,
        help="number of workers of the job (default: %(default)s)",
    )
    made.add_argument(
        "--rank", type=cli_arguments.integer_in(0, 1023), help="rank of this worker among all that measure"
    )
    cli_arguments.add_json(made)
    return made


def examine() -> list[Check]:
    """All checks, in the order of the table."""
    return [check for look in CHECKS for check in look()]


def run(arguments: list[str]) -> None:
    """Run all checks and print them; exits with 1 if a required part is missing."""
    made = parser()
    given = made.parse_args(arguments)
    if given.rank is not None and not (given.switch and given.rank < given.workers):
        made.error("--rank needs --switch, and is below --workers")
    if given.nic and given.switch:
        made.error("--nic and --switch are two questions: ask one")
    if given.nic:
        checks = nic.look(given.nic)
    elif given.switch:
        checks = switch.look(given.switch, given.workers, given.rank)
    else:
        checks = examine()
    if given.as_json:
        from netfold.json_output import envelope, print_json

        print_json(envelope("doctor", {}, [asdict(check) for check in checks]))
    else:
        show(checks)
        if not (given.switch or given.nic):
            count(checks)
    if any(check.required and check.status == MISSING for check in checks):
        sys.exit(1)


def show(checks: list[Check]) -> None:
    """Print one line for each check, and below it the fix. On a terminal, or with COLUMNS, lines fit its width; in a
    file or a pipe each stays whole."""
    console = Console(highlight=False, soft_wrap=True)
    name_width = max(len(check.name) for check in checks)
    columns = max(shutil.get_terminal_size((WHOLE, 0)).columns, name_width + 40)
    for check in checks:
        indent = STATUS_WIDTH + name_width + 3
        first, *others = _lines(check.found, columns - indent)
        status = f"[{COLORS[check.status]}]{check.status:{STATUS_WIDTH}}[/]"
        console.print(f"{status} {escape(check.name):{name_width}}  {escape(first)}")
        for line in others:
            console.print(" " * indent + escape(line))
        if check.fix and check.status != OK:
            if indent + 3 + len(check.fix) > columns:
                indent = STATUS_WIDTH + 1  # a command is best whole, to be copied
            for number, line in enumerate(_lines(check.fix, columns - indent - 3)):
                console.print(" " * indent + ("   " if number else "-> ") + escape(line), style="dim")


def _lines(text: str, columns: int) -> list[str]:
    """The text in lines of at most so many columns, broken between words; too long a word, as a path, within."""
    return textwrap.wrap(text, columns, break_on_hyphens=False, replace_whitespace=False) or [""]


def count(checks: list[Check]) -> None:
    """Print how many of them are good."""
    wanting = sum(check.status != OK for check in checks)
    Console(highlight=False, soft_wrap=True).print(
        f"{len(checks) - wanting} of {len(checks)} checks are as they should be"
    )
