"""`netfold nccl`: runs a program whose NCCL loads Netfold's network plugin."""

from __future__ import annotations

import argparse
import os
import sys

from netfold import native, nccl
from netfold.cli import arguments as cli_arguments


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = cli_arguments.parser(
        "nccl",
        """Run an unchanged program that uses NCCL, such as a training script with backend="nccl". NCCL then sends
        between machines over several TCP connections, and with NETFOLD_SWITCH the switch sums its all-reduces.

        The command prints the variables that it sets. Variables that you set yourself keep their values. Run it on
        every machine. docs/how-to/use-with-nccl.md explains more.""",
        (
            "netfold nccl -- torchrun --nnodes 2 --master-addr 10.0.0.1 train.py",
            "NETFOLD_SWITCH=10.0.0.5:7171 netfold nccl -- torchrun --nnodes 2 train.py",
        ),
    )
    cli_arguments.add_command(made, "the program")
    return made


def run(arguments: list[str]) -> None:
    """Become the program, with the variables set."""
    reader = parser()
    command = cli_arguments.command_of(reader, arguments, "torchrun --nnodes 2 train.py")
    plugin = native.find(native.NCCL_PLUGIN)
    if plugin is None:
        cli_arguments.end(reader.prog, native.not_built(native.NCCL_PLUGIN), 1)
    added = nccl.variables(plugin.parent, os.environ)
    for name, value in added.items():
        print(f"{reader.prog}: {name}={value}", file=sys.stderr)
    if not os.environ.get("NETFOLD_SWITCH"):
        print(f"{reader.prog}: NETFOLD_SWITCH is not set, so all-reduces go among the ranks", file=sys.stderr)
    sys.stderr.flush()
    os.execvpe(command[0], command, {**os.environ, **added})
