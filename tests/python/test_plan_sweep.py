"""Sweeps: every combination is planned and saved at once, a sweep continues after an interruption, and the Pareto front
is right."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from netfold_lab.errors import UsageError
from netfold_lab.plan.report.sweep import name_of
from netfold_lab.plan.sweep import designs
from netfold_lab.plan.sweep.results import Notebook, front, per_price, per_second
from netfold_lab.plan.sweep.run import evaluate, lacking, results_of

NETFOLD = [sys.executable, "-c", "from netfold.cli import main; main()", "plan", "sweep"]
SWEEP = """cluster: {fabric: {kind: star, ports: 4, rate_gbit_s: 100}, prices: {switch: 1000, nic: 100}}
model: mlp
layers: 4
width: 512
algorithms: [ring]
vary:
  fabric.ports: [4, 8]
  fabric.rate_gbit_s: [10, 100, 0]
  batch: [8, 16]
"""
ENDS_WITHIN_S = 60


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "sweep.yaml"
    path.write_text(SWEEP)
    return path


def run(file: Path, *words: str) -> subprocess.CompletedProcess[str]:
    page = file.with_name("sweep.html")
    command = [*NETFOLD, str(file), "--page", str(page), "--workers", "1", "--json", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=ENDS_WITHIN_S, check=True)


def test_every_combination_is_a_design_of_its_own(file: Path) -> None:
    read = designs.read(file)
    found = list(read.designs())
    assert len(found) == len(read) == 12
    assert len({each.key for each in found}) == 12
    assert found[0].cluster["fabric"] == {"kind": "star", "ports": 4, "rate_gbit_s": 10}
    assert {each.job["batch"] for each in found} == {8, 16}
    assert [each.key for each in designs.read(file).designs()] == [each.key for each in found]


def test_what_cannot_be_is_told_not_raised(file: Path) -> None:
    results = [evaluate(each) for each in designs.read(file).designs()]
    wrong = [each for each in results if "error" in each]
    assert len(wrong) == 4
    assert all("rate_gbit_s: must be above 0" in each["error"] for each in wrong)
    fast, slow = (next(e for e in results if e["varied"]["fabric.rate_gbit_s"] == rate) for rate in (100, 10))
    assert fast["samples_s"] > slow["samples_s"]
    assert fast["price"] == 1000 + 4 * 100


def test_whole_parts_can_vary_and_null_takes_away(tmp_path: Path) -> None:
    path = tmp_path / "sweep.yaml"
    path.write_text(
        "cluster: {fabric: {kind: star, ports: 4, folding: {at: all}}}\n"
        "prices: {nic: 1}\n"
        "vary:\n  fabric.folding: [null, {at: leaves}]\n  fabric: [{kind: bigraph, sub_nodes: 1, switches: 4}]\n"
        "  together: [{fabric.rate_gbit_s: 200, prices.nic: 2}]\n"
    )
    first, second = (each.cluster["fabric"] for each in designs.read(path).designs())
    assert first == {"kind": "bigraph", "sub_nodes": 1, "switches": 4, "rate_gbit_s": 200}
    assert {each.cluster["prices"]["nic"] for each in designs.read(path).designs()} == {2}
    assert second == first | {"folding": {"at": "leaves"}}


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("vary: {batch: [1]}", "cluster is missing"),
        ("cluster: {fabric: {kind: star, ports: 4}}\nvary: {}", "line 2: vary"),
        ("cluster: {fabric: {kind: star, ports: 4}}\nvary:\n  fabrik.ports: [1]", "line 3: .*is not a name to vary"),
        ("cluster: {fabric: {kind: star, ports: 4}}\nvary:\n  batch: 3", "line 3: vary.batch: must be a list"),
        ("cluster: nowhere.yaml\nvary:\n  batch: [3]", "nowhere.yaml cannot be read"),
    ],
)
def test_what_is_wrong_in_a_sweep_file_is_named(tmp_path: Path, text: str, what: str) -> None:
    path = tmp_path / "sweep.yaml"
    path.write_text(text)
    with pytest.raises(UsageError, match=what):
        designs.read(path)


def result(key: str, price: float | None, samples_s: float) -> dict[str, Any]:
    return {"key": key, "price": price, "samples_s": samples_s}


def test_nobody_on_the_front_is_beaten() -> None:
    some = [result("a", 1, 5), result("b", 2, 4), result("c", 2, 9), result("d", 3, 9), result("e", 4, 10)]
    assert [each["key"] for each in front([*some, result("f", None, 99), {"key": "g", "error": ""}])] == ["a", "c", "e"]
    assert per_price(some)[0]["key"] == "a"


def test_a_line_that_was_cut_off_is_done_again(tmp_path: Path, file: Path) -> None:
    path = tmp_path / "kept.jsonl"
    notebook = Notebook(path)
    first, second, *_ = designs.read(file).designs()
    notebook.add(evaluate(first))
    whole = path.read_text()
    path.write_text(whole + json.dumps(evaluate(second))[:40])
    again = Notebook(path)
    assert set(again.kept) == {first.key}
    assert path.read_text() == whole
    assert len(lacking(designs.read(file), again)) == 11


def test_a_file_of_something_else_is_left_as_it_is(tmp_path: Path) -> None:
    for content in ("a line\nanother\n", "one line", '{"a": 1}\n{"b": 2}\n', "\udc80".encode("utf-8", "surrogatepass")):
        path = tmp_path / "notes.txt"
        raw = content if isinstance(content, bytes) else content.encode()
        path.write_bytes(raw)
        with pytest.raises(UsageError, match="does not hold results"):
            Notebook(path)
        assert path.read_bytes() == raw


def test_a_sweep_that_was_interrupted_goes_on(tmp_path: Path) -> None:
    file = tmp_path / "sweep.yaml"
    ports = ", ".join(map(str, range(16, 40)))
    file.write_text(SWEEP.replace("[4, 8]", f"[{ports}]"))
    kept = file.with_suffix(".results.jsonl")
    command = [*NETFOLD, str(file), "--page", str(tmp_path / "sweep.html"), "--workers", "1"]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + ENDS_WITHIN_S
    while not (kept.exists() and kept.read_text().count("\n") >= 3):
        assert time.monotonic() < deadline and running.poll() is None, running.communicate()
        time.sleep(0.02)
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=ENDS_WITHIN_S)
    assert (running.returncode, "Traceback" in said) == (1, False), said
    assert "the same command continues" in said
    before = kept.read_text()
    assert 3 <= before.count("\n") < 144
    told = json.loads(run(file).stdout)
    assert kept.read_text().startswith(before), "what was done is not done again"
    assert len(told["results"]) == len({one["key"] for one in told["results"]}) == 144


def test_the_command_tells_the_best_and_draws_the_front(file: Path) -> None:
    picture = file.with_name("front.png")
    told = json.loads(run(file, "--picture", str(picture)).stdout)
    assert (told["parameters"]["designs"], len(told["results"])) == (12, 12)
    assert picture.stat().st_size > 5_000
    page = file.with_name("sweep.html").read_text()
    assert "Pareto front: no other design" in page
    assert "4 impossible designs" in page


def test_a_scheduler_that_is_not_there_is_named(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("netfold_lab.plan.sweep.run.CONNECT_S", 1.0)
    from netfold_lab.plan.sweep.run import client

    with pytest.raises(UsageError, match="no scheduler answers"), client("tcp://127.0.0.1:9", 1):
        pass


def test_a_second_run_names_designs_as_the_first_did(file: Path) -> None:
    fabrics = "[{kind: leaf-spine, leaves: 2, spines: 1, ports_per_leaf: 4}]"
    file.write_text(SWEEP.replace("fabric.ports: [4, 8]", f"fabric: {fabrics}").replace("[10, 100, 0]", "[10]"))
    read, kept = designs.read(file), file.with_suffix(".jsonl")
    notebook = Notebook(kept)
    for design in read.designs():
        notebook.add(evaluate(design))
    lines = [json.loads(line) for line in kept.read_text().splitlines()]
    kept.write_text("".join(json.dumps(one, sort_keys=True) + "\n" for one in lines))  # as older notebooks are
    for written in (notebook, Notebook(kept)):
        named = [name_of(one) for one in results_of(read, written)]
        assert named == [f"leaf-spine 2x1x4, 10 Gbit/s, batch {batch}" for batch in (8, 16)]


def test_of_equally_fast_designs_the_cheapest_is_named() -> None:
    some = [result("dear", 9, 1000.1), result("cheap", 7, 1000.0), result("slow", 1, 990)]
    assert [each["key"] for each in per_second(some)] == ["cheap", "dear", "slow"]
