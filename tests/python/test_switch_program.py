"""The program behind `netfold switch` from the view of users and monitoring; and `netfold top`, which watches it."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from lab_commands import wait_for
from netfold import _core, native
from netfold.cli import top as top_command
from switch_programs import WAIT_S, Running, fold, run, start, workers

__all__ = ["start"]  # a fixture

pytestmark = pytest.mark.usefixtures("nothing_left_behind")


def test_help_teaches() -> None:
    answer = run("switch", "--help")
    assert answer.returncode == 0
    for word in ("Examples:", "NETFOLD_SWITCH=", "--secret-file", "--require-auth", "--metrics", "Exit status"):
        assert word in answer.stdout
    assert max(len(line) for line in answer.stdout.splitlines()) <= 120


def test_the_program_is_found_where_it_is_installed() -> None:
    program = native.find(native.SWITCH)
    assert program is not None
    assert os.access(program, os.X_OK)


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["--threads", "3"], 2, "power of two"),
        (["--port", "70000"], 2, "--port"),
        (["--bogus"], 2, "--bogus"),
        (["--require-auth"], 2, "--secret-file"),
        (["--cores", "0,1"], 2, "one for each"),
        (["--memory-max", "4XB"], 2, "--memory-max"),
        (["--memory-max", "1kb", "--port", "0"], 2, "a job of two workers needs at least "),
        (["--memory-max", "4000TB", "--port", "0"], 2, "this machine has "),
        (["--memory-max", "9" * 30, "--port", "0"], 2, "--memory-max"),
        (["--metrics", "9171"], 2, "host:port"),
        (["--secret-file", "does/not/exist"], 1, "openssl rand"),
    ],
)
def test_a_wrong_command_line_says_what_is_wrong(arguments: list[str], status: int, words: str) -> None:
    answer = run("switch", *arguments)
    assert answer.returncode == status
    assert words in answer.stderr
    assert answer.stdout == ""


def test_an_empty_secret_is_refused(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("\n")
    answer = run("switch", "--secret-file", str(tmp_path / "secret"))
    assert answer.returncode == 1
    assert "is empty" in answer.stderr


def test_a_port_in_use_says_what_to_do(start: Callable[..., Running]) -> None:
    first = start()
    answer = run("switch", "--bind", "127.0.0.1", "--port", str(first.port))
    assert answer.returncode == 1
    assert "choose another" in answer.stderr
    answer = run("switch", "--bind", "127.0.0.1", "--port", "0", "--metrics", first.metrics)
    assert answer.returncode == 1
    assert "--metrics" in answer.stderr


def test_the_end_of_a_session_ends_no_job(start: Callable[..., Running]) -> None:
    switch = start()
    with workers(switch.address, 2) as clients:
        for times in (1, 2):
            switch.process.send_signal(signal.SIGHUP)
            wait_for(lambda times=times: switch.errors.read_text().count("SIGHUP") == times, "a line", WAIT_S)
            for output in fold(clients):
                assert (output == 3.0).all()
    assert switch.stop() == 0


def test_it_folds_and_counts(start: Callable[..., Running]) -> None:
    switch = start("--threads", "2")
    with workers(switch.address, 3, job="train/1") as clients:
        for output in fold(clients):
            assert (output == 6.0).all()
        job = switch.stats()["jobs"][0]
        assert (job["name"], job["state"], job["world"], job["present"]) == ("train/1", "running", 3, [0, 1, 2])
        assert job["folded_chunks"] > 0
        status, text = switch.get("/metrics")
        assert status == 200
        assert re.search(r'^netfold_job_contributions_total\{job="train/1",id="0",epoch="\d+"\} \d+$', text, re.M)
        assert re.search(r'^netfold_switch_dropped_packets_total\{reason="bad_tag"\} 0$', text, re.M)
    assert switch.get("/nothing")[0] == 404
    assert switch.stop() == 0


def test_probes_tell_whether_it_answers_and_takes_jobs(start: Callable[..., Running]) -> None:
    switch = start("--jobs-max", "1")
    assert switch.get("/healthz") == (200, "ok\n")
    assert switch.get("/readyz") == (200, "ready\n")
    with workers(switch.address, 2):
        assert switch.get("/healthz")[0] == 200
        status, text = switch.get("/readyz")
        assert (status, text.partition(":")[0]) == (503, "full")
    wait_s = time.monotonic() + WAIT_S
    while switch.get("/readyz")[0] != 200 and time.monotonic() < wait_s:
        time.sleep(0.02)
    assert switch.get("/readyz")[0] == 200
    assert switch.stop() == 0


def test_idle_connections_to_the_metrics_hold_few_descriptors(start: Callable[..., Running]) -> None:
    switch = start()
    host, _, port = switch.metrics.rpartition(":")
    descriptors = Path(f"/proc/{switch.process.pid}/fd")
    before = len(list(descriptors.iterdir()))
    strangers = []
    try:
        for _ in range(200):
            strangers.append(socket.socket())
            strangers[-1].setblocking(False)
            strangers[-1].connect_ex((host, int(port)))
        time.sleep(0.5)  # for the switch to accept as many as it will
        assert len(list(descriptors.iterdir())) < before + 50
    finally:
        for stranger in strangers:
            stranger.close()
    assert switch.get("/metrics")[0] == 200
    assert switch.stop() == 0


def test_what_prometheus_reads_is_well_formed(start: Callable[..., Running]) -> None:
    switch = start()
    with workers(switch.address, 1) as clients:
        fold(clients)
        lines = switch.get("/metrics")[1].splitlines()
    families: dict[str, str] = {}
    sample = re.compile(r'^(\w+)(\{\w+="[^"\\]*"(,\w+="[^"\\]*")*\})? [-+.e\d]+$')
    seen = set()
    for line in lines:
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            assert name not in families, "a family comes once"
            families[name] = kind
        elif not line.startswith("# HELP "):
            found = sample.match(line)
            assert found, line
            assert found[1] in families
            assert found[1].endswith("_total") == (families[found[1]] == "counter")
            assert line.rpartition(" ")[0] not in seen
            seen.add(line.rpartition(" ")[0])


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_stopping_tells_the_workers(start: Callable[..., Running], how: signal.Signals) -> None:
    switch = start()
    with workers(switch.address, 2) as clients:
        fold(clients)
        begin = time.monotonic()
        assert switch.stop(how) == 0
        assert time.monotonic() - begin < 20
        output = np.zeros(4, dtype=np.float32)
        with pytest.raises(Exception, match=re.escape(switch.address)) as raised:
            clients[0].wait(clients[0].all_reduce(output.ctypes.data, output.ctypes.data, 4, "fp32", "fp32"))
        assert raised.value.code == "switch_failed"
    assert "stopping" in switch.errors.read_text()


def test_only_those_who_know_the_secret_get_in(start: Callable[..., Running], tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("sesame\n")
    secret.chmod(0o644)
    switch = start("--secret-file", str(secret), "--require-auth")
    assert "chmod 600" in switch.errors.read_text()
    for wrong in ("", "guess"):
        with pytest.raises(Exception, match="secret") as raised, workers(switch.address, 1, secret=wrong):
            pass
        assert raised.value.code == "auth"
    with workers(switch.address, 2, secret="sesame") as clients:
        assert (fold(clients)[1] == 3.0).all()
    assert "sesame" not in switch.errors.read_text()


def test_a_wrong_address_to_bind_is_said() -> None:
    answer = run("switch", "--bind", "127.0.0.1:7171").stderr
    assert "--bind takes an address without a port: write --bind 127.0.0.1 --port 7171" in answer
    assert "it is an interface: write an address of it" in run("switch", "--bind", "lo", "--port", "0").stderr


def test_refusals_give_the_numbers(start: Callable[..., Running]) -> None:
    switch = start("--jobs-max", "1", "--memory-max", "2MB")
    with workers(switch.address, 1, job="first"):
        with pytest.raises(Exception, match=r"1 jobs and takes 1 at most.*let the switch take more jobs") as raised:
            _core.SwitchGroup(switch.address, "second", 1, 0, timeout_s=5.0)
        assert raised.value.code == "refused"
    with pytest.raises(Exception, match=r"needs .* MiB .* of 2\.00 MiB are free.*give the switch more memory"):
        _core.SwitchGroup(switch.address, "huge", 1000, 0, timeout_s=5.0)


def test_bytes_thrown_at_the_control_port(start: Callable[..., Running], rng: np.random.Generator) -> None:
    switch = start("--heartbeat-s", "0.2")
    with workers(switch.address, 2) as clients:
        for _ in range(200):
            with socket.create_connection(("127.0.0.1", switch.port), WAIT_S) as stranger:
                stranger.sendall(rng.bytes(int(rng.integers(0, 5000))))
        with socket.create_connection(("127.0.0.1", switch.port), WAIT_S) as endless:
            endless.settimeout(WAIT_S)
            heard = endless.recv(65536)
            endless.sendall(b"x" * 70000)
            while more := endless.recv(65536):
                heard += more
        assert b'"type":"hello"' in heard
        assert b'"type":"refused"' in heard
        idle = [socket.create_connection(("127.0.0.1", switch.port), WAIT_S) for _ in range(50)]
        assert (fold(clients)[0] == 3.0).all()
        for one in idle:
            one.close()
        stats = switch.stats()
        assert stats["jobs_failed"] == 0
        assert stats["jobs"][0]["present"] == [0, 1]
    assert switch.stop() == 0


def test_packets_of_strangers_are_counted_by_reason(start: Callable[..., Running]) -> None:
    switch = start()
    with socket.socket(type=socket.SOCK_DGRAM) as stranger:
        stranger.connect(("127.0.0.1", switch.stats()["udp_ports"][0]))
        stranger.send(b"short")
        stranger.send(bytes([0x20, 0x20]) + bytes(14))  # version 2
        stranger.send(bytes([0x12, 0x00]) + bytes(14))  # a probe of a job that is not there
        deadline = time.monotonic() + WAIT_S
        while sum(switch.stats()["drops"].values()) < 3:
            assert time.monotonic() < deadline, switch.stats()["drops"]
            time.sleep(0.02)
    drops = {reason: count for reason, count in switch.stats()["drops"].items() if count}
    assert drops == {"short": 1, "version": 1, "unknown_job": 1}


def test_top_shows_which_share_a_job_gives_the_switch(start: Callable[..., Running]) -> None:
    switch = start("--heartbeat-s", "0.1")
    groups = [_core.SplitGroup(rank, 2, switches=[switch.address], job="both", timeout_s=WAIT_S) for rank in range(2)]
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda group: group.connect([each.address for each in groups]), groups))
        tensor = np.ones((2, 1 << 19), np.float32)
        deadline = time.monotonic() + WAIT_S
        while "of_switch" not in (job := switch.stats()["jobs"][0]):
            assert time.monotonic() < deadline, job
            pointers = [each.ctypes.data for each in tensor]
            tickets = [
                group.all_reduce(at, at, tensor.shape[1], "fp32", "fp32", algorithm="split")
                for group, at in zip(groups, pointers, strict=True)
            ]
            list(pool.map(lambda group, ticket: group.wait(ticket), groups, tickets))
        assert 0 <= job["of_switch"] <= 1
        assert 0 < job["switch_bytes_s"] <= job["link_bytes_s"]
        table = run("top", "--metrics", switch.metrics, "--once", "--interval-s", "0.1")
        assert re.search(r"both: the switch folds \d+% of each large tensor", table.stdout), table.stdout
        for group in groups:
            group.close()


def test_doctor_measures_a_switch(start: Callable[..., Running]) -> None:
    switch = start()
    alone = run("doctor", "--switch", switch.address, "--workers", "4")
    assert alone.returncode == 0, alone.stderr
    assert re.search(r"takes [\d,.]+ MB/s from this machine", alone.stdout), alone.stdout
    said = " ".join(alone.stdout.split())  # lines are as narrow as the terminal
    assert "if its link is like a worker's: large all-reduces are 1.12 times as fast" in said
    assert "if its link is of 4 workers' links: large all-reduces are 1.50 times as fast" in said
    measure = ["doctor", "--switch", switch.address, "--workers", "2", "--json", "--rank"]
    with ThreadPoolExecutor() as pool:
        zero, one = (json.loads(done.stdout)["results"] for done in pool.map(lambda rank: run(*measure, rank), "01"))
    assert [check["name"] for check in zero] == ["switch", "switch, all"]
    assert "from each of 2 workers" in one[0]["found"]


def test_doctor_says_that_no_switch_answers() -> None:
    gone = run("doctor", "--switch", "127.0.0.1:9")
    assert gone.returncode == 1
    assert "127.0.0.1:9" in gone.stdout
    assert run("doctor", "--rank", "0").returncode == 2


def test_top_shows_the_switch(start: Callable[..., Running]) -> None:
    switch = start()
    with workers(switch.address, 2, job="digits") as clients:
        fold(clients)
        table = run("top", "--metrics", switch.metrics, "--once", "--interval-s", "0.1")
        assert table.returncode == 0, table.stderr
        assert "digits" in table.stdout
        answer = run("top", "--metrics", switch.metrics, "--json", "--interval-s", "0.1")
        assert answer.returncode == 0, answer.stderr
        report = json.loads(answer.stdout)
        assert report["command"] == "top"
        assert set(report) >= {"version", "machine", "parameters", "results"}
        assert report["results"][0]["jobs"][0]["name"] == "digits"
    assert switch.stop() == 0
    for wrong in ("x", "127.0.0.1", ":9171", "127.0.0.1:0"):
        assert run("top", "--metrics", wrong, "--once").returncode == 2
    assert run("top", "--metrics", switch.metrics, "--interval-s", "nan", "--once").returncode == 2
    gone = run("top", "--metrics", switch.metrics, "--once")
    assert gone.returncode == 1
    assert "--metrics" in gone.stderr + gone.stdout


def test_top_computes_rates_between_two_looks() -> None:
    counters = dict.fromkeys((*sum(top_command.RATES.values(), ()), "received_bytes", "sent_bytes"), 0)
    job = {"name": "a", "id": 0, "epoch": 5, "state": "running", "came_last": [3, 7], **counters}
    thread = {"name": "nf-shard-0", "cpu_s": 1.0, "received_bytes": 0, "sent_bytes": 0}
    before = {"uptime_s": 10.0, "jobs": [job], "drops": {"short": 1}, "link": {"sent_packets": 5}, "threads": [thread]}
    later = job | {"received_bytes": 250_000_000, "contributions": 100, "probes": 20, "missing_sent": 4}
    later["came_last"] = [4, 16]
    busy = thread | {"cpu_s": 1.5, "received_bytes": 10**9, "sent_bytes": 10**9}
    after = {"uptime_s": 12.0, "jobs": [later], "drops": {"short": 5}, "link": {"sent_packets": 25}, "threads": [busy]}
    shown = top_command.summary(before, after)
    assert shown["jobs"][0]["folded_gbit_s"] == pytest.approx(1.0)
    assert shown["jobs"][0]["packets_s"] == 62.0
    assert shown["jobs"][0]["retransmissions_s"] == 2.0
    assert shown["jobs"][0]["came_last"] == [1, 9]
    assert shown["threads"][0]["cpu"] == pytest.approx(0.25)
    assert shown["threads"][0]["gbit_s_core"] == pytest.approx(32.0)
    assert shown["drops_s"] == {"short": 2.0}
    assert shown["link_rates"] == {"sent_packets_s": 10.0}
    restarted = top_command.summary(after, before)
    assert restarted["drops_s"]["short"] == pytest.approx(0.1), "a switch started anew counts from nothing"
