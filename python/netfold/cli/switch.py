"""`netfold switch`: becomes the program netfold-switch; with `--engine rtl` it runs simulated hardware instead."""

from __future__ import annotations

import importlib

from netfold import native


def run(arguments: list[str]) -> None:
    """Become netfold-switch; it gets all arguments, also --help."""
    if any(word.startswith("--engine") for word in arguments):
        importlib.import_module("netfold_lab.cli.rtl_engine").app(arguments, prog_name="netfold switch")
    native.become(native.SWITCH, arguments)
