"""The installed C interface: its header, its symbols, and the first example."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import c_example
from netfold import native
from repository import ROOT


@pytest.mark.parametrize("compiler", ["cc -std=c99", "cc -std=c11", "c++ -std=c++11 -x c++", "c++ -std=c++20 -x c++"])
def test_the_header_is_for_c_and_for_cpp(tmp_path: Path, compiler: str) -> None:
    header = native.find(native.C_HEADER)
    assert header is not None
    program = tmp_path / "program.c"
    program.write_text(
        "#include <netfold.h>\nint main(void) { nf_group_options o = NF_GROUP_OPTIONS_INIT; return o.rank; }"
    )
    words = [*compiler.split(), "-Wall", "-Wextra", "-pedantic", "-Werror", f"-I{header.parent}", "-fsyntax-only"]
    done = subprocess.run([*words, str(program)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_nothing_but_the_interface_is_visible() -> None:
    library = native.find(native.C_LIBRARY)
    assert library is not None, "`make build` builds it"
    listed = subprocess.run(["nm", "-D", "--defined-only", str(library)], capture_output=True, text=True, check=True)
    names = {line.split()[-1].partition("@")[0] for line in listed.stdout.splitlines() if " A " not in line}
    header = native.find(native.C_HEADER)
    assert header is not None
    declared = {name for name in names if f" {name}(" in header.read_text()}
    assert names == declared
    assert len(names) == 14


def test_the_page_says_how_to_compile_with_the_package(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "how-to" / "call-from-c.md").read_text()
    [commands] = re.findall(r"^```\n(lib=.*?)^```", page, re.S | re.M)
    environment = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    script = commands.replace("-o all_reduce", f"-o {tmp_path}/all_reduce") + f"{tmp_path}/all_reduce 2 1000 1"
    done = subprocess.run(
        ["bash", "-ec", script], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "2 ranks, 1000 floats" in done.stdout


@pytest.mark.parametrize("ranks", [1, 3])
def test_the_example_runs(tmp_path: Path, ranks: int) -> None:
    program = c_example.build(tmp_path)
    done = subprocess.run([program, str(ranks), "100003", "3"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert f"{ranks} ranks, 100003 floats" in done.stdout
