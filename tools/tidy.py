#!/usr/bin/env python3
"""Runs clang-tidy over the C++ that users run, and only over files that have not passed as they are.

    tools/tidy.py [CLANG_TIDY] [JOBS]

The compile commands are those of the preset `test`, file by file. build/test knows what a file includes; it may compile
files in batches. A folder of the user's cache remembers what passed, for all trees of this machine, as ccache does for
the compiler. It holds a hash of the file, of every header that it (or its batch) includes, of its compile command, of
.clang-tidy and of clang-tidy's version. Exits with 1 if a file does not pass.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILD, COMMANDS = ROOT / "build" / "test", ROOT / "build" / "tidy"
PASSED = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "netfold" / "tidy"
SOURCES = ["core/*.cc", "apps/*.cc", "bindings/c/*.cc", "bindings/mpi/*.cc", "bindings/nccl/*.cc"]


def sources() -> list[str]:
    command = ["git", "-c", "safe.directory=*", "ls-files", "--", *SOURCES]
    return subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout.split()


def includes() -> dict[Path, list[Path]]:
    """By source that is built: itself and its headers, as the compiler reported them when it was last built."""
    told = subprocess.run(["ninja", "-C", BUILD, "-t", "deps"], stdout=subprocess.PIPE, text=True, check=True).stdout
    files: dict[Path, list[Path]] = {}
    for block in told.split("\n\n"):
        of_object = [Path(os.path.normpath(BUILD / line.strip())) for line in block.splitlines()[1:]]
        files.update((each, of_object) for each in of_object if each.suffix == ".cc")
    return files


def commands() -> dict[str, str]:
    """By source: how it is compiled, the same in every tree."""
    told = json.loads((COMMANDS / "compile_commands.json").read_text())
    return {os.path.relpath(each["file"], ROOT): each["command"].replace(str(ROOT), "") for each in told}


@functools.cache
def digest(path: Path) -> bytes:
    return hashlib.sha256(path.read_bytes()).digest() if path.exists() else b""


def main() -> int:
    tidy = sys.argv[1] if len(sys.argv) > 1 else str(ROOT / ".venv" / "bin" / "clang-tidy")
    jobs = int(sys.argv[2]) if len(sys.argv) > 2 else os.cpu_count()
    version = subprocess.run([tidy, "--version"], stdout=subprocess.PIPE, check=True).stdout
    configure = ["cmake", "--preset", "test", "-B", COMMANDS, "-DNETFOLD_UNITY=OFF"]
    subprocess.run(configure, cwd=ROOT, stdout=subprocess.DEVNULL, check=True)
    included, compiled = includes(), commands()
    PASSED.mkdir(parents=True, exist_ok=True)

    def check(source: str) -> bool:
        files = included.get(ROOT / source, [])
        command = compiled.get(source, "").encode()
        parts = [version, digest(ROOT / ".clang-tidy"), source.encode(), command, *map(digest, files)]
        stamp = PASSED / hashlib.sha256(b"".join(parts)).hexdigest()
        if files and stamp.exists():
            return True
        done = subprocess.run(
            [tidy, "--quiet", "-p", COMMANDS, source], cwd=ROOT, capture_output=True, check=False, text=True
        )
        if done.returncode == 0:
            stamp.touch()
        else:
            print(done.stdout + done.stderr, flush=True)
        return done.returncode == 0

    with ThreadPoolExecutor(jobs) as pool:
        failed = list(pool.map(check, sources())).count(False)
    print(f"tidy: {failed} files with findings", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
