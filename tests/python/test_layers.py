"""Arrows run one way: includes and imports are checked against core/CMakeLists.txt and ARCHITECTURE.md."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from functools import cache
from importlib.metadata import packages_distributions
from itertools import pairwise
from pathlib import Path

import pytest

from repository import ROOT, files, name_of

PUBLIC_HEADERS = [path for path in files(".h") if path.is_relative_to(ROOT / "core" / "include")]
CORE_SOURCES = [
    path for path in files(".h", ".cc") if path.is_relative_to(ROOT / "core") and path not in PUBLIC_HEADERS
]
PYTHON_SOURCES = [path for path in files(".py") if path.is_relative_to(ROOT / "python")]
PYTHON_FOLDER = ROOT / "python"

# What each part of the two Python packages may import of the others. The modules at the root of `netfold` import none
# of them, those of `netfold_lab` only the root of `netfold`; nothing in `netfold` imports `netfold_lab`.
PYTHON_MAY_IMPORT = {
    "netfold.topology": set(),
    "netfold.chooser": set(),
    "netfold.torch": {"netfold.chooser", "netfold.topology"},
    "netfold.torchft": {"netfold.torch"},
    "netfold.bench": {"netfold.torch"},
    "netfold.why": set(),
    "netfold.cli": {
        "netfold.chooser",
        "netfold.topology",
        "netfold.torch",
        "netfold.why",
    },  # torch: the doctor measures GPUs
    "netfold_lab.rtl": set(),
    "netfold_lab.schedules": set(),
    "netfold_lab.lab": {"netfold.topology"},
    "netfold_lab.bench": {"netfold.torch", "netfold.chooser", "netfold.topology", "netfold_lab.lab"},
    "netfold_lab.demo": {"netfold.torch", "netfold_lab.bench", "netfold_lab.lab"},
    "netfold_lab.plan": {"netfold.chooser", "netfold.topology"}
    | {"netfold_lab.bench", "netfold_lab.lab", "netfold_lab.schedules"},
    "netfold_lab.simulate": {"netfold_lab.lab", "netfold_lab.plan"},
    "netfold_lab.cli": {"netfold.cli", "netfold.chooser", "netfold.topology", "netfold.torch", "netfold_lab.bench"}
    | {f"netfold_lab.{part}" for part in ("lab", "demo", "plan", "simulate", "schedules", "rtl")},
}
# Protocol code does no I/O and reads no clock: packets and the time are handed to it. Paths below core/.
PURE = re.compile(
    r"(numbers|wire|schedule|sim|testing)/.*"
    r"|switch/(aggregation|jobs|protocols)/.*"
    r"|switch/(switch_control|switch_path|uplinks)\.(h|cc)|membership/.*"
    r"|switch/ethernet/(?!frame_plane|frame_thread|kernel_switch).*"
    r"|group/(session|undo|scratch_pool|collective_request|request_pieces)\.(h|cc)"
    r"|group/via_\w+/(\w*session|\w+_path|window|congestion_window|path_delay|operation"
    r"|observer_watch|executor"
    r"|reduction|plans?|share|share_word|losses|kept_parts|split_losses|waits|life_lines"
    r"|roce_(sender|receiver|endpoint)|message_layout)\.(h|cc)"
)
IMPURE_HEADERS = re.compile(
    r"(sys|netinet|arpa|linux)/.*|unistd\.h|netdb\.h|time\.h|httplib\.h"
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


def below_core(path: Path) -> str:
    return path.relative_to(ROOT / "core").as_posix()


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


@pytest.mark.parametrize("path", [path for path in CORE_SOURCES if PURE.fullmatch(below_core(path))], ids=name_of)
def test_state_machines_do_no_io_and_read_no_clock(path: Path) -> None:
    assert [name for name in includes(path) if IMPURE_HEADERS.fullmatch(name)] == []
    calls = re.findall(
        r"\b(?:system_now|steady_clock|gettimeofday|clock_gettime)\b|(?<![.>\w])(?<!Nanoseconds )now\(\)",
        path.read_text(),
    )
    assert calls == []


def test_one_driver_runs_every_group() -> None:
    """No backend starts a progress thread of its own. One that joins lost switches again moves no data."""
    starts = {
        below_core(path) for path in CORE_SOURCES if layer_of(path) == "group" and "std::thread(" in path.read_text()
    }
    assert starts == {"group/driver.cc", "group/via_both/rejoining.cc"}


def test_one_class_puts_back_what_was_overwritten() -> None:
    kept = [below_core(path) for path in CORE_SOURCES if re.search(r"ScratchBuffer saved", path.read_text())]
    assert kept == ["group/undo.h"]


def test_production_code_assembles_an_ethernet_switch_in_one_place() -> None:
    construction = re.compile(r"make_unique<(?:\w+::)*Pipeline>|\bPipeline(?: \w+)?[({][^)}]")
    sources = [path for path in files(".cc", ".h") if not path.is_relative_to(ROOT / "tests")]
    declared = {"core/switch/ethernet/pipeline.h", "core/switch/ethernet/pipeline.cc"}
    found = [name_of(path) for path in sources for _ in construction.finditer(without_comments(path.read_text()))]
    assert [name for name in found if name not in declared] == ["core/switch/ethernet/ethernet_switch.cc"]


@pytest.mark.parametrize(
    "path", [path for path in CORE_SOURCES if path.suffix == ".h" or PURE.fullmatch(below_core(path))], ids=name_of
)
def test_headers_and_pure_code_name_no_command_line_option(path: Path) -> None:
    assert re.findall(r"(?<![\w-])--[a-z][a-z-]*[a-z]\b(?!-)", comments_and_strings(path.read_text())) == []


def without_comments(text: str) -> str:
    return re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)


def comments_and_strings(text: str) -> str:
    """Only comments and string literals: `--x` in code is an operator."""
    return "\n".join(re.findall(r"//[^\n]*|\"(?:[^\"\\\n]|\\.)*\"", text))


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
    """The part of our packages that a module belongs to: "netfold_lab.lab" of netfold_lab.lab.cluster, the package of a
    module at its root, None of anything else."""
    words = module.split(".")
    if words[0] not in ("netfold", "netfold_lab"):
        return None
    part = ".".join(words[:2])
    return part if part in PYTHON_MAY_IMPORT else words[0]


@pytest.mark.parametrize("path", PYTHON_SOURCES, ids=name_of)
def test_python_imports_only_what_is_below(path: Path) -> None:
    own = part_of(".".join(path.relative_to(PYTHON_FOLDER).with_suffix("").parts))
    assert own is not None
    roots = {"netfold", "netfold_lab"} if own.startswith("netfold_lab") else {"netfold"}
    allowed = {None, own} | roots | PYTHON_MAY_IMPORT.get(own, set())
    assert {module for module in imported_modules(path) if part_of(module) not in allowed} == set()


def test_every_part_of_the_python_packages_has_its_arrows() -> None:
    parts = {f"{path.parents[1].name}.{path.parent.name}" for path in PYTHON_FOLDER.glob("*/*/__init__.py")}
    assert parts == set(PYTHON_MAY_IMPORT)


def test_netfold_itself_does_without_torch() -> None:
    program = "import sys, netfold; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=60).returncode == 0


IMPORT_ALL = """
import importlib, pkgutil, sys
import netfold

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in sys.argv[1:]:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
for module in pkgutil.walk_packages(netfold.__path__, "netfold."):
    if not module.name.endswith(".__main__") and not module.name.startswith("netfold.torchft"):  # an extra by name
        importlib.import_module(module.name)
"""


def test_what_everybody_installs_imports_nothing_of_the_extras() -> None:
    extras = {name for name, where in packages_distributions().items() if {*map(normal, where)} & extra_packages()}
    assert {"typer", "plotly", "pyroute2", "sklearn", "matplotlib", "jinja2"} <= extras
    command = [sys.executable, "-c", IMPORT_ALL, "netfold_lab", *sorted(extras)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def extra_packages() -> set[str]:
    """Packages that only the extras install, except torch: the backend is for users who have it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = {name for wanted in project["optional-dependencies"].values() for name in wanted}
    return {normal(re.split(r"[<>=\[]", name)[0]) for name in extras} - {"torch", "netfold"}
