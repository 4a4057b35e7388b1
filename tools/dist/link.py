"""Links with zig for glibc 2.28, in place of the compiler that made the objects:

    link.py PROCESSOR LIBRARY COMPILER ARGUMENT...

zig brings what a program needs to start on that glibc, and the names and versions of its functions. The C++ library is
the compiler's static one: the one of an older machine would lack functions. So is its own small library, which asks the
processor what it can run; zig's never asks. LIBRARY (tools/dist/libraries/glibc.c) has what glibc 2.28 lacks."""

from __future__ import annotations

import os
import subprocess
import sys

GLIBC = "2.28"  # that of torch's own wheels


def main() -> None:
    processor, library, compiler, *arguments = sys.argv[1:]

    def of_compiler(name: str) -> str:
        command = [compiler, f"-print-file-name={name}"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    libraries = [library, *map(of_compiler, ("libstdc++.a", "libgcc.a", "libgcc_s.so.1"))]
    libraries += ["-lpthread", "-ldl", "-lm", "-lrt"]
    target = ["-target", f"{processor}-linux-gnu.{GLIBC}"]
    options = ["-g0", "-s", "-Wl,--gc-sections", "-Wl,--allow-shlib-undefined"]
    if "-shared" not in arguments:
        options.append("-pie")  # programs lie at random addresses; all objects are made for that
    os.execv(sys.executable, [sys.executable, "-m", "ziglang", "cc", *target, *arguments, *libraries, *options])


main()
