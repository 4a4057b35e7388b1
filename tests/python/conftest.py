"""Shared by many tests: seeds that can be replayed, free ports, a check that nothing is left behind, and reasons to
skip.

Marks: `root` (needs root), `namespaces` (needs network namespaces, as root or in a user namespace), `gpu` (needs a
GPU).
"""

from __future__ import annotations

import functools
import multiprocessing
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import numpy as np
import psutil
import pytest
from xdist.scheduler import LoadFileScheduling

from repository import ROOT

# A shell starts what runs in the background with SIGINT ignored, and programs under test would inherit that: those that
# are interrupted would never end.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

hypothesis.settings.register_profile("netfold", deadline=None, print_blob=True)
hypothesis.settings.load_profile("netfold")


@functools.cache
def _can_make_namespaces() -> bool:
    unshare = shutil.which("unshare")
    if unshare is None:
        return False
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return subprocess.run([unshare, *user, "--net", "true"], capture_output=True, check=False).returncode == 0


@functools.cache
def _has_gpu() -> bool:
    from netfold.torch.devices import has_accelerator

    return has_accelerator()


_NEEDS: dict[str, tuple[Callable[[], bool], str]] = {
    "root": (lambda: os.geteuid() == 0, "needs root"),
    "namespaces": (_can_make_namespaces, "this kernel or container allows no network namespaces"),
    "gpu": (_has_gpu, "no GPU at hand"),
}


def pytest_configure(config: pytest.Config) -> None:
    for mark, (_, reason) in _NEEDS.items():
        config.addinivalue_line("markers", f"{mark}: skipped where {reason}")


class Lanes(LoadFileScheduling):
    """How `pytest -n 2` shares the tests out. Those of a file stay together, because they share fixtures. So do all
    files whose tests make network namespaces or look whether any is left: they see the whole machine's.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.split("::", maxsplit=1)[0]
        return "namespaces" if _sees_the_whole_machine(file) else file


@functools.cache
def _sees_the_whole_machine(file: str) -> bool:
    return re.search(r"mark\.namespaces|nothing_left_behind", (ROOT / file).read_text()) is not None


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> Lanes:
    return Lanes(config, log)


def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark, (is_met, reason) in _NEEDS.items():
        if item.get_closest_marker(mark) and not is_met():
            pytest.skip(reason)


@pytest.fixture
def seed() -> int:
    """A seed that a failure prints; NETFOLD_SEED=... replays it."""
    value = int(os.environ.get("NETFOLD_SEED", secrets.randbits(32)))
    print(f"replay with NETFOLD_SEED={value}")
    return value


@pytest.fixture
def rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.fixture
def free_port() -> Callable[[], int]:
    """Returns a port that neither TCP nor UDP uses on this machine, a new one at each call."""
    given: set[int] = set()

    def take() -> int:
        while True:
            with socket.socket() as tcp, socket.socket(type=socket.SOCK_DGRAM) as udp:
                tcp.bind(("", 0))
                port: int = tcp.getsockname()[1]
                try:
                    udp.bind(("", port))
                except OSError:
                    continue
            if port not in given:
                given.add(port)
                return port

    return take


def _children() -> set[psutil.Process]:
    alive = psutil.Process().children(recursive=True)
    return {child for child in alive if child.status() != psutil.STATUS_ZOMBIE}


def _namespaces() -> set[str]:
    folder = Path("/run/netns")
    return {entry.name for entry in folder.iterdir()} if folder.is_dir() else set()


def _interfaces() -> set[str]:
    return {name for _, name in socket.if_nameindex()}


@pytest.fixture
def nothing_left_behind() -> Iterator[None]:
    """Fails the test that leaves a process, a network namespace or an interface behind."""
    probes: dict[str, Callable[[], set]] = {
        "processes": _children,
        "network namespaces": _namespaces,
        "interfaces": _interfaces,
    }
    before = {name: probe() for name, probe in probes.items()}
    yield
    deadline = time.monotonic() + 3.0  # the dying may take a moment
    while True:
        left = {name: after for name, probe in probes.items() if (after := probe() - before[name])}
        if not left:
            return
        if time.monotonic() > deadline:
            pytest.fail(f"left behind: {left}")
        time.sleep(0.05)


@functools.cache
def _load_fork_server() -> None:
    """Start the fork server of ranks and wait until it has loaded torch, for which it runs programs such as ldconfig.
    It forks only then."""
    first = multiprocessing.get_context("forkserver").Process(target=int)
    first.start()
    first.join()


@pytest.fixture
def no_rank_left() -> Iterator[None]:
    """Fails a test if a rank of torch_ranks still runs after it (the fork server of ranks may stay)."""
    _load_fork_server()
    before = _children()
    yield
    left = _children() - before
    assert {process for process in left if "resource_tracker" not in " ".join(process.cmdline())} == set()
