"""The `netfold` command. Each command of the package `netfold` is a module here with `run(arguments)`, and `parser()`
if it has options of its own. The other commands are modules of netfold_lab.cli, and need the packages of an extra."""

from __future__ import annotations

import difflib
import importlib
import sys
import textwrap
from dataclasses import dataclass

import netfold
from netfold.cli import arguments as cli_arguments

EXTRAS_WITH = {"torch": ("torch", "demo"), "sklearn": ("demo",)}  # packages that commands of other extras may need too
FAILED, WRONG_USAGE = 1, 2


@dataclass(frozen=True)
class Command:
    """A line of `netfold --help`. `extra` names the extra that the command needs, "" for none."""

    summary: str
    extra: str = ""


COMMANDS = {
    "switch": Command("Run a switch: it sums the gradients of the workers that connect."),
    "up": Command("Start a job on several machines, with a switch where it helps."),
    "agent": Command("Run an agent: it sums gradients for the workers of this machine."),
    "doctor": Command("Check this machine and print what to fix for full speed."),
    "top": Command("Watch a running switch: its jobs, rates and dropped packets."),
    "why": Command("Say which rank of a job is late, and why."),
    "configure": Command("Change which gradients a running Ethernet switch sums."),
    "mpi": Command("Run an MPI program with its all-reduces done by Netfold."),
    "nccl": Command("Run a program whose NCCL sends through Netfold, with a switch."),
    "demo": Command("Train a classifier of handwritten digits; compare with Gloo.", "demo"),
    "bench": Command("Measure kernels, all-reduces, switches and training steps.", "lab"),
    "lab": Command("Emulate clusters on this machine: namespaces and shaped links.", "lab"),
    "schedule": Command("Print, draw and export the schedule of an algorithm.", "lab"),
    "rtl": Command("Simulate, test and measure the hardware designs.", "rtl"),
    "plan": Command("Predict how long a training step takes on a cluster.", "plan"),
    "simulate": Command("Run collectives in virtual time on a modelled network.", "plan"),
}


def main(words: list[str] | None = None) -> None:
    """Entry point of the `netfold` program; `words` are its arguments, by default those of this process.

    Exits with 0, 1 (failed) or 2 (wrong usage).
    """
    try:
        run(sys.argv[1:] if words is None else words)
    except KeyboardInterrupt:  # before a command could handle it
        sys.exit("netfold: interrupted")
    except SystemExit as ended:  # other commands have more statuses, such as 130 for Ctrl-C
        sys.exit(ended.code if ended.code in (None, 0, WRONG_USAGE) else FAILED)


def run(words: list[str]) -> None:
    """Run one command line."""
    if not words or words[0] in ("--help", "-h"):
        print(help_text())
        sys.exit(0 if words else WRONG_USAGE)
    if words[0] == "--version":
        print(f"netfold {netfold.__version__}")
        return
    if words[0] not in COMMANDS:
        print(f"netfold: {unknown(words[0])}", file=sys.stderr)
        sys.exit(WRONG_USAGE)
    extra = COMMANDS[words[0]].extra
    try:
        if extra:
            importlib.import_module("netfold_lab.cli").run(words[0], words[1:])
        else:
            importlib.import_module(f"netfold.cli.{words[0]}").run(words[1:])
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in ("", "netfold", "netfold_lab"):
            raise
        extras = EXTRAS_WITH.get(package, (extra or "lab",))
        wanted = extra if extra in extras else extras[0]
        said = f"the Python package {package} is not installed: pip install 'netfold[{wanted}]'"
        print(f"netfold {words[0]}: {said}", file=sys.stderr)
        sys.exit(FAILED)


def unknown(word: str) -> str:
    """The message about a command that does not exist."""
    near = difflib.get_close_matches(word, COMMANDS, n=1)
    hint = f"did you mean {near[0]}?" if near else "netfold --help lists all commands"
    return f"there is no command {word!r}; {hint}" if not word.startswith("-") else f"no such option: {word}; {hint}"


def help_text() -> str:
    """The text of `netfold --help`."""
    width = cli_arguments.width()
    column = max(map(len, COMMANDS)) + 4

    def listed(extra: str) -> list[str]:
        return [
            textwrap.fill(
                command.summary, width, initial_indent=f"  {name}".ljust(column), subsequent_indent=" " * column
            )
            for name, command in COMMANDS.items()
            if command.extra == extra
        ]

    extras = dict.fromkeys(command.extra for command in COMMANDS.values() if command.extra)
    lines = ["Usage: netfold COMMAND [OPTIONS]", "", *textwrap.wrap(netfold.__doc__ or "", width), ""]
    lines += ["Commands:", *listed("")]
    for extra in extras:
        lines += ["", f"Commands of pip install 'netfold[{extra}]':", *listed(extra)]
    lines += ["", "Options:", "  --version   Print the version.", "  --help      Print this text.", ""]
    return "\n".join([*lines, "Examples:", "  netfold switch --help", "  netfold doctor"])
