"""Arrows run one way: who includes or imports whom, held to core/CMakeLists.txt and ARCHITECTURE.md."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from repository import ROOT, files, name_of

PUBLIC_HEADERS = [path for path in files(".h") if path.is_relative_to(ROOT / "core" / "include")]
CORE_SOURCES = [
    path for path in files(".h", ".cc") if path.is_relative_to(ROOT / "core") and path not in PUBLIC_HEADERS
]
PYTHON_SOURCES = [path for path in files(".py") if path.is_relative_to(ROOT / "python")]
PYTHON_FOLDER = ROOT / "python" / "netfold"

# What each part of the Python package may import of the others; what is not named here (the root) imports none of them.
PYTHON_MAY_IMPORT = {
    "topology": set(),
    "rtl": set(),
    "schedules": set(),
    "lab": {"topology"},
    "chooser": {"schedules"},
    "torch": {"chooser", "topology"},
    "bench": {"torch", "lab", "schedules", "chooser", "topology"},
    "demo": {"torch", "bench", "lab"},
    "plan": {"bench", "lab", "schedules", "chooser", "topology"},
    "simulate": {"lab", "plan"},
    "cli": {"torch", "bench", "lab", "demo", "plan", "simulate", "schedules", "chooser", "topology", "rtl"},
}
# Protocol code does no I/O and reads no clock: packets and the time are handed to it.
PURE_LAYERS = {"numbers", "wire", "session", "fold", "jobs", "frames", "sim"}
IMPURE_HEADERS = re.compile(
    r"(sys|netinet|arpa|linux)/.*|poll\.h|unistd\.h|netdb\.h|time\.h|httplib\.h"
    r"|ctime|chrono|thread|mutex|condition_variable|future|fstream|iostream|random"
)


@cache
def declared_layers() -> dict[str, set[str]]:
    """Layer -> the layers below it, as the build declares them."""
    text = (ROOT / "core" / "CMakeLists.txt").read_text()
    calls = re.findall(r"^netfold_layer\(([^)]*)\)", text, re.MULTILINE)
    return {words[0]: set(words[1:]) for words in (call.split() for call in calls)}


@cache
def drawn_below() -> dict[str, set[str]]:
    """Layer -> everything below it along ARCHITECTURE.md's arrows, `base <- numbers <- {session, fold}`."""
    text = re.sub(r"```.*?```", "", (ROOT / "ARCHITECTURE.md").read_text(), flags=re.DOTALL)
    below: dict[str, set[str]] = {}
    for chain in re.findall(r"`([^`]*<-[^`]*)`", text):
        links = [set(re.findall(r"\w+", link)) for link in chain.split("<-")]
        for lower, upper in pairwise(links):
            for name in upper:
                below.setdefault(name, set()).update(lower)
            for name in lower:
                below.setdefault(name, set())

    def reach(name: str) -> set[str]:
        return below[name].union(*(reach(lower) for lower in below[name]))

    return {name: reach(name) for name in below}


def includes(path: Path) -> list[str]:
    return re.findall(r'^\s*#\s*include\s+[<"]([^>"]+)[>"]', path.read_text(), re.MULTILINE)


def layer_of(path: Path) -> str:
    return path.relative_to(ROOT / "core").parts[0]


def test_the_build_declares_no_edge_that_the_architecture_does_not_draw() -> None:
    assert set(declared_layers()) <= set(drawn_below()), "a layer that ARCHITECTURE.md does not draw"
    undrawn = {name: lower - drawn_below()[name] for name, lower in declared_layers().items()}
    assert not {name: lower for name, lower in undrawn.items() if lower}


def test_every_folder_of_the_core_is_a_layer() -> None:
    assert {layer_of(path) for path in CORE_SOURCES} <= set(declared_layers())


@pytest.mark.parametrize("path", CORE_SOURCES, ids=name_of)
def test_core_includes_only_what_is_below(path: Path) -> None:
    layer = layer_of(path)
    allowed = {layer} | declared_layers()[layer]
    local = {name for name in includes(path) if name.split("/")[0] in {*declared_layers(), "apps", "bindings"}}
    assert {name for name in local if name.split("/")[0] not in allowed} == set()


@pytest.mark.parametrize("path", CORE_SOURCES, ids=name_of)
def test_core_names_its_own_headers_from_the_root(path: Path) -> None:
    beside = {name for name in includes(path) if "/" not in name and (path.parent / name).exists()}
    assert beside | {name for name in includes(path) if ".." in name} == set(), "write layer/name.h"


@pytest.mark.parametrize("path", CORE_SOURCES, ids=name_of)
def test_core_knows_no_python_and_no_torch(path: Path) -> None:
    foreign = re.compile(r"Python\.h|nanobind/.*|pybind11/.*|torch/.*|ATen/.*|c10/.*")
    assert [name for name in includes(path) if foreign.fullmatch(name)] == []


@pytest.mark.parametrize("path", [path for path in CORE_SOURCES if layer_of(path) in PURE_LAYERS], ids=name_of)
def test_state_machines_do_no_io_and_read_no_clock(path: Path) -> None:
    assert [name for name in includes(path) if IMPURE_HEADERS.fullmatch(name)] == []
    calls = re.findall(r"\b(?:system_now|steady_clock|gettimeofday|clock_gettime)\b", path.read_text())
    assert calls == []


@pytest.mark.parametrize("path", PUBLIC_HEADERS, ids=name_of)
def test_what_c_programs_include_includes_nothing_of_ours(path: Path) -> None:
    assert set(includes(path)) <= {"stddef.h", "stdint.h"}


@pytest.mark.parametrize("path", files(".h", ".cc"), ids=name_of)
def test_the_mpi_library_is_a_user_of_the_c_interface(path: Path) -> None:
    if path.is_relative_to(ROOT / "bindings" / "mpi"):
        assert {name for name in includes(path) if "/" in name and name.split("/")[0] in declared_layers()} == set()


def imported_modules(path: Path) -> set[str]:
    """Absolute names of what a file imports, inside functions as well."""
    package = path.relative_to(ROOT / "python").with_suffix("").parts[:-1]
    modules: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            modules.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            module = ".".join(filter(None, (start, node.module)))
            modules.update(f"{module}.{alias.name}" for alias in node.names)
    return modules


def part_of(module: str) -> str | None:
    """The part of the package that a module belongs to: "lab" of netfold.lab.cluster, None of anything else."""
    words = module.split(".")
    return words[1] if words[0] == "netfold" and len(words) > 1 and words[1] in PYTHON_MAY_IMPORT else None


@pytest.mark.parametrize("path", PYTHON_SOURCES, ids=name_of)
def test_python_imports_only_what_is_below(path: Path) -> None:
    own = part_of("netfold." + path.relative_to(PYTHON_FOLDER).with_suffix("").parts[0])
    allowed = {None, own} | PYTHON_MAY_IMPORT.get(own or "", set())
    assert {module for module in imported_modules(path) if part_of(module) not in allowed} == set()


def test_every_part_of_the_python_package_has_its_arrows() -> None:
    parts = {path.parent.name for path in PYTHON_FOLDER.glob("*/__init__.py")}
    assert parts <= set(PYTHON_MAY_IMPORT)


def test_netfold_itself_does_without_torch() -> None:
    program = "import sys, netfold; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=60).returncode == 0
