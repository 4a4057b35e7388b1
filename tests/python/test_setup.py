"""tools/setup.sh where it cannot install by itself, and the pins it installs."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from repository import ROOT

SETUP = ROOT / "tools" / "setup.sh"
ORDINARY = ("bash", "cat", "cut", "dirname", "paste", "sort")  # what every Linux machine has


def machine_with(folder: Path, *managers: str) -> Path:
    """A PATH of a machine that has Python, no compiler, an ordinary user, and these package managers."""
    folder.mkdir()
    for name in ORDINARY:
        found = shutil.which(name)
        assert found is not None
        (folder / name).symlink_to(found)
    (folder / "python3").symlink_to(Path(sys.executable).resolve())
    for name, output in (("id", "1000"), *((manager, "") for manager in managers)):
        program = folder / name
        program.write_text(f"#!/bin/sh\necho {output}\n")
        program.chmod(0o755)
    return folder


def run_setup(path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [shutil.which("bash") or "bash", str(SETUP), *arguments]
    return subprocess.run(command, env={"PATH": str(path)}, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("manager", "hint"),
    [
        ("apt-get", "sudo apt-get install --no-install-recommends cmake g++"),
        ("dnf", "sudo dnf install CLI11-devel"),
        ("pacman", "sudo pacman -S --needed cli11 cmake"),
    ],
)
def test_a_user_without_root_is_told_what_to_install(tmp_path: Path, manager: str, hint: str) -> None:
    done = run_setup(machine_with(tmp_path / "bin", manager), str(tmp_path / "venv"), "demo")
    assert done.returncode == 1
    assert hint.lower() in done.stderr.lower()
    assert not (tmp_path / "venv").exists()


def test_the_tests_need_more_than_the_demo(tmp_path: Path) -> None:
    path = machine_with(tmp_path / "bin")
    demo = set(run_setup(path, str(tmp_path / "venv"), "demo").stderr.split())
    tests = set(run_setup(path, str(tmp_path / "venv"), "test").stderr.split())
    assert {"g++", "cmake", "libsodium-dev"} <= demo
    assert {"libgtest-dev", "libgmock-dev"} <= tests - demo


def test_an_unknown_purpose_is_refused(tmp_path: Path) -> None:
    done = run_setup(machine_with(tmp_path / "bin"), str(tmp_path / "venv"), "everything")
    assert done.returncode == 1
    assert "demo or test" in done.stderr


def test_every_pin_is_in_the_lock_file() -> None:
    lines = (ROOT / "tools" / "requirements.lock").read_text().splitlines()
    locked = {line.lower().replace("_", "-") for line in lines if not line.startswith("#")}
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())
    groups = config["project"]["optional-dependencies"].values()
    pins = [
        *config["build-system"]["requires"],
        *config["project"]["dependencies"],
        *(pin for g in groups for pin in g),
    ]
    assert [pin for pin in pins if pin.lower().replace("_", "-") not in locked] == []
    assert [line for line in locked if not re.fullmatch(r"[a-z0-9.-]+==[a-z0-9.+]+", line)] == []
