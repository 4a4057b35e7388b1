"""A switch under load for a while: jobs come, go and die, strangers send nonsense, and Prometheus scrapes it.

Its memory stays flat, no file descriptor is left, the log says little, and each panel of the dashboard has data.

NETFOLD_LOAD_S=3600 makes it an hour; NETFOLD_LOAD_RECORD names a file for what was seen.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import psutil
import pytest

from lab_commands import wait_for
from netfold import _core
from prometheus_server import Prometheus
from repository import ROOT
from switch_load import DIES, HANGS, IS_REFUSED, LEAVES, Load
from switch_programs import WAIT_S, Running, start

__all__ = ["start"]  # a fixture

LOAD_S = float(os.environ.get("NETFOLD_LOAD_S", "30"))
LONG_S = 600.0
SCRAPE_S, PARTS = (1.0, 4) if LOAD_S < LONG_S else (5.0, 12)  # after each part of the time, all jobs end
SECRET = "sesame"
LANES = 3
PAUSE_S = 0.3  # between jobs of a lane
GROWTH_MAX_BYTES = 2 << 20  # of the memory without a job, from the first half of a long run to the second
LINES_A_RANK = 3  # in the log, at most: it joins, it leaves or fails, and its job begins or ends
DASHBOARD = ROOT / "packaging" / "grafana" / "netfold-switch.json"

pytestmark = [
    pytest.mark.timeout(1.5 * LOAD_S + 600),
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="needs the program prometheus"),
    pytest.mark.usefixtures("no_rank_left"),
]


def panels_without_data(prometheus: Prometheus) -> set[str]:
    """The panels of the dashboard of which an expression had no value throughout."""
    empty = set()
    interval = f"{4 * SCRAPE_S:.0f}s"  # as Grafana takes it for the scrape interval
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel["targets"]:
            expression = target["expr"].replace("$__rate_interval", interval).replace("$switch", ".*")
            series = prometheus.over_time(expression, LOAD_S, max(1.0, LOAD_S / 1000))
            if not any(value != "NaN" for one in series for _, value in one["values"]):
                empty.add(panel["title"])
    return empty


def usage(process: psutil.Process) -> dict[str, int]:
    """Of files the fewest within a second: Prometheus may be asking, or the switch may not yet have closed a socket."""
    files = []
    for _ in range(10):
        files.append(process.num_fds())
        time.sleep(0.1)
    return {
        "memory_bytes": process.memory_info().rss,
        "files": min(files),
        "threads": process.num_threads(),
    }


def fold_once(switch: str, job: str, world: int, window: int) -> None:
    """A job with so many chunks on their way, 0 for as many as usual: its memory at the switch follows from that."""
    ones, sums = np.ones(1 << 18, np.float32), [np.zeros(1 << 18, np.float32) for _ in range(world)]

    def rank(number: int) -> None:
        group = _core.SwitchGroup(switch, job, world, number, window=window, timeout_s=30.0)
        out = sums[number].ctypes.data
        group.wait(group.all_reduce(ones.ctypes.data, out, ones.size, "fp32", "fp32", awaited=True))
        group.close()

    with ThreadPoolExecutor(world) as ranks:
        list(ranks.map(rank, range(world)))
    assert all((each == world).all() for each in sums)


def test_a_jobs_memory_goes_back_with_the_job(start: Callable[..., Running]) -> None:
    """malloc keeps blocks as large as one that was freed before, unless it is told not to."""
    switch = start()
    process = psutil.Process(switch.process.pid)
    fold_once(switch.address, "first", 2, 0)
    wait_for(lambda: switch.stats()["jobs"] == [], "the end of the first job", WAIT_S)
    without_job = process.memory_info().rss
    for number, (world, window) in enumerate([(4, 4096), (8, 0), (8, 0)]):
        fold_once(switch.address, f"job-{number}", world, window)
        wait_for(lambda: process.memory_info().rss < without_job + (2 << 20), f"the memory of job {number}", WAIT_S)


def test_nothing_grows_and_every_panel_has_data(start: Callable[..., Running], tmp_path: Path, seed: int) -> None:
    secret = tmp_path / "secret"
    secret.write_text(SECRET)
    secret.chmod(0o600)
    switch = start("--secret-file", str(secret), "--require-auth")
    process = psutil.Process(switch.process.pid)
    loads, idle, busiest = [], [], []
    with Prometheus(switch.metrics, tmp_path, scrape_interval=f"{SCRAPE_S:.0f}s") as prometheus:
        wait_for(lambda: prometheus.query("up == 1") != [], "a scrape", WAIT_S)
        data_port = switch.stats()["udp_ports"][0]
        for part in range(PARTS):
            with Load(switch.address, data_port, SECRET, seed + part * LANES, LANES, PAUSE_S) as load:
                most, deadline = 0, time.monotonic() + LOAD_S / PARTS
                while time.monotonic() < deadline:
                    time.sleep(0.5)
                    most = max(most, process.memory_info().rss)
            wait_for(lambda: switch.stats()["jobs"] == [], "the end of the last job", WAIT_S)
            wait_for(lambda: switch.stats()["connections"] == 0, "the end of connections", WAIT_S)
            loads.append(load)
            busiest.append(most)
            idle.append(usage(process))
        empty, stats = panels_without_data(prometheus), switch.stats()
        scraped = float(prometheus.query(f"avg_over_time(up[{LOAD_S:.0f}s])")[0]["value"][1])
    ended = sum((load.ended for load in loads), Counter[str]())
    ranks, wrong = sum(load.ranks for load in loads), [line for load in loads for line in load.wrong]
    log_lines = len(switch.errors.read_text().splitlines())
    seen = {
        "seconds": LOAD_S,
        "jobs": dict(ended),
        "ranks": ranks,
        "wrong": wrong,
        **{key: stats[key] for key in ("jobs_admitted", "jobs_failed", "joins_refused", "drops", "threads", "link")},
        "idle": idle,
        "busiest_bytes": busiest,
        "log_lines": log_lines,
        "scraped": scraped,
        "panels_without_data": sorted(empty),
    }
    print(seen)
    if record := os.environ.get("NETFOLD_LOAD_RECORD"):
        Path(record).write_text(json.dumps(seen, indent=1))
    assert wrong == []
    assert ended[LEAVES] and ended[DIES] and sum(ended.values()) > LOAD_S / 4
    assert stats["jobs_failed"] >= ended[DIES] + ended[HANGS]
    assert stats["joins_refused"] >= ended[IS_REFUSED]
    # The allocator keeps some of what jobs had, at most as much as they had at once.
    middle = PARTS // 2
    assert max(one["memory_bytes"] for one in idle[middle:]) <= max(busiest[:middle])
    if LOAD_S >= LONG_S:
        memory = [one["memory_bytes"] for one in idle]
        assert min(memory[middle:]) - min(memory[:middle]) < GROWTH_MAX_BYTES
    assert len({one["threads"] for one in idle}) == 1
    assert max(one["files"] for one in idle) - idle[0]["files"] <= 1
    assert log_lines < LINES_A_RANK * (ranks + stats["joins_refused"])
    assert empty == set()
    assert scraped > 0.99
    assert switch.stop() == 0
