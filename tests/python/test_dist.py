"""The wheels of `make dist` in environments without anything else of this project: what they need, and that they fold.
The one for 64-bit ARM runs in qemu, with a Python of Debian's."""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile

from netfold import _core
from netfold.cli import COMMANDS
from netfold.torch_versions import requirement
from repository import ROOT
from switch_programs import Running

pytestmark = pytest.mark.skipif(shutil.which("apt-get") is None, reason="the sources of the libraries come through apt")
NATIVE = platform.machine()
PROCESSORS = {NATIVE: f"EM_{NATIVE.upper()}", "aarch64": "EM_AARCH64"}
LARGEST_BYTES = 15e6
NEWEST_GLIBC = (2, 28)
# What every Linux machine has: glibc, and the part of GCC that unwinds the stack.
OF_THE_MACHINE = {
    *("libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1", "libgcc_s.so.1"),
    *("ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"),
}
PROGRAMS = ("netfold/bin/netfold-switch", "netfold/bin/netfold-agent", "netfold/bin/netfold-switch-bench")
LIBRARIES = ("netfold/lib/libnccl-net-netfold.so", "netfold/lib/libnetfold.so", "netfold/lib/libnetfold-mpi.so")
# What pip installs beside the wheel.
NEEDED = ("nanobind_backend", "numpy", "yaml", "_yaml", "rich", "pygments", "markdown_it", "mdurl")
RANK = """
import sys, torch, torch.distributed as dist, netfold
dist.init_process_group("netfold", init_method=f"file://{sys.argv[1]}", rank=int(sys.argv[2]), world_size=2)
tensor = torch.arange(1000, dtype=torch.float32) * (dist.get_rank() + 1)
dist.all_reduce(tensor)
dist.destroy_process_group()
assert torch.equal(tensor, 3 * torch.arange(1000, dtype=torch.float32))
print(netfold.__file__)
"""
# A rank without torch: sums the row `rank` of an array in each format, and writes the sums.
RANK_OF_CORE = """
import sys, numpy, netfold._core as core
switch, rank, inputs, outputs, *formats = sys.argv[1:]
rows = numpy.load(inputs)
sums = numpy.stack([rows[int(rank)]] * len(formats))
group = core.SwitchGroup(switch, "dist", len(rows), int(rank), timeout_s=60)
for row, wire in zip(sums, formats):
    group.wait(group.all_reduce(row.ctypes.data, row.ctypes.data, row.size, "fp32", wire, awaited=True))
group.close()
numpy.save(outputs, sums)
print(*core.kernel_names())
"""


@pytest.fixture(scope="module")
def wheel_for(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Makes the wheel for a processor."""

    @functools.cache
    def make(processor: str) -> Path:
        folder = tmp_path_factory.mktemp("dist")
        command = [ROOT / "tools" / "dist.sh", sys.prefix, folder, processor]
        done = subprocess.run(command, capture_output=True, text=True, timeout=290, check=False)
        assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
        [made] = folder.iterdir()
        return made

    return make


@pytest.fixture(scope="module")
def wheel(wheel_for: Callable[[str], Path]) -> Path:
    """The one for this machine."""
    return wheel_for(NATIVE)


@pytest.fixture(scope="module", params=PROCESSORS)
def each_wheel(wheel_for: Callable[[str], Path], request: pytest.FixtureRequest) -> Path:
    return wheel_for(request.param)


def environment(folder: Path, wheel: Path, packages: Path) -> Path:
    """A virtual environment with the wheel and with what lies in the folder `packages`; returns its programs."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True, timeout=60)
    [site] = folder.glob("lib/python*/site-packages")
    (site / "packages.pth").write_text(f"{packages}\n")
    pip = [sys.executable, "-m", "pip", "--python", folder / "bin" / "python", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "-q", "--no-deps", "--no-index", wheel], check=True, timeout=60)
    return folder / "bin"


