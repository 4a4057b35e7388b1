"""Lines and bits of the NIC's sources that simulations reach, in C++ and under cocotb: verilator's counters, summed by
file."""

from __future__ import annotations

import re
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from netfold_lab.rtl.paths import NIC, RTL, call, sources
from netfold_lab.rtl.simulation import Shape, build, run

RUNS = (
    ("module", "fold", "--values=200000", "--idle=0.2", "--stall=0.2"),
    ("module", "encode", "--values=200000", "--idle=0.2", "--stall=0.2"),
    ("module", "decode", "--values=200000", "--idle=0.2", "--stall=0.2"),
    ("failures",),
)
# Tests of rtl/tests.
TESTS = (
    "bfp",
    "fp32_adder",
    "link",
    "memory_reader",
    "memory_writer",
    "nic/test_nic.py",
    "nic_registers",
    "ring_plan",
    "streams",
)
TESTS_TIMEOUT_S = 1800.0
POINT = re.compile(r"C '(.*)' (\d+)$")


def _points(path: Path) -> list[tuple[str, str, str, int]]:
    """(file, kind, point, count) of every line of verilator's file. A point counts once for all instances of its
    module."""
    found = []
    for line in path.read_text(errors="replace").splitlines():
        match = POINT.match(line)
        if match is None:
            continue
        entries = dict(part.split("\x02", 1) for part in match[1].split("\x01") if "\x02" in part)
        kind = entries.get("page", "").partition("/")[0].removeprefix("v_")
        point = f"{entries.get('l', '')}.{entries.get('n', '')}.{entries.get('o', '')}"
        found.append((Path(entries.get("f", "")).name, kind, point, int(match[2])))
    return found


def _run_tests(folder: str, progress: Callable[[str], None]) -> None:
    """Run the tests of modules, which leave their counters in `folder`. Raises RtlError if a test fails."""
    for name in TESTS:
        progress(f"rtl/tests/{name}")
        command = [sys.executable, "-m", "pytest", "-q", str(RTL / "tests" / name)]
        call(["env", f"NETFOLD_RTL_COVERAGE={folder}", *command], TESTS_TIMEOUT_S)


def measure(rings: int, progress: Callable[[str], None]) -> list[dict[str, Any]]:
    """For each source file: the reached and the total number of lines (and branches) and toggles. Raises RtlError."""
    shape = Shape(covers=True)
    progress("building with counters")
    build(shape)
    reached: dict[tuple[str, str], dict[str, int]] = defaultdict(lambda: defaultdict(int))
    with tempfile.TemporaryDirectory(prefix="netfold-coverage-") as root:
        for index, arguments in enumerate((*RUNS, ("rings", f"--runs={rings}", "--count-max=5000", "--loss=0.05"))):
            progress(" ".join(arguments))
            folder = Path(root) / str(index)
            folder.mkdir()
            run(shape, *arguments, where=folder)
        _run_tests(root, progress)
        for path in Path(root).rglob("*.dat"):
            for file, kind, point, count in _points(path):
                reached[file, kind][point] += count
    own = {Path(name).name for name in sources(NIC)}
    files = sorted({file for file, _ in reached} & own)
    results = []
    for file in files:
        row: dict[str, Any] = {"file": file}
        for name, kinds in (("lines", ("line", "branch")), ("toggles", ("toggle",))):
            counts = [count for kind in kinds for count in reached.get((file, kind), {}).values()]
            row[name], row[f"{name}_reached"] = len(counts), sum(count > 0 for count in counts)
        results.append(row)
    total = {key: sum(row[key] for row in results) for key in results[0] if key != "file"} if results else {}
    return [*results, {"file": "all", **total}]
