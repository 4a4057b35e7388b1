"""The Debian package of `make deb`: it is installed over a copy of this machine, where its service's command folds a
job, and purged again."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from lab_commands import wait_for
from netfold import native
from repository import ROOT
from switch_programs import Running

pytestmark = pytest.mark.skipif(shutil.which("dpkg-shlibdeps") is None, reason="Debian's tools make the package")

WAIT_S = 60.0
# Two ranks of one job at the switch of this network.
JOB = """
import switch_programs
with switch_programs.workers("127.0.0.1:7171", 2) as clients:
    for output in switch_programs.fold(clients):
        assert (output == 3.0).all()
print("folded")
"""
# What dpkg itself writes, whatever the package.
OF_DPKG = re.compile(
    r"/var/(lib/dpkg|log|cache)(/|$)|/etc/(passwd|group|shadow|gshadow)-?$|/etc/(\.pwd\.lock|subuid|subgid)"
)
# Mounts that end with the first process of the namespaces. Devices and /proc are those of the machine.
LAYERS = """
set -e
mount -t tmpfs none "$0"
mkdir "$0/upper" "$0/work" "$0/root"
mount -t overlay -o "lowerdir=/,upperdir=$0/upper,workdir=$0/work" none "$0/root"
mount --rbind /dev "$0/root/dev"
mount -t proc none "$0/root/proc"
mount -t tmpfs none "$0/root/run"
ip link set lo up
exec sleep 600
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = native.find(native.SWITCH)
    assert program is not None
    if "librte_eal" not in subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout:
        pytest.skip("the switch was built without DPDK")
    folder = tmp_path_factory.mktemp("deb")
    made = subprocess.run(
        [ROOT / "tools" / "deb.sh", folder, program], capture_output=True, text=True, timeout=120, check=False
    )
    assert (made.returncode, made.stderr) == (0, "")
    [file] = folder.iterdir()
    return file


class Copy:
    """This machine's files, with a layer above that takes all that is written, in namespaces of its own."""

    def __init__(self, holder: int, folder: Path) -> None:
        self._inside = ["nsenter", f"--target={holder}", "--mount", "--net", "--pid"]
        self.root, self.upper = folder / "root", folder / "upper"

    def command(self, *words: str | Path) -> list[str]:
        """The words that run this command with the copy as its root."""
        return [*self._inside, "chroot", str(self.root), *map(str, words)]

    def run(self, *words: str | Path) -> subprocess.CompletedProcess[str]:
        settings = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
        return subprocess.run(
            self.command(*words), capture_output=True, text=True, timeout=WAIT_S, check=False, env=settings
        )

    def beside(self, *words: str | Path) -> subprocess.CompletedProcess[str]:
        """Runs a command of this machine in the network of the copy."""
        words = (*self._inside[:2], "--net", *map(str, words))
        return subprocess.run(words, capture_output=True, text=True, timeout=WAIT_S, check=False)

    def written(self) -> set[str]:
        """The paths that differ from this machine's, without those that dpkg writes for every package."""
        listed = subprocess.run(
            [*self._inside, "find", self.upper, "!", "-type", "d", "-printf", "/%P\\n"],
            capture_output=True,
            text=True,
            check=True,
        )
        return {path for path in listed.stdout.splitlines() if not OF_DPKG.match(path)}


@pytest.fixture
def copy(tmp_path: Path) -> Iterator[Copy]:
    folder = tmp_path / "layers"
    folder.mkdir()
    words = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "sh", "-c", LAYERS, folder]
    with subprocess.Popen(words) as holder:
        try:

            def sleepers() -> list[int]:
                assert holder.poll() is None, "no layers over this machine's files: see its output"
                return [child.pid for child in psutil.Process(holder.pid).children() if child.name() == "sleep"]

            wait_for(lambda: bool(sleepers()), "layers", WAIT_S)
            yield Copy(sleepers()[0], folder)
        finally:
            holder.kill()


@pytest.mark.root
@pytest.mark.namespaces
@pytest.mark.usefixtures("nothing_left_behind")
def test_it_installs_folds_a_job_and_leaves_nothing(copy: Copy, package: Path, tmp_path: Path) -> None:
    installed = copy.run("dpkg", "--install", "--no-triggers", package)
    assert installed.returncode == 0, installed.stdout + installed.stderr
    assert copy.run("id", "--user", "--name", "netfold").stdout == "netfold\n"
    assert "/etc/netfold/switch.toml" in copy.run("dpkg-query", "--show", "-f", "${Conffiles}", "netfold-switch").stdout
    options = re.findall(r"^  (?:-\w,)?(--[\w-]+)", copy.run("netfold-switch", "--help").stdout, re.MULTILINE)
    page = copy.run("zcat", "/usr/share/man/man1/netfold-switch.1.gz").stdout.replace("\\-", "-")
    described = re.findall(r"^\.B (?:-\w,)?(--[\w-]+)", page, re.MULTILINE)
    assert (described, len(options) > 20) == (options, True)
    verified = copy.run("systemd-analyze", "verify", "--man=yes", "/lib/systemd/system/netfold-switch.service")
    assert "netfold" not in verified.stdout + verified.stderr
    unit = copy.run("cat", "/lib/systemd/system/netfold-switch.service").stdout
    start = re.search(r"^ExecStart=(.*)$", unit, re.MULTILINE)[1].split()
    account = (
        "setpriv",
        "--reuid=netfold",
        "--regid=netfold",
        "--clear-groups",
        "--no-new-privs",
        "--bounding-set=-all",
    )
    log = tmp_path / "switch.log"
    with log.open("w") as errors:
        process = subprocess.Popen(copy.command(*account, *start), stdout=subprocess.PIPE, stderr=errors)
    try:
        switch = Running(process, log)
        assert switch.address.endswith(":7171")
        job = copy.beside("env", f"--chdir={ROOT / 'tests' / 'python'}", sys.executable, "-c", JOB)
        assert (job.returncode, job.stdout) == (0, "folded\n"), job.stderr
    finally:
        copy.run("pkill", "--exact", "netfold-switch")
        process.stdout.close()
        assert process.wait(WAIT_S) == 0, log.read_text()
    assert copy.run("sh", "-c", "echo sesame > /etc/netfold/secret").returncode == 0
    removed = copy.run("dpkg", "--remove", "--no-triggers", "netfold-switch")
    assert removed.returncode == 0, removed.stdout + removed.stderr
    assert copy.run("cat", "/etc/netfold/switch.toml").stdout == (ROOT / "packaging" / "switch.toml").read_text()
    purged = copy.run("dpkg", "--purge", "--no-triggers", "netfold-switch")
    assert purged.returncode == 0, purged.stdout + purged.stderr
    assert copy.run("getent", "passwd", "netfold").stdout == ""
    assert copy.written() == set()
    assert copy.run("ls", "/etc/netfold").returncode != 0


@pytest.mark.skipif(shutil.which("lintian") is None, reason="needs lintian")
def test_lintian_finds_no_error(package: Path) -> None:
    checked = subprocess.run(
        ["lintian", "--allow-root", "--fail-on=error,warning", package], capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stdout) == (0, "")
