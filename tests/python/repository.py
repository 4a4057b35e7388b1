"""The files of this project, for tests about the project itself."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]


@cache
def files(*suffixes: str) -> list[Path]:
    """Every file under version control, or about to be, whose name ends with one of `suffixes` (none: every file)."""
    command = ["git", "-c", "safe.directory=*", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    found = (ROOT / name for name in names if name and (not suffixes or name.endswith(suffixes)))
    return sorted(path for path in found if path.is_file())


def module_of(path: Path) -> ModuleType:
    """A Python file that no package contains, as a module."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()
