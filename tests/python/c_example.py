"""The first example in C (examples/all_reduce.c), compiled."""

from __future__ import annotations

import subprocess
from pathlib import Path

from netfold import native
from repository import ROOT


def build(folder: Path) -> Path:
    """Compile it into the folder, without a warning; the path of the program."""
    library, header = native.find(native.C_LIBRARY), native.find(native.C_HEADER)
    assert library is not None and header is not None, "`make build` builds both"
    program = folder / "all_reduce"
    flags = ["-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror", f"-I{header.parent}"]
    words = ["cc", *flags, "-o", str(program), str(ROOT / "examples" / "all_reduce.c"), str(library)]
    built = subprocess.run(words, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return program
