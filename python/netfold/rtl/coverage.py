"""Which lines and bits of the sources simulations reach: verilator's counters, added up by file."""

from __future__ import annotations

import re
import tempfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from netfold.rtl.simulation import Shape, build, run

RUNS = (
    ("module", "fold", "--values=200000", "--idle=0.2", "--stall=0.2"),
    ("module", "encode", "--values=200000", "--idle=0.2", "--stall=0.2"),
    ("module", "decode", "--values=200000", "--idle=0.2", "--stall=0.2"),
    ("failures",),
)
POINT = re.compile(r"C '(.*)' (\d+)$")


def _points(path: Path) -> list[tuple[str, str, str, int]]:
    """(file, kind, point, count) of every line of verilator's file. A point is one in all instances of its module."""
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


def measure(rings: int, progress: Callable[[str], None]) -> list[dict[str, Any]]:
    """By source file: lines (and branches) and toggles reached, of how many. Raises RtlError."""
    shape = Shape(covers=True)
    progress("building with counters")
    build(shape)
    reached: dict[tuple[str, str], dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for arguments in (*RUNS, ("rings", f"--runs={rings}", "--count-max=5000", "--loss=0.05")):
        progress(" ".join(arguments))
        with tempfile.TemporaryDirectory(prefix="netfold-coverage-") as folder:
            run(shape, *arguments, where=Path(folder))
            for path in Path(folder).glob("*.dat"):
                for file, kind, point, count in _points(path):
                    reached[file, kind][point] += count
    files = sorted({file for file, _ in reached})
    results = []
    for file in files:
        row: dict[str, Any] = {"file": file}
        for name, kinds in (("lines", ("line", "branch")), ("toggles", ("toggle",))):
            counts = [count for kind in kinds for count in reached.get((file, kind), {}).values()]
            row[name], row[f"{name}_reached"] = len(counts), sum(count > 0 for count in counts)
        results.append(row)
    total = {key: sum(row[key] for row in results) for key in results[0] if key != "file"} if results else {}
    return [*results, {"file": "all", **total}]
