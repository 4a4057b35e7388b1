"""A switch in the hands of operators: signals, draining, configuration files, logs, service managers and monitoring."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from rich.console import Console

from lab_commands import wait_for
from netfold import _core
from netfold.cli import top as top_command
from prometheus_server import Prometheus
from repository import ROOT
from switch_programs import WAIT_S, Running, fold, run, start, workers

__all__ = ["start"]  # a fixture

pytestmark = pytest.mark.usefixtures("nothing_left_behind")

PACKAGING = ROOT / "packaging"


def test_a_drain_refuses_new_jobs_and_ends_with_the_last_one(start: Callable[..., Running]) -> None:
    switch = start("--drain-s", "600")
    with workers(switch.address, 2, job="running") as clients:
        switch.process.send_signal(signal.SIGTERM)
        wait_for(lambda: switch.get("/readyz") == (503, "draining\n"), "a drain", WAIT_S)
        assert switch.get("/healthz")[0] == 200
        assert switch.stats()["state"] == "draining"
        assert re.search(r"^netfold_switch_draining 1$", switch.get("/metrics")[1], re.M)
        with pytest.raises(Exception, match="takes no new jobs, because its operator is shutting it down") as refusal:
            _core.SwitchGroup(switch.address, "late", 1, 0, timeout_s=5.0)
        assert refusal.value.code == "refused"
        for output in fold(clients):
            assert (output == 3.0).all(), "the running job goes on"
        assert switch.process.poll() is None
    assert switch.process.wait(WAIT_S) == 0
    assert "all jobs have ended" in switch.errors.read_text()


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_a_drain_at_once(start: Callable[..., Running], second: signal.Signals) -> None:
    switch = start("--drain-s", "600")
    with workers(switch.address, 2) as clients:
        switch.process.send_signal(signal.SIGTERM)
        wait_for(lambda: switch.get("/readyz")[0] == 503, "a drain", WAIT_S)
        assert switch.stop(second) == 0
        with pytest.raises(Exception, match="shut down by its operator while job 'test'") as raised:
            fold(clients)
        assert raised.value.code == "switch_failed"


def test_a_drain_ends_when_its_time_is_over(start: Callable[..., Running]) -> None:
    switch = start("--drain-s", "0.2")
    with workers(switch.address, 2) as clients:
        assert switch.stop() == 0
        with pytest.raises(Exception, match=r"by its operator, who gave running jobs 0\.2 s to end"):
            fold(clients)


def test_sighup_reads_the_secret_and_the_log_level_again(start: Callable[..., Running], tmp_path: Path) -> None:
    secret, config = tmp_path / "secret", tmp_path / "switch.toml"
    secret.write_text("sesame\n")
    secret.chmod(0o600)
    config.write_text(f'secret-file = "{secret}"\nrequire-auth = true\n')
    switch = start("--config", str(config))
    with workers(switch.address, 2, secret="sesame") as clients:
        secret.write_text("open\n")
        switch.process.send_signal(signal.SIGHUP)
        wait_for(lambda: "the secret file was read again" in switch.errors.read_text(), "a reload", WAIT_S)
        for output in fold(clients):
            assert (output == 3.0).all(), "a running job keeps its secret"
        with pytest.raises(Exception, match="another secret"), workers(switch.address, 1, "new", secret="sesame"):
            pass
        with workers(switch.address, 1, "new", secret="open") as newer:
            assert (fold(newer)[0] == 1.0).all()
        secret.write_text("")
        switch.process.send_signal(signal.SIGHUP)
        wait_for(lambda: "nothing was reloaded: the secret file" in switch.errors.read_text(), "a refusal", WAIT_S)
        config.write_text('log-level = "error"\n')
        switch.process.send_signal(signal.SIGHUP)
        assert (fold(clients)[0] == 3.0).all()
    assert switch.stop() == 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("jobs-max = 2\nthreads = 300\n", "switch.toml:2: --threads"),
        ("# four\nthreads = 3\n", "switch.toml:2: --threads 3: it must be a power of two"),
        ("bogus = 1\n", "switch.toml:1: the configuration has no key bogus"),
        ('memory-max = "4XB"\n', "switch.toml:1: --memory-max"),
    ],
)
def test_a_wrong_configuration_names_file_line_and_key(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "switch.toml").write_text(text)
    answer = run("switch", "--config", str(tmp_path / "switch.toml"))
    assert answer.returncode == 2
    assert words in answer.stderr


def test_a_configuration_says_what_options_say(start: Callable[..., Running], tmp_path: Path) -> None:
    config = tmp_path / "switch.toml"
    config.write_text('threads = 2\njobs-max = 7\nmemory-max = "8MB"\nlog-level = "info"\nlog-format = "json"\n')
    switch = start("--config", str(config), "--jobs-max", "3")
    stats = switch.stats()
    assert (len(stats["udp_ports"]), stats["jobs_max"], stats["memory_max_bytes"]) == (2, 3, 8 << 20)
    assert run("switch", "--config", str(tmp_path / "none.toml")).returncode == 2
    shipped = run("switch", "--config", str(PACKAGING / "switch.toml"), "--bind", "127.0.0.1", "--metrics", "9171")
    assert "--metrics: " in shipped.stderr, "all else in the file of packaging/ is right"


def test_a_log_of_json_objects(start: Callable[..., Running]) -> None:
    switch = start("--log-format", "json")
    with workers(switch.address, 2, job="digits") as clients:
        fold(clients)
    assert switch.stop() == 0
    lines = [json.loads(line) for line in switch.errors.read_text().splitlines()]
    assert all({"time", "level", "message"} <= set(line) for line in lines)
    joined = [line for line in lines if "joined" in line["message"]]
    assert [line["job"] for line in joined] == ["digits", "digits"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", joined[0]["time"])
    assert "job" not in lines[0]


def test_it_tells_a_service_manager_when_it_is_ready_and_stops(start: Callable[..., Running], tmp_path: Path) -> None:
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(path)
        manager.settimeout(WAIT_S)
        os.environ["NOTIFY_SOCKET"] = path
        try:
            switch = start("--drain-s", "60")
        finally:
            del os.environ["NOTIFY_SOCKET"]
        assert manager.recv(4096).decode() == f"READY=1\nSTATUS=listening on {switch.address}"
        assert switch.stop() == 0
        assert manager.recv(4096).startswith(b"STOPPING=1\nSTATUS=draining")


def test_threads_and_late_ranks_are_counted(start: Callable[..., Running]) -> None:
    switch = start()
    with workers(switch.address, 2) as clients:
        fold(clients)
        # A shard writes its counters when all answers of a round are on their way: the workers may be ahead of them.
        wait_for(lambda: switch.stats()["threads"][0].get("received_bytes", 0) > 0, "a shard's counters", WAIT_S)
        stats = switch.stats()
        assert sum(stats["jobs"][0]["came_last"]) == stats["jobs"][0]["folded_chunks"] > 0
        threads = {thread["name"]: thread for thread in stats["threads"]}
        assert set(threads) == {"nf-shard-0", "nf-control"}
        assert threads["nf-shard-0"]["cpu_s"] > 0
        assert threads["nf-shard-0"]["received_bytes"] == stats["link"]["received_bytes"] > 0
        text = switch.get("/metrics")[1]
    assert re.search(r'^netfold_switch_thread_cpu_seconds_total\{thread="nf-shard-0"\} ', text, re.M)
    assert re.search(r'^netfold_job_came_last_total\{job="test",id="0",epoch="\d+",rank="1"\} \d+$', text, re.M)
    assert re.search(r'^netfold_switch_info\{version="[\d.]+"\} 1$', text, re.M)


def test_top_keeps_names_apart_in_80_columns(start: Callable[..., Running]) -> None:
    switch = start()
    names = ("resnet-production-run-a", "resnet-production-run-b")
    with workers(switch.address, 2, names[0]) as one, workers(switch.address, 2, names[1]) as other:
        before = top_command.fetch(switch.metrics)
        fold(one)
        fold(other)
        console = Console(width=80, record=True, file=io.StringIO())
        console.print(top_command.screen(top_command.summary(before, top_command.fetch(switch.metrics))))
    table = console.export_text()
    shown = re.findall(r"^(resn\S+) +running", table, re.M)
    assert len(set(shown)) == 2, table
    assert re.search(r"[01]: \d+%$", table, re.M), table
    assert re.search(r"^nf-shard-0 +\d+% +[\d.]+$", table, re.M), table


def test_alerts_and_dashboard_name_metrics_that_a_switch_has(start: Callable[..., Running]) -> None:
    switch = start()
    with workers(switch.address, 1):
        known = set(re.findall(r"^# TYPE (\w+) ", switch.get("/metrics")[1], re.M))
    rules = yaml.safe_load((PACKAGING / "prometheus" / "netfold.rules.yml").read_text())
    dashboard = json.loads((PACKAGING / "grafana" / "netfold-switch.json").read_text())
    expressions = [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    expressions += [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    named = {name for text in expressions for name in re.findall(r"\bnetfold_\w+", text)}
    assert len(named) > 10
    assert named - known == set()


@pytest.mark.skipif(shutil.which("prometheus") is None, reason="needs the program prometheus")
def test_prometheus_scrapes_a_switch_and_knows_the_alerts(start: Callable[..., Running], tmp_path: Path) -> None:
    switch = start()
    rules = PACKAGING / "prometheus" / "netfold.rules.yml"
    checked = subprocess.run(["promtool", "check", "rules", rules], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    with Prometheus(switch.metrics, tmp_path, scrape_interval="200ms", rules=rules) as prometheus:

        def value_of(query: str) -> float:
            found = prometheus.query(query)
            return float(found[0]["value"][1]) if found else 0.0

        with workers(switch.address, 2, job="watched") as clients:
            deadline = time.monotonic() + WAIT_S
            while value_of("netfold_job_contributions_total") == 0:
                assert time.monotonic() < deadline, prometheus.log.read_text()
                fold(clients)
            assert value_of("up") == 1
            assert value_of('netfold_job_world{exported_job="watched"}') == 2
