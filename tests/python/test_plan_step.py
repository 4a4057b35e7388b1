"""Steps of whole clusters: overlap, fastest algorithms, bottlenecks, changes, and the command's output."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest

from netfold.topology.file import read as read_topology
from netfold_lab.plan.cluster import spec
from netfold_lab.plan.cluster.devices import Device
from netfold_lab.plan.models.layers import Layer, Model
from netfold_lab.plan.models.zoo import mlp, model_of
from netfold_lab.plan.step.answer import Answer, answer
from netfold_lab.plan.step.collectives import Contender, net_of
from netfold_lab.plan.step.timeline import buckets, timeline

NETFOLD = [sys.executable, "-c", "from netfold.cli import main; main()", "plan"]
CLUSTERS = Path(__file__).parents[2] / "examples" / "clusters"
STAR = (
    "fabric: {kind: star, ports: 8, rate_gbit_s: 10, latency_us: 0}\nsoftware: {step_latency_us: 0, header_bytes: 0}\n"
)
FOLDING = STAR.replace("latency_us: 0}", "latency_us: 0, folding: {at: all}}", 1)


def planned(tmp_path: Path, text: str, model: Model, batch: int = 8) -> Answer:
    path = tmp_path / "cluster.yaml"
    path.write_text(text)
    return answer(spec.read(path), model, batch)


def test_buckets_fill_from_the_last_layer() -> None:
    model = Model("three", tuple(Layer(name, 100, 1.0) for name in "abc"))
    assert [[layer.name for layer in each] for each in buckets(model, 800)] == [["c", "b"], ["a"]]
    assert len(buckets(model, 1)) == 3


def test_a_timeline_adds_up() -> None:
    model = Model("two", (Layer("a", 100, 10.0), Layer("b", 100, 10.0)))
    line = timeline(model, 1, Device(10.0, 1200.0, 1.0), 1, lambda _: 3.0)
    # forward 1 s each, backward 2 s each; the first bucket is ready at 4 s, the second at 6 but waits for the first
    assert [(s.start_s, s.end_s) for s in line.spans if s.lane == "all-reduce"] == [(4.0, 7.0), (7.0, 10.0)]
    assert line.exposed_s == pytest.approx(4.0)
    assert line.total_s == pytest.approx(10.0 + line.update_s)


def test_times_on_a_star_are_the_bounds(tmp_path: Path) -> None:
    (tmp_path / "star.yaml").write_text(FOLDING + "compute: {fold_gbyte_s: 100000}")
    net = net_of(spec.read(tmp_path / "star.yaml"))
    size = 64 << 20
    once = 8 * size / 10e9
    assert net.seconds(Contender("in-network"), size) == pytest.approx(once, rel=0.01)
    assert net.seconds(Contender("ring"), size) == pytest.approx(2 * 7 / 8 * once, rel=0.01)
    assert net.seconds(Contender("halving-doubling"), size) == pytest.approx(2 * 7 / 8 * once, rel=0.01)
    assert net.seconds(Contender("in-network", "bfp"), size) == pytest.approx(once * 8.5 / 32, rel=0.01)


def test_a_folding_switch_wins_and_its_links_limit(tmp_path: Path) -> None:
    told = planned(tmp_path, FOLDING, mlp(4, 4096))
    assert told.best.contender.algorithm in ("auto", "in-network")
    assert told.bottleneck.role == "edge link"
    assert told.bottleneck.busy > 0.95
    assert "host" in told.bottleneck.name
    assert told.bottleneck.step_s < told.best.timeline.total_s


def test_a_slow_folding_rate_is_the_bottleneck(tmp_path: Path) -> None:
    (tmp_path / "slow.yaml").write_text(FOLDING.replace("{at: all}", "{at: all, gbit_s: 1}"))
    told = answer(spec.read(tmp_path / "slow.yaml"), mlp(4, 4096), 8, ["in-network", "auto"])
    assert told.best.contender.algorithm == "auto", "the ranks take most of it"
    alone = answer(spec.read(tmp_path / "slow.yaml"), mlp(4, 4096), 8, ["in-network"])
    assert alone.bottleneck.role == "folding in the switches"


def test_the_traditional_server_is_limited_inside_and_wants_cards() -> None:
    told = answer(spec.read(CLUSTERS / "traditional.yaml"), model_of("resnet50"), 64, ["ring", "halving-doubling"], 1)
    assert told.bottleneck.role == "UPI"
    assert "socket" in told.bottleneck.name
    nics = next(each for each in told.changes if "NICs" in each.name)
    assert nics.timeline.total_s < 0.8 * told.best.timeline.total_s


def test_the_command_writes_everything(tmp_path: Path) -> None:
    names = ("plan.html", "net.png", "all.csv", "trace.json", "map.yaml")
    page, picture, table, trace, mapping = (tmp_path / name for name in names)
    words = [
        str(CLUSTERS / "eflops.yaml"),
        "--model",
        "resnet50",
        "--batch",
        "64",
        "--algorithm",
        "hdrm,halving-doubling",
    ]
    words += ["--page", str(page), "--picture", str(picture), "--csv", str(table), "--trace", str(trace)]
    ended = subprocess.run(
        [*NETFOLD, *words, "--mapping", str(mapping), "--seeds", "1", "--json"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    told = json.loads(ended.stdout)
    assert told["command"] == "plan"
    assert {one["kind"] for one in told["results"]} == {"algorithm", "placement", "bottleneck", "change"}
    assert told["results"][0]["algorithm"] == "hdrm"
    places = {one["algorithm"]: one for one in told["results"] if one["kind"] == "placement"}
    hdrm, halving = (places[name] for name in ("hdrm", "halving-doubling"))
    assert hdrm["time_s_anywhere"] == pytest.approx(hdrm["time_s_as_listed"])
    assert halving["time_s_anywhere"] > 1.3 * halving["time_s_as_listed"]
    assert "Network</button>" in page.read_text()
    assert picture.stat().st_size > 10_000
    with table.open() as file:
        assert len(list(csv.DictReader(file))) == len(told["results"])
    events = json.loads(trace.read_text())["traceEvents"]
    assert {"forward", "backward", "all-reduce", "update"} <= {one.get("cat") for one in events}
    assert any(one["pid"] == 1 and one["ph"] == "X" for one in events)
    assert read_topology(mapping).shape == (4, 16)


@pytest.mark.parametrize(
    ("words", "status", "what"),
    [
        (["no-such.yaml"], 2, "cannot be read"),
        ([str(CLUSTERS / "eflops.yaml"), "--algorithm", "butterfly"], 2, "--algorithm takes"),
        ([str(CLUSTERS / "eflops.yaml"), "--batch", "0"], 2, "--batch"),
        ([str(CLUSTERS / "eflops.yaml"), "--picture", "x.bmp"], 2, "--picture must end in"),
        ([str(CLUSTERS / "traditional.yaml"), "--algorithm", "hdrm"], 2, "hdrm"),
        ([str(CLUSTERS / "traditional.yaml"), "--layers", "3"], 2, "leave out --layers: resnet50"),
        ([str(CLUSTERS / "traditional.yaml"), "--nodes", "3..4"], 2, "leave out --nodes"),
        (["--nodes", "3..4", "--csv", "all.csv"], 2, "leave out --csv: the closed forms"),
    ],
)
def test_wrong_usage_is_a_sentence(tmp_path: Path, words: list[str], status: int, what: str) -> None:
    ended = subprocess.run([*NETFOLD, *words], capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path)
    assert (ended.returncode, "Traceback" in ended.stderr) == (status, False)
    assert what in ended.stderr
