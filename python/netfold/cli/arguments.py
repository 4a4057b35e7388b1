"""Command lines of the commands in `netfold`: argparse, with the checks and the help texts that they share."""

from __future__ import annotations

import argparse
import math
import shutil
import sys
import textwrap
from collections.abc import Callable
from typing import NoReturn

SCREEN_COLUMNS = 80


def width() -> int:
    """The width of a help text in columns."""
    return min(shutil.get_terminal_size((SCREEN_COLUMNS, 0)).columns, SCREEN_COLUMNS) - 2


def parser(command: str, text: str, examples: tuple[str, ...]) -> argparse.ArgumentParser:
    """A parser of `netfold COMMAND`; `text`: paragraphs, separated by empty lines."""
    paragraphs = [textwrap.fill(" ".join(part.split()), width()) for part in text.split("\n\n")]
    return argparse.ArgumentParser(
        prog=f"netfold {command}",
        description="\n\n".join(paragraphs),
        epilog="\n  ".join(("Examples:", *examples)),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def add_command(to: argparse.ArgumentParser, of: str) -> None:
    """The rest of the line: the command to run. `command_of` reads it."""
    to.add_argument("command", nargs=argparse.REMAINDER, help=f"{of} and all of its arguments")


def command_of(reader: argparse.ArgumentParser, arguments: list[str], example: str) -> list[str]:
    """The words of the command to run, without `--`; exits with 2 if there is no command or no such program."""
    command: list[str] = reader.parse_args(arguments).command
    command = command[1:] if command[:1] == ["--"] else command
    if not command:
        reader.error(f"write the command to run, as in {reader.prog} -- {example}")
    if shutil.which(command[0]) is None:
        end(reader.prog, f"there is no program {command[0]!r}: write the whole command, as in {example}", 2)
    return command


def end(program: str, sentence: str, status: int) -> NoReturn:
    """Print why the program ends, and exit."""
    print(f"{program}: {sentence}", file=sys.stderr)
    sys.exit(status)


def add_json(to: argparse.ArgumentParser) -> None:
    """The option `--json`, as `as_json`."""
    to.add_argument("--json", dest="as_json", action="store_true", help="print one JSON object on standard output")


def add_metrics(to: argparse.ArgumentParser) -> None:
    """The option `--metrics`: where a switch serves its counters."""
    to.add_argument(
        "--metrics",
        type=host_port,
        default="127.0.0.1:9171",
        metavar="HOST:PORT",
        help="address where the switch serves its counters (default: %(default)s)",
    )


def host_port(text: str) -> str:
    """HOST:PORT, checked."""
    host, colon, port = text.rpartition(":")
    is_host = ":" not in host or (host.startswith("[") and host.endswith("]"))
    if not (colon and host and is_host and port.isascii() and port.isdecimal() and 0 < int(port) < 65536):
        raise argparse.ArgumentTypeError(f"write HOST:PORT, not {text}")
    return text


def number_in(low: float, high: float) -> Callable[[str], float]:
    """A type for argparse: a number between two limits."""

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{text} is not a number from {low:g} to {high:g}")
        return value

    return read


def integer_in(low: int, high: int) -> Callable[[str], int]:
    """A type for argparse: an integer between two limits."""

    def read(text: str) -> int:
        if not text.removeprefix("-").isdecimal() or len(text) > 20 or not low <= int(text) <= high:
            raise argparse.ArgumentTypeError(f"{text} is not an integer from {low} to {high}")
        return int(text)

    return read