@pytest.fixture(scope="module")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with what pip installs for the wheel: without torch and without extras."""
    folder = tmp_path_factory.mktemp("bare")
    packages = folder / "packages"
    packages.mkdir()
    for name in NEEDED:
        found = importlib.util.find_spec(name)
        if found is not None and found.submodule_search_locations:
            place = Path(found.submodule_search_locations[0])
            for part in (place, place.with_name(f"{place.name}.libs")):
                if part.exists():
                    (packages / part.name).symlink_to(part)
    return environment(folder / "venv", wheel, packages)


@pytest.fixture(scope="module")
def elf_files(each_wheel: Path) -> dict[str, ELFFile]:
    with zipfile.ZipFile(each_wheel) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    return {name: ELFFile(BytesIO(data)) for name, data in contents.items() if data.startswith(b"\x7fELF")}


def run(program: Path, *words: str, **options: object) -> subprocess.CompletedProcess[str]:
    command = [program, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd="/", **options)


def test_the_wheel_is_small_and_holds_everything(each_wheel: Path, elf_files: dict[str, ELFFile]) -> None:
    named = re.fullmatch(r"netfold-[\d.]+-cp3\d+-(?:cp311|abi3)-manylinux_2_28_(\w+)\.whl", each_wheel.name)
    assert named is not None
    assert {file["e_machine"] for file in elf_files.values()} == {PROCESSORS[named[1]]}
    assert each_wheel.stat().st_size < LARGEST_BYTES
    [extension] = [name for name in elf_files if name.startswith("netfold/_core.")]
    assert set(elf_files) == {extension, *PROGRAMS, *LIBRARIES}
    with zipfile.ZipFile(each_wheel) as archive:
        assert {"netfold/include/netfold.h", "netfold/lib/pkgconfig/netfold.pc"} <= set(archive.namelist())


def test_it_holds_the_licence_of_all_that_is_linked_into_it(each_wheel: Path) -> None:
    with zipfile.ZipFile(each_wheel) as archive:
        texts = {Path(name).name: archive.read(name).decode() for name in archive.namelist() if "/licenses/" in name}
    linked = ("fmt", "spdlog", "CLI11", "libsodium", "nlohmann-json", "cpp-httplib", "expected", "highway", "isa-l")
    for name in (*linked, "libstdc++", "nanobind", "zig"):
        text = texts[f"{name}.txt"]
        assert re.search(r"copyright", text, re.I), name
        assert "AS IS" in text.upper() or "PUBLIC DOMAIN" in text.upper() or "WARRANTY" in text.upper(), name
        assert re.search(rf"^{re.escape(name)} \S*\d\S*: {re.escape(name)}\.txt$", texts["README"], re.M), name
    assert "Apache License" in texts["LICENSE"], "Netfold's own"


def test_it_needs_nothing_that_a_machine_may_lack(elf_files: dict[str, ELFFile]) -> None:
    for name, file in elf_files.items():
        dynamic = file.get_section_by_name(".dynamic")
        needed = {tag.needed for tag in dynamic.iter_tags("DT_NEEDED")}
        # MPI programs bring their MPI.
        assert needed - OF_THE_MACHINE == ({"libmpi.so.40"} if name == "netfold/lib/libnetfold-mpi.so" else set()), name
        assert [tag.entry.d_tag for tag in dynamic.iter_tags() if tag.entry.d_tag in ("DT_RPATH", "DT_RUNPATH")] == []
        assert file.get_section_by_name(".debug_info") is None, name
        versions = {
            entry.name for _, entries in file.get_section_by_name(".gnu.version_r").iter_versions() for entry in entries
        }
        of_glibc = [re.fullmatch(r"GLIBC_(\d+)\.(\d+)[.\d]*", version) for version in versions]
        needs = [(int(found[1]), int(found[2])) for found in of_glibc if found]
        assert needs and max(needs) <= NEWEST_GLIBC, name


def test_the_extension_shows_its_entry_only(elf_files: dict[str, ELFFile]) -> None:
    """Symbols of the C++ library would mix with those of torch's."""
    for name, file in elf_files.items():
        symbols = file.get_section_by_name(".dynsym").iter_symbols()
        shown = {symbol.name for symbol in symbols if symbol.entry.st_shndx != "SHN_UNDEF"}
        if name.startswith("netfold/_core."):
            assert shown == {"PyInit__core"}
        elif name == "netfold/lib/libnetfold.so":
            assert {one for one in shown if not one.startswith("nf_")} <= {"NETFOLD_1.0"}


def test_without_torch_every_command_says_what_is_missing(bare: Path) -> None:
    for words in ((), *((name,) for name, command in COMMANDS.items() if not command.extra)):
        done = run(bare / "netfold", *words, "--help")
        assert done.returncode == 0, done.stderr
    done = run(bare / "netfold", "doctor", "--json")
    assert done.returncode == 0, done.stderr
    checks = {check["name"]: check for check in json.loads(done.stdout)["results"]}
    assert checks["extension"]["status"] == "ok"
    assert checks["torch"]["fix"] == f"pip install 'torch{requirement()}'"
    done = run(bare / "netfold", "top", "--once", "--metrics", "127.0.0.1:1")
    assert (done.returncode, done.stderr.count("\n"), "Traceback" in done.stderr) == (1, 1, False)
    done = run(bare / "netfold", "demo")
    assert done.stderr.startswith("netfold demo: the Python package typer is not installed: pip install")
    done = run(bare / "python", "-c", "import netfold.torch")
    assert done.stderr.splitlines()[-1] == "ModuleNotFoundError: No module named 'torch'"


