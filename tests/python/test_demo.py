"""`netfold demo` end to end, its page in a real browser, its counters, and the example script under torchrun."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from netfold_lab.bench.digits import make_classifier
from netfold_lab.demo.charts import line_chart
from netfold_lab.demo.traffic import tcp_traffic
from netfold_lab.demo.worker import digest
from repository import ROOT

pytestmark = pytest.mark.timeout(240)
NETFOLD = [sys.executable, "-c", "from netfold.cli import main; main()"]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[dict[str, Any], Path]]:
    """The JSON and the page of one demo on three workers."""
    page = tmp_path_factory.mktemp("demo") / "page.html"
    command = [*NETFOLD, "demo", "--json", "--workers", "3", "--epochs", "15", "--page", str(page)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert run.returncode == 0, run.stderr
    yield json.loads(run.stdout), page


def _by_format(told: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {f"{result['system']} {result['format']}": result for result in told["results"]}


def test_it_trains_a_real_classifier_three_times(demo: tuple[dict[str, Any], Path]) -> None:
    told = demo[0]
    assert told["command"] == "demo"
    assert set(told) == {"command", "version", "machine", "parameters", "results"}
    assert told["machine"]["cores"] == os.cpu_count()
    assert told["parameters"] == {"workers": 3, "epochs": 15, "batch": 32, "page": str(demo[1])}
    runs = _by_format(told)
    assert list(runs) == ["netfold fp32", "netfold bfp", "gloo fp32"]
    for name, run in runs.items():
        assert run["test_accuracy"] > 0.95, name
        assert run["identical_ranks"], name
        assert run["time_s_median"] > 0
        assert 0 <= run["exposed_s_median"] < max(run["time_s"])
    assert abs(runs["netfold fp32"]["loss_last"] - runs["gloo fp32"]["loss_last"]) < 1e-3


def test_bytes_are_what_the_algorithms_need(demo: tuple[dict[str, Any], Path]) -> None:
    """In the network a worker sends every gradient once; a ring of n sends it 2(n-1)/n times."""
    runs = _by_format(demo[0])
    gradients = runs["gloo fp32"]["size_bytes"]
    for way in ("sent_bytes_per_step", "received_bytes_per_step"):
        assert gradients <= runs["netfold fp32"][way] < 1.1 * gradients
        assert gradients / 3.77 <= runs["netfold bfp"][way] < 1.15 * gradients / 3.77
        assert 4 / 3 * gradients <= runs["gloo fp32"][way] < 1.15 * 4 / 3 * gradients


def _chromium(page: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    assert CHROMIUM is not None
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
    command += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
    command += [f"--user-data-dir={folder}", "--enable-logging=stderr", *arguments, page.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=90, check=True)


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
def test_the_page_in_a_browser(demo: tuple[dict[str, Any], Path], tmp_path: Path) -> None:
    page = demo[1]
    shown = _chromium(page, tmp_path / "profile", "--dump-dom")
    assert "CONSOLE" not in shown.stderr, shown.stderr
    document = shown.stdout
    assert document.count('<g class="line"') == 3
    assert document.count('<svg role="img"') == 5
    assert document.count('<g class="bar"') == 6
    for lane in ("forward", "backward", "bucket", "optimizer"):
        assert document.count(f'class="block {lane}"') >= 3, lane
    for label in (
        "cross-entropy loss (nats, log scale)",
        "training step",
        "KiB per worker and step",
        "time since the step began",
    ):
        assert label in document
    assert "NaN" not in document
    assert re.search(r"Beside Gloo.*, a worker sends [\d.]+ times fewer bytes with Netfold", document)
    screenshot = tmp_path / "page.png"
    _chromium(page, tmp_path / "profile2", f"--screenshot={screenshot}", "--window-size=1000,2200")
    assert screenshot.stat().st_size > 50_000


def test_the_page_needs_nothing_else(demo: tuple[dict[str, Any], Path]) -> None:
    text = demo[1].read_text()
    assert re.findall(r"https?://|<script|<img|url\((?!#)|@import", text) == []


def test_a_page_that_cannot_be_written_is_said_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    command = [*NETFOLD, "demo", "--page", str(tmp_path / "file" / "page.html")]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 2
    assert "workers start" not in run.stdout
    assert "cannot be written" in run.stderr


def _workers(program: psutil.Process) -> list[psutil.Process]:
    found = []
    for child in program.children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # ended meanwhile
            found += [child] if "netfold_lab.demo.worker" in child.cmdline() else []
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_leaves_no_process(tmp_path: Path, number: signal.Signals) -> None:
    command = [*NETFOLD, "demo", "--epochs", "1000", "--page", str(tmp_path / "page.html")]
    run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)
    program = psutil.Process(run.pid)
    try:
        deadline = time.monotonic() + 60
        while len(workers := _workers(program)) < 5 and time.monotonic() < deadline:
            time.sleep(0.1)
        assert len(workers) == 5  # four, and the one that forks them
        time.sleep(1.0)
        run.send_signal(number)
        told, _ = run.communicate(timeout=20)
        assert run.returncode == 1, told
        assert "Traceback" not in told
    finally:
        run.terminate()
        run.communicate()
    _, alive = psutil.wait_procs(workers, timeout=3)
    assert alive == []


def test_ranks_are_identical_only_bit_for_bit() -> None:
    model = make_classifier()
    before = digest(model)
    assert before == digest(make_classifier())
    with torch.no_grad():
        bias = next(p for name, p in model.named_parameters() if name.endswith("bias"))
        bias[0], bias[1] = bias[1].clone(), bias[0].clone()  # the sum stays
    assert digest(model) != before


def test_tcp_traffic_counts_what_sockets_carry() -> None:
    before = tcp_traffic()
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        peer, _ = server.accept()
        with peer:
            sender = threading.Thread(target=client.sendall, args=(b"x" * 300_000,))
            sender.start()
            received = 0
            while received < 300_000:
                received += len(peer.recv(65536))
            sender.join()
            spent = tcp_traffic() - before  # both ends are in this process
            assert spent.received_bytes == 300_000
            assert 300_000 <= spent.sent_bytes < 400_000  # some of it twice, where this machine is slow to answer


def test_colours_are_the_pages() -> None:
    chart = line_chart({"one": [1, 2]}, "x", "y")
    assert "var(--s0)" in chart
    assert "#fe00" not in chart


def test_names_are_escaped() -> None:
    assert "<b>" not in line_chart({"<b>": [1, 2]}, "x", "y")


def test_the_example_under_torchrun() -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    run = subprocess.run(
        [*command, str(ROOT / "examples" / "train_digits.py")],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert run.returncode == 0, run.stderr
    accuracy = re.search(r"test accuracy ([\d.]+)% on 2 workers", run.stdout)
    assert accuracy, run.stdout
    assert float(accuracy[1]) > 95
