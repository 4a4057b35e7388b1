"""The files of this project, for tests about the project itself."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@cache
def files(*suffixes: str) -> list[Path]:
    """Every file under version control, or about to be, whose name ends with one of `suffixes` (none: every file)."""
    command = ["git", "-c", "safe.directory=*", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    found = (ROOT / name for name in names if name and (not suffixes or name.endswith(suffixes)))
    return sorted(path for path in found if path.is_file())


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()