def test_it_uses_the_instructions_of_the_processor(bare: Path) -> None:
    done = run(bare / "python", "-c", "from netfold import _core; print(_core.kernel_names())")
    assert done.stdout.strip() == str(_core.kernel_names())


@pytest.fixture
def switch(bare: Path, free_port: Callable[[], int]) -> Iterator[str]:
    """The address of a running switch, the one of the wheel."""
    address = f"127.0.0.1:{free_port()}"
    command = [bare / "netfold", "switch", "--bind", "127.0.0.1", "--port", address.rpartition(":")[2]]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        yield address
        process.terminate()


def test_two_processes_fold_through_its_switch(switch: str, wheel: Path, tmp_path: Path) -> None:
    programs = environment(tmp_path / "venv", wheel, Path(sysconfig.get_path("purelib")))
    settings = {"NETFOLD_SWITCH": switch, "NETFOLD_ALGORITHM": "in-network", "NETFOLD_TIMEOUT_S": "30"}
    ranks = [
        subprocess.Popen(
            [programs / "python", "-c", RANK, tmp_path / "store", str(rank)],
            env=settings,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    for rank in ranks:
        output, errors = rank.communicate(timeout=120)
        assert rank.returncode == 0, errors
        assert output.startswith(str(tmp_path / "venv"))


@pytest.fixture(scope="module")
def in_qemu(wheel_for: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[..., list[str]]:
    """The command line of a program of the wheel for ARM, or of "python", which finds that wheel's packages."""
    if NATIVE == "aarch64":
        pytest.skip("the wheel for ARM is this machine's own")
    root, packages = tmp_path_factory.mktemp("arm"), tmp_path_factory.mktemp("packages")
    fetch = [ROOT / "tools" / "dist" / "packages.sh", "aarch64", root, "python3", "~n^libopenmpi[0-9]"]
    subprocess.run(fetch, check=True, timeout=200)
    [python] = root.glob("usr/bin/python3.[0-9]*[0-9]")
    platforms = ("manylinux_2_28_aarch64", "manylinux_2_17_aarch64", "manylinux2014_aarch64")
    pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--target", packages]
    pip += ["--only-binary=:all:", "--constraint", ROOT / "tools" / "requirements.lock"]
    pip += [f"--python-version={python.name.removeprefix('python')}"]
    pip += [f"--platform={name}" for name in platforms]
    subprocess.run([*pip, wheel_for("aarch64"), "mpi4py"], check=True, timeout=200)
    qemu = ["qemu-aarch64-static", "-L", str(root), "-E", f"PYTHONPATH={packages}"]

    def command(program: str, *words: object, **settings: object) -> list[str]:
        path = python if program == "python" else packages / "netfold" / program
        given = [word for name, value in settings.items() for word in ("-E", f"{name}={value}")]
        return [*qemu, *given, str(path), *map(str, words)]

    return command


@pytest.fixture
def arm_switch(in_qemu: Callable[..., list[str]], tmp_path: Path) -> Iterator[Running]:
    """The switch of the wheel for ARM."""
    errors = tmp_path / "switch.log"
    command = in_qemu("bin/netfold-switch", *["--bind", "127.0.0.1", "--port", "0", "--metrics", "127.0.0.1:0"])
    with errors.open("w") as log, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log) as process:
        yield Running(process, errors)
        process.terminate()


def test_the_wheel_for_arm_runs(in_qemu: Callable[..., list[str]], tmp_path: Path) -> None:
    for program in PROGRAMS:
        done = run(*in_qemu(program.removeprefix("netfold/"), "--help"))
        assert (done.returncode, done.stderr) == (0, "")
        assert "Usage: " in done.stdout
    load = "import ctypes, sys; [ctypes.CDLL(name) for name in sys.argv[1:]]"
    libraries = [in_qemu(name.removeprefix("netfold/"))[-1] for name in LIBRARIES if "mpi" not in name]
    done = run(*in_qemu("python", "-c", load, *libraries))
    assert done.returncode == 0, done.stderr
    command = in_qemu("bin/netfold-agent", "--socket", tmp_path / "agent")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as agent:
        assert agent.stdout is not None
        assert agent.stdout.readline() == f"listening at {tmp_path}/agent\n"
        agent.terminate()


@pytest.mark.parametrize("processors", [("aarch64", "aarch64"), ("aarch64", NATIVE, NATIVE, "aarch64")])
def test_arm_folds_the_same_bits(
    arm_switch: Running,
    in_qemu: Callable[..., list[str]],
    bare: Path,
    processors: tuple[str, ...],
    rng: np.random.Generator,
    tmp_path: Path,
) -> None:
    """Among its own and with ranks on this machine's processor: those of the specification."""
    formats = ("fp32", "fp16", "bf16", "bfp")
    inputs = rng.standard_normal((len(processors), 10007), np.float32)
    inputs *= np.exp2(rng.integers(-8, 8, inputs.shape)).astype(np.float32)
    np.save(tmp_path / "inputs.npy", inputs)
    ranks = []
    for rank, processor in enumerate(processors):
        output = tmp_path / f"{rank}.npy"
        words = ("-c", RANK_OF_CORE, arm_switch.address, rank, tmp_path / "inputs.npy", output, *formats)
        native = [str(word) for word in (bare / "python", *words)]
        command = native if processor == NATIVE else in_qemu("python", *words)
        ranks.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    for rank, (process, processor) in enumerate(zip(ranks, processors, strict=True)):
        kernels, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
        assert ("neon" in kernels) == (processor == "aarch64")
        sums = np.load(tmp_path / f"{rank}.npy")
        for one, wire in zip(sums, formats, strict=True):
            expected = _core.fold(list(inputs), wire)
            assert np.array_equal(one.view(np.uint32), expected.view(np.uint32)), (rank, wire)


def test_it_takes_the_all_reduces_of_mpi_programs_over(in_qemu: Callable[..., list[str]]) -> None:
    library = in_qemu("lib/libnetfold-mpi.so")[-1]
    settings = {"LD_PRELOAD": library, "NETFOLD_LOG": "info", "OMPI_MCA_btl_vader_single_copy_mechanism": "none"}
    ranks = in_qemu("python", ROOT / "tests" / "python" / "mpi_ranks.py", "sums", **settings)
    as_root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}  # where the test runs as root
    mpirun = [Path("mpirun"), "--oversubscribe", "--bind-to", "none", "-n", "2"]
    done = run(*mpirun, *ranks, env=os.environ | as_root | {"OMPI_MCA_mpi_yield_when_idle": "1"})
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("is content") == 2
    assert re.search(r"^netfold: rank 0: took over [1-9]\d* all-reduces", done.stderr, re.M), done.stderr


@pytest.fixture(scope="module")
def arm_package(
    wheel_for: Callable[[str], Path], in_qemu: Callable[..., list[str]], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The Debian package of the switch for ARM, which holds the program of the wheel."""
    folder = tmp_path_factory.mktemp("deb")
    command = [ROOT / "tools" / "deb.sh", folder, wheel_for("aarch64"), "aarch64"]
    settings = {**os.environ, "DEBFULLNAME": "A. Maintainer", "DEBEMAIL": "a@b.example"}
    made = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=settings)
    assert (made.returncode, made.stderr) == (0, "")
    [file] = folder.iterdir()
    return file


def test_the_package_for_arm_folds_a_job(
    arm_package: Path, in_qemu: Callable[..., list[str]], bare: Path, tmp_path: Path
) -> None:
    fields = run("dpkg-deb", "--field", str(arm_package)).stdout
    assert re.search(r"^Architecture: arm64$", fields, re.M)
    assert re.search(r"^Maintainer: A\. Maintainer <a@b\.example>$", fields, re.M)
    assert "DPDK" not in fields and re.search(r"^Depends: libc6 \(>= 2\.28\), libgcc-s1", fields, re.M)
    assert run("dpkg-deb", "--extract", str(arm_package), str(tmp_path / "root")).returncode == 0
    copyright_file = tmp_path / "root" / "usr" / "share" / "doc" / "netfold-switch" / "copyright"
    assert all(name in copyright_file.read_text() for name in ("=== libsodium", "=== isa-l", "Apache"))
    program, errors = tmp_path / "root" / "usr" / "bin" / "netfold-switch", tmp_path / "switch.log"
    command = in_qemu(str(program), *["--bind", "127.0.0.1", "--port", "0", "--metrics", "127.0.0.1:0"])
    np.save(tmp_path / "inputs.npy", np.ones((2, 1000), np.float32))
    with errors.open("w") as log, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log) as process:
        switch = Running(process, errors)
        words = [bare / "python", "-c", RANK_OF_CORE, switch.address]
        ranks = [
            subprocess.Popen([*words, str(rank), tmp_path / "inputs.npy", tmp_path / f"{rank}.npy", "fp32"])
            for rank in range(2)
        ]
        assert [rank.wait(60) for rank in ranks] == [0, 0]
        process.terminate()
    assert all((np.load(tmp_path / f"{rank}.npy") == 2.0).all() for rank in range(2))


@pytest.mark.skipif(shutil.which("lintian") is None, reason="needs lintian")
def test_lintian_finds_no_error_in_the_package_for_arm(arm_package: Path) -> None:
    command = ["lintian", "--allow-root", "--fail-on=error,warning", str(arm_package)]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stdout) == (0, "")
