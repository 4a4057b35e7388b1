"""Commands without their packages name the extra to install, and every package that a command imports is in its
extra."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tempfile
import tomllib
from functools import cache
from importlib.metadata import packages_distributions

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from netfold.cli import COMMANDS, EXTRAS_WITH
from repository import ROOT
from test_layers import PYTHON_MAY_IMPORT, PYTHON_SOURCES, imported_modules, part_of

WITHOUT = """
import sys
absent, sys.argv[1:] = sys.argv[1].split(","), sys.argv[2:]

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in absent:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
from netfold.cli import main
main()
"""
OPTIONAL = [name for name, command in COMMANDS.items() if command.extra]


def without(absent: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WITHOUT, absent, *words]
    with tempfile.TemporaryDirectory() as folder:
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)


@cache
def packages_of(extra: str) -> set[str]:
    """The packages that an extra installs, with those of the extras within it, and the packages of every
    installation."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found: set[str] = {canonicalize_name(Requirement(line).name) for line in project["dependencies"]}
    for requirement in map(Requirement, project["optional-dependencies"].get(extra, ())):
        if requirement.name == "netfold":
            found = found.union(*map(packages_of, requirement.extras))
        else:
            found.add(canonicalize_name(requirement.name))
    return found


@pytest.mark.parametrize("command", OPTIONAL)
def test_a_command_without_its_extra_says_what_to_install(command: str) -> None:
    done = without("typer", command, "--help")
    extra = COMMANDS[command].extra
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr == (
        f"netfold {command}: the Python package typer is not installed: pip install 'netfold[{extra}]'\n"
    )


@pytest.mark.parametrize(
    ("absent", "words", "extra"),
    [
        ("torch", ("demo", "--workers", "2", "--epochs", "1"), "demo"),
        ("sklearn", ("demo", "--workers", "2", "--epochs", "1"), "demo"),
        ("torch", ("bench", "train", "--preset", "tiny"), "torch"),
        ("matplotlib", ("schedule", "ring", "--picture", "x.png"), "lab"),
        ("matplotlib", ("plan", "--model", "mlp", "--nodes", "3..4", "--picture", "x.png"), "plan"),
        ("torch", ("bench", "allreduce", "--ranks", "2", "--size-bytes", "1024", "--against", "gloo"), "torch"),
        ("typer", ("switch", "--engine", "rtl", "--port", "a", "--port", "b"), "lab"),
    ],
)
def test_packages_that_are_wanted_later_are_said_too(absent: str, words: tuple[str, ...], extra: str) -> None:
    done = without(absent, *words)
    assert done.returncode == 1, done.stderr
    assert done.stderr.strip().splitlines()[-1] == (
        f"netfold {words[0]}: the Python package {absent} is not installed: pip install 'netfold[{extra}]'"
    )
    assert "Traceback" not in done.stderr


def test_help_needs_no_extra() -> None:
    absent = ",".join(sorted({"netfold_lab", "rich", "yaml", "numpy"}))
    done = without(absent, "--help")
    assert done.returncode == 0, done.stderr
    for name, command in COMMANDS.items():
        assert re.search(rf"^  {name} ", done.stdout, re.M)
        assert f"netfold[{command.extra}]" in done.stdout or not command.extra


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_a_command_starts_without_loading_what_its_work_needs(command: str) -> None:
    """These packages take longer to load than a command may take to start; --help shows all that a start loads."""
    slow = {"torch", "sklearn", "pyroute2", "matplotlib", "plotly", "networkx", "dask", "distributed", "pandas"}
    if command not in ("bench", "rtl"):  # their options list what the extension and the hardware offer
        slow |= {"numpy"}
    if command == "" or not COMMANDS[command].extra:
        slow |= {"yaml", "typer", "netfold_lab", "netfold._core"}
    if command in ("", "switch", "agent", "mpi"):
        slow |= {"rich", "importlib.metadata", "http"}
    program = "from netfold.cli import main; main()"
    line = [sys.executable, "-X", "importtime", "-c", program, *([command] if command else []), "--help"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=True)
    loaded = set(re.findall(r"^import time:.*\| +(\S+)$", done.stderr, re.M))
    assert "netfold.cli" in loaded
    assert loaded & slow == set()


def reachable(part: str) -> set[str]:
    """A part of the packages, and all parts that it may import."""
    found, new = set(), {part}
    while new:
        found |= new
        new = {below for one in new for below in PYTHON_MAY_IMPORT.get(one, ())} - found
    return found


@pytest.mark.parametrize("command", OPTIONAL)
def test_an_extra_brings_what_its_command_imports(command: str) -> None:
    """The packages from the imports in the sources of the command's part, and of the parts below it."""
    known = packages_distributions()
    parts = reachable(f"netfold_lab.{'schedules' if command == 'schedule' else command}")
    brought = packages_of(COMMANDS[command].extra)
    missing = {}
    for path in PYTHON_SOURCES:
        if part_of(".".join(path.relative_to(ROOT / "python").with_suffix("").parts)) in parts:
            for module in imported_modules(path):
                top = module.partition(".")[0]
                # PyTorch's packages for GPUs bring Triton. Without it only the codec on the GPU is missing.
                if top not in known or top in ("netfold", "netfold_lab", "triton", *EXTRAS_WITH):
                    continue
                if not brought & set(map(canonicalize_name, known[top])):  # several packages may share a name: google
                    missing[top] = path.name
    assert missing == {}


def test_modules_of_commands_exist() -> None:
    for name, command in COMMANDS.items():
        package = "netfold_lab" if command.extra else "netfold"
        tree = ast.parse((ROOT / "python" / package / "cli" / f"{name}.py").read_text())
        functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        assert ("register" if command.extra else "run") in functions
