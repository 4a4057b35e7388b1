"""Which torch versions the backend works with: one range, one sentence for all others."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from netfold import torch_versions
from repository import ROOT

OLD = "2.11.0+cpu"
SENTENCE = f"netfold: the backend needs torch{torch_versions.requirement()}, and this is torch {OLD}"


def test_the_extra_states_the_same_range() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    [extra] = map(Requirement, project["optional-dependencies"]["torch"])
    assert extra == Requirement(f"torch{torch_versions.requirement()}")


@pytest.mark.parametrize("version", ["2.14.0", "2.14.1+cu130", "2.15.0+cpu", "2.15.1rc1"])
def test_versions_that_fit(version: str) -> None:
    assert torch_versions.refusal(version) == ""


@pytest.mark.parametrize("version", [OLD, "2.13.9", "2.9.0", "1.14.0", "2.16.0", "3.14.0", "unknown"])
def test_versions_that_do_not(version: str) -> None:
    said = torch_versions.refusal(version)
    assert version in said and torch_versions.requirement() in said and "pip install 'netfold[torch]'" in said
    assert ("connect()" in said) == (torch_versions.refusal_beside(version) == "")


@pytest.mark.parametrize("version", ["2.4.0", OLD, "2.15.0+cpu"])
def test_versions_that_fold_beside_another_backend(version: str) -> None:
    assert torch_versions.refusal_beside(version) == ""


@pytest.mark.parametrize("version", ["2.3.1", "1.14.0", "2.16.0", "unknown"])
def test_versions_that_do_nothing(version: str) -> None:
    said = torch_versions.refusal_beside(version)
    assert version in said and torch_versions.requirement(torch_versions.OLDEST_BESIDE) in said


def fails(program: str) -> str:
    """The last line of the output of a program that fails with an old version of torch."""
    old = f"import torch\ntorch.__version__ = {OLD!r}\n"
    done = subprocess.run(
        [sys.executable, "-c", old + program], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 1
    return done.stderr.strip().splitlines()[-1]


def test_importing_the_backend_says_so() -> None:
    assert fails("from netfold.torch import NetfoldBackend").startswith(f"ImportError: {SENTENCE}")
    assert fails("import netfold.torch; netfold.torch.register()").startswith(f"ImportError: {SENTENCE}")


def test_importing_what_folds_beside_other_backends_says_so() -> None:
    old = "torch.__version__ = '2.3.0'; import netfold.torch"
    assert "this is torch 2.3.0" in fails(old)


def test_making_a_process_group_says_so(tmp_path: Path) -> None:
    """The result of `import torch` in a process in which torch has that version from the start."""
    [entry] = [entry for entry in entry_points(group="torch.backends") if entry.name == "netfold"]
    assert entry.load() is torch_versions.announce
    store = f"file://{tmp_path}/store"
    program = (
        "from netfold.torch_versions import announce\nannounce()\nimport torch.distributed as dist\n"
        f"dist.init_process_group('netfold', init_method={store!r}, rank=0, world_size=1)"
    )
    assert fails(program).startswith(f"RuntimeError: {SENTENCE}")


def test_import_torch_loads_nothing_of_ours_where_it_fits() -> None:
    program = "import sys, torch; print(sorted(name for name in sys.modules if name.startswith('netfold')))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "['netfold', 'netfold.torch_versions']\n"
