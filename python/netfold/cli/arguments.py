"""Command lines of the commands in `netfold`: argparse, with the checks and the help texts that they share."""

from __future__ import annotations

import argparse
import math
import shutil
import textwrap
from collections.abc import Callable

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
    if not (colon and host and port.isascii() and port.isdecimal() and 0 < int(port) < 65536):
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
