#!/usr/bin/env python3
"""Runs clang-tidy over the C++ that users run, and only over files that changed since they passed.

    tools/tidy.py [CLANG_TIDY] [JOBS]

The compile commands are build/test's. A file has changed if its bytes, those of a header that it includes, .clang-tidy
or clang-tidy itself have: build/tidy keeps a hash of them for each file that passed. Exits with 1 if a file does not
pass.
"""

from __future__ import annotations

import functools
import hashlib
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "test"
PASSED = ROOT / "build" / "tidy"
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
        if of_object:
            files[of_object[0]] = of_object
    return files


@functools.cache
def digest(path: Path) -> bytes:
    return hashlib.sha256(path.read_bytes()).digest() if path.exists() else b""


def main() -> int:
    tidy = sys.argv[1] if len(sys.argv) > 1 else str(ROOT / ".venv" / "bin" / "clang-tidy")
    jobs = int(sys.argv[2]) if len(sys.argv) > 2 else os.cpu_count()
    version = subprocess.run([tidy, "--version"], stdout=subprocess.PIPE, check=True).stdout
    subprocess.run(["cmake", "--preset", "test"], cwd=ROOT, stdout=subprocess.DEVNULL, check=True)
    included = includes()
    PASSED.mkdir(parents=True, exist_ok=True)

    def check(source: str) -> bool:
        files = included.get(ROOT / source, [])
        parts = [version, digest(ROOT / ".clang-tidy"), *map(digest, files)]
        key, stamp = hashlib.sha256(b"".join(parts)).hexdigest(), PASSED / source.replace("/", "-")
        if files and stamp.exists() and stamp.read_text() == key:
            return True
        done = subprocess.run(
            [tidy, "--quiet", "-p", BUILD, source], cwd=ROOT, capture_output=True, check=False, text=True
        )
        if done.returncode == 0:
            stamp.write_text(key)
        else:
            print(done.stdout + done.stderr, flush=True)
        return done.returncode == 0

    with ThreadPoolExecutor(jobs) as pool:
        failed = list(pool.map(check, sources())).count(False)
    print(f"tidy: {failed} files with findings", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
