"""The JSON object that every command prints with `--json` (names contain units; each system has one result)."""

from __future__ import annotations

import json
import platform
import sys
from pathlib import Path
from typing import Any

import netfold
from netfold.machine import this_machine


def machine() -> dict[str, Any]:
    """The machine of the measurement."""
    found = this_machine()
    memory_kib = 0
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemTotal"):
            memory_kib = int(line.split()[1])
    return {
        "cpu": found.cpu,
        "cores": found.cores,
        "memory_bytes": memory_kib * 1024,
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def envelope(command: str, parameters: dict[str, Any], results: list[dict[str, Any]]) -> dict[str, Any]:
    """The object: command, version, machine, parameters, results."""
    return {
        "command": command,
        "version": netfold.__version__,
        "machine": machine(),
        "parameters": parameters,
        "results": results,
    }


def print_json(report: dict[str, Any]) -> None:
    """Exactly one JSON object on standard output."""
    json.dump(report, sys.stdout, allow_nan=False)
    sys.stdout.write("\n")
    sys.stdout.flush()
