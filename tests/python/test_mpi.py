"""MPI programs with their all-reduces taken over: Netfold's own programs, mpi4py's tests, and the benchmark that checks
every sum."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from netfold import native, preload
from netfold.cli import mpi
from netfold_lab.bench import allreduce
from netfold_lab.bench.c_ranks import cache_directory
from own_machines import ADDRESSES, WORKERS, three_machines
from repository import ROOT

HAS_MPI = shutil.which("mpirun") is not None and shutil.which("mpicc") is not None
needs_mpi = pytest.mark.skipif(
    not HAS_MPI or native.find(native.MPI_LIBRARY) is None, reason="there is no MPI, or libnetfold-mpi.so is not built"
)
TIMEOUT_S = 200
SUMS = 296  # all-reduces of "sums" in mpi_ranks.py that Netfold has: of 10 types, with 4 or 7 operations, of 4 sizes
RANKS = Path(__file__).parent / "mpi_ranks.py"
OF_NETFOLD = re.compile(r"^netfold: .*$", re.MULTILINE)


def run(
    ranks: int, *command: str, folder: Path | None = None, prefix: Sequence[str] = (), **settings: str
) -> subprocess.CompletedProcess[str]:
    """`netfold mpi -- mpirun -n RANKS COMMAND`, as a user runs it, behind the words of `prefix`."""
    netfold = [sys.executable, "-c", "from netfold.cli import main; main()", "mpi", "--"]
    mpirun = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(ranks)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NETFOLD_")}
    environment |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "NETFOLD_LOG": "info"}
    environment |= {"OMPI_MCA_mpi_yield_when_idle": "1", "NETFOLD_MPI_MIN_BYTES": "0", **settings}
    return subprocess.run(
        [*prefix, *netfold, *mpirun, *command],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        env=environment,
        cwd=folder,
    )


def taken_over(done: subprocess.CompletedProcess[str]) -> int:
    """The number of all-reduces that rank 0 reports as taken over."""
    found = re.search(r"netfold: rank 0: took over (\d+) all-reduces", done.stderr)
    assert found, done.stderr
    return int(found[1])


def run_ranks(
    name: str, ranks: int = 4, prefix: Sequence[str] = (), **settings: str
) -> subprocess.CompletedProcess[str]:
    done = run(ranks, sys.executable, str(RANKS), name, prefix=prefix, **settings)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("is content") == ranks
    return done


@pytest.fixture
def no_memory_left_behind() -> object:
    before = set(Path("/dev/shm").glob("netfold-*"))
    yield
    assert set(Path("/dev/shm").glob("netfold-*")) <= before


@needs_mpi
@pytest.mark.usefixtures("no_memory_left_behind")
@pytest.mark.parametrize(
    ("name", "ranks", "taken"), [("sums", 3, SUMS), ("communicators", 4, 10 * SUMS + 21), ("progress", 4, 1)]
)
def test_it_takes_over_what_it_folds(name: str, ranks: int, taken: int) -> None:
    assert taken_over(run_ranks(name, ranks)) == taken


@needs_mpi
@pytest.mark.root
@pytest.mark.namespaces
@pytest.mark.usefixtures("nothing_left_behind")
@pytest.mark.parametrize(
    "more", [{}, {"NETFOLD_REQUIRE_AUTH": "yes", "NETFOLD_INTERFACE": "eth0", "NETFOLD_TCP_STREAMS": "2"}]
)
def test_machines_may_share_a_host_name(tmp_path: Path, more: dict[str, str]) -> None:
    """As clones of one image do: the ranks must not look for each other at 127.0.0.1."""
    with three_machines(tmp_path) as machines:
        spaces = {ADDRESSES[name]: machines[name].process_id for name in WORKERS}
        for name in WORKERS:
            machines[name].run("echo clone > /proc/sys/kernel/hostname")
        enter = "nsenter --net --uts --target"
        agent = tmp_path / "agent"  # instead of ssh: agent ADDRESS COMMAND...
        places = "".join(f'{address}) exec {enter} {pid} sh -c "$*" ;;\n' for address, pid in spaces.items())
        agent.write_text(f"#!/bin/sh\naddress=$1; shift\ncase $address in\n{places}esac\n")
        agent.chmod(0o755)
        settings = {"OMPI_MCA_plm_rsh_agent": str(agent), "OMPI_MCA_btl_tcp_if_include": "eth0"}
        settings |= {"OMPI_MCA_oob_tcp_if_include": "eth0", "OMPI_MCA_btl": "tcp,self", **more}
        began = time.monotonic()
        prefix = [*enter.split(), str(spaces["10.0.0.1"])]
        done = run(2, "--host", ",".join(spaces), sys.executable, str(RANKS), "sums", prefix=prefix, **settings)
        assert done.returncode == 0, done.stdout + done.stderr
        assert taken_over(done) == SUMS
        print(f"{time.monotonic() - began:.1f} s")


@needs_mpi
def test_small_ones_stay_with_mpi() -> None:
    assert taken_over(run_ranks("sums", 2, NETFOLD_MPI_MIN_BYTES="4000")) == 116
    assert taken_over(run_ranks("sums", 2, NETFOLD_MPI="off")) == 0


@needs_mpi
def test_floats_may_travel_as_bfp() -> None:
    assert taken_over(run_ranks("bfp", NETFOLD_FORMAT="bfp")) == 1


@needs_mpi
def test_ranks_that_are_set_differently_fall_back_together_and_say_so_once() -> None:
    done = run_ranks("different_settings", 3)
    assert taken_over(done) == 0
    assert done.stderr.count("settings of rank 1 differ from those of rank 0") == 1


@needs_mpi
@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"NETFOLD_FORMAT": "fp8"}, "NETFOLD_FORMAT=fp8 is not usable: choose one of"),
        ({"NETFOLD_ALGORITHM": "in-network"}, "NETFOLD_ALGORITHM=in-network is not usable"),
        ({"NETFOLD_ALGORITHM": "clockwork"}, "clockwork"),
        ({"NETFOLD_TIMEOUT_S": "-1"}, "NETFOLD_TIMEOUT_S=-1 is not usable"),
        ({"NETFOLD_MPI_MIN_BYTES": "few"}, "NETFOLD_MPI_MIN_BYTES=few is not usable"),
        ({"NETFOLD_TCP_STREAMS": "many"}, "NETFOLD_TCP_STREAMS=many is not usable: give a number of connections"),
        ({"NETFOLD_DSCP": "x"}, "NETFOLD_DSCP=x is not usable"),
        ({"NETFOLD_REQUIRE_AUTH": "maybe"}, "NETFOLD_REQUIRE_AUTH=maybe is not usable: write yes or no"),
        ({"NETFOLD_REQUIRE_AUTH": "yes", "NETFOLD_ROCE": "lo"}, "RoCE has no tags"),
        ({"NETFOLD_REQUIRE_AUTH": "yes", "NETFOLD_NIC": "/nic"}, "smart NICs send no tags"),
        ({"NETFOLD_ROCE": "lo", "NETFOLD_NIC": "/nic"}, "with NETFOLD_ROCE a switch folds: unset one of them"),
        ({"NETFOLD_ALGORITHM": "direct", "NETFOLD_NIC": "/nic"}, "NETFOLD_NIC folds in a ring of NICs"),
        ({"NETFOLD_NIC": "simulated"}, "netfold rtl nic"),
    ],
)
def test_a_wrong_setting_is_an_error_on_every_rank(settings: dict[str, str], words: str) -> None:
    assert run_ranks("refused", 2, **settings).stderr.count(words) >= 2


@needs_mpi
def test_counts_that_differ_are_an_error_on_every_rank() -> None:
    said = OF_NETFOLD.findall(run_ranks("different_counts", 3).stderr)
    assert {line.split(":")[1].strip() for line in said if "1001" in line} == {"rank 0", "rank 1", "rank 2"}


@needs_mpi
def test_fortran_programs(tmp_path: Path) -> None:
    program = tmp_path / "fortran_calls"
    source = ROOT / "tests" / "mpi" / "fortran_calls.c"
    done = subprocess.run(
        ["mpicc", "-o", str(program), str(source), "-lmpi_mpifh"], capture_output=True, text=True, check=False
    )
    if done.returncode != 0 and "mpi_mpifh" in done.stderr:
        pytest.skip("this MPI has no Fortran")
    assert done.returncode == 0, done.stderr
    ran = run(3, str(program))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.count("is content") == 3
    assert taken_over(ran) == 3


def suite_of_mpi4py() -> Path:
    """The test suite of the installed release of mpi4py, from its source; it is kept after the download."""
    name = f"mpi4py-{importlib.metadata.version('mpi4py')}"
    folder = cache_directory() / name
    if not folder.exists():
        archive = cache_directory() / f"{name}.tar.gz"
        words = ["--no-deps", "--no-binary", ":all:", "--no-build-isolation", "-q", "-d", str(archive.parent)]
        done = subprocess.run(
            [sys.executable, "-m", "pip", "download", *words, name.replace("-", "==")],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        if not archive.exists():
            pytest.skip(f"the source of {name} cannot be had here: {done.stderr[-300:]}")
        partial = cache_directory() / f"{name}.{os.getpid()}"
        with tarfile.open(archive) as packed:
            packed.extractall(partial, filter="data")
        (partial / name).rename(folder)
        partial.rmdir()
    return folder / "test"


@needs_mpi
@pytest.mark.usefixtures("no_memory_left_behind")
@pytest.mark.parametrize("suite", ["test_cco_buf", "test_cco_nb_buf"])
def test_mpi4pys_own_tests_of_collectives(suite: str) -> None:
    done = run(4, sys.executable, "main.py", "-q", suite, folder=suite_of_mpi4py())
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert len(re.findall(r"\bOK\b", done.stderr)) == 4  # a rank each; their lines may run into each other
    if suite == "test_cco_buf":
        assert taken_over(done) > 20


@needs_mpi
def test_the_benchmark_checks_every_sum() -> None:
    app = typer.Typer()
    app.callback()(lambda: None)
    allreduce.register(app)
    words = ["allreduce", "--ranks", "4", "--interface", "mpi", "--algorithm", "auto", "--against", "openmpi", "--json"]
    done = CliRunner().invoke(app, [*words, "--size-bytes", "4,1024,65536,1048576", "--repeat", "1"])
    assert done.exit_code == 0, done.output
    results = json.loads(done.stdout)["results"]
    ours = [one for one in results if one["system"] == "netfold"]
    assert [one["size_bytes"] for one in ours] == [4, 1024, 65536, 1048576]
    for one in results:
        assert one["max_abs_error"] < 1e-6
        assert one["same_bits"]


def test_the_launcher_is_told_what_to_hand_over() -> None:
    environment = {"NETFOLD_LOG": "info", "LD_PRELOAD": "other.so", "HOME": "here"}
    words, left = preload.launch(["mpirun", "-n", "2", "program"], "ours.so", environment, is_open_mpi=True)
    assert words == ["mpirun", "-x", "LD_PRELOAD=ours.so:other.so", "-x", "NETFOLD_LOG", "-n", "2", "program"]
    assert left == environment
    words, left = preload.launch(["srun", "program"], "ours.so", environment, is_open_mpi=False)
    assert words == ["srun", "program"]
    assert left["LD_PRELOAD"] == "ours.so:other.so"


@pytest.mark.parametrize(
    ("library", "words", "status", "says"),
    [(None, "mpirun -n 2 program", 1, "is not built"), (Path("x.so"), "no-such-mpirun", 2, "no program")],
)
def test_wrong_use_of_the_command(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    library: Path | None,
    words: str,
    status: int,
    says: str,
) -> None:
    monkeypatch.setattr(native, "find", lambda what: library)
    with pytest.raises(SystemExit) as ended:
        mpi.run(["--", *words.split()])
    assert ended.value.code == status
    assert says in capsys.readouterr().err


def test_a_switch_that_is_not_used_is_said() -> None:
    command = [sys.executable, "-c", "from netfold.cli import main; main()", "mpi", "--", "true"]
    environment = os.environ | {"NETFOLD_SWITCH": "10.0.0.5:7171"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert "NETFOLD_SWITCH is not used" in done.stderr or native.find(native.MPI_LIBRARY) is None
