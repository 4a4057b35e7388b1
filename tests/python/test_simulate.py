"""`netfold simulate`: what it prints, Figure 16, and SimGrid on the same flows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from netfold import _core
from netfold_lab.cli import program
from netfold_lab.simulate import figure16, simgrid

RATE = 100e9
TRADITIONAL = Path(__file__).parents[2] / "examples" / "clusters" / "traditional.yaml"


def run(*arguments: str, status: int = 0) -> str:
    done = CliRunner().invoke(program("simulate"), ["simulate", *arguments])
    assert done.exit_code == status, done.output
    return done.stdout if status == 0 else done.stderr


def test_json_is_one_object_that_names_what_was_asked() -> None:
    arguments = ("--topology", "bigraph:4x16", "--algorithm", "hdrm,ring", "--size-bytes", "1048576", "--json")
    report = json.loads(run(*arguments))
    assert report["command"] == "simulate"
    assert report["parameters"]["topology"] == "bigraph:4x16"
    assert [result["algorithm"] for result in report["results"]] == ["hdrm", "ring"]
    wire = 2 * 63 / 64 * (1 << 20) * 8 / RATE
    assert report["results"][0]["time_s_median"] == pytest.approx(wire + 12 * 3 * 0.5e-6, rel=1e-9)
    assert report["results"][0]["busiest"][0]["busy"] > 0.8


def test_packets_beside_flows(tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    arguments = ("--topology", "star:4", "--size-bytes", "1048576", "--packets", "--trace", str(trace), "--json")
    (result,) = json.loads(run(*arguments))["results"]
    assert result["packets"]["time_s"] == pytest.approx(result["time_s_median"], rel=0.05)
    events = [event for event in json.loads(trace.read_text())["traceEvents"] if event["ph"] == "X"]
    assert {event["tid"] for event in events} == {0, 1, 2, 3}
    last = max(event["ts"] + event["dur"] for event in events)
    assert last == pytest.approx(result["time_s_median"] * 1e6, rel=1e-9)


def test_a_cluster_file_is_a_network(tmp_path: Path) -> None:
    cluster = Path(__file__).parents[2] / "examples" / "clusters" / "eflops.yaml"
    report = json.loads(run("--topology", str(cluster), "--algorithm", "hdrm", "--size-bytes", "1048576", "--json"))
    assert report["parameters"]["workers"] == 64
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("fabric:\n  kind: moebius\n")
    assert "wrong.yaml" in run("--topology", str(wrong), status=2)


def test_goal_text_from_a_file(tmp_path: Path) -> None:
    goal = tmp_path / "pair.goal"
    goal.write_text("num_ranks 2\nrank 0 {\nl1: send 125000b to 1\n}\nrank 1 {\nl1: recv 125000b from 0\n}\n")
    (result,) = json.loads(run("--topology", "star:2", "--goal", str(goal), "--json"))["results"]
    assert result["time_s_median"] == pytest.approx(1e6 / RATE + 1e-6)
    goal.write_text("num_ranks 2\nrank 0 {\nl1: leap\n}\n")
    assert "pair.goal: GOAL, line 3" in run("--topology", "star:2", "--goal", str(goal), status=2)


def test_deadlocks_are_proved_and_refuted() -> None:
    rules = json.loads(run("--topology", "bigraph:2x4", "--spread", "hash", "--check-deadlock", "--json"))["results"]
    assert [(rule["rule"], rule["is_free"]) for rule in rules] == [("one", False), ("half", True), ("hop", True)]
    assert "upper 0 -> lower 0" in run("--topology", "bigraph:2x4", "--spread", "hash", "--check-deadlock")
    assert "free of deadlock" in run("--topology", "leaf-spine:4x2x4", "--check-deadlock")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--topology", "star:4", "--rate-gbit-s", "100000"), "if it is in Mbit/s, write 100"),
        (("--topology", "star:4", "--latency-us", "6e14"), "more than any cable or message takes"),
        (("--topology", str(TRADITIONAL), "--rate-gbit-s", "9"), "leave out --rate-gbit-s"),
        (("--topology", "star:4", "--rate-gbit-s", "100000"), "if it is in Mbit/s, write 100"),
        (("--topology", "star:4", "--latency-us", "6e14"), "more than any cable or message takes"),
        (("--topology", str(TRADITIONAL), "--rate-gbit-s", "9"), "leave out --rate-gbit-s"),
        ((), "name the network by --topology"),
        (("--topology", "pyramid:4"), "neither a file nor a network by name"),
        (("--topology", "bigraph:4"), "write bigraph:SUB_NODESXSWITCHES"),
        (("--topology", "bigraph:8x8"), "4 cables to the other half"),
        (("--topology", "bigraph:3x8"), "powers of two"),
        (("--topology", "star:4", "--algorithm", "in-network"), "no switch of this topology folds"),
        (("--topology", "star:4", "--start", "never"), "'never' says not when"),
        (("--topology", "star:4", "--spread", "thin"), "hash or destination"),
        (("--topology", "star:4", "--goal", "none.goal"), "none.goal"),
        (("fig16", "--nodes", "64,100"), "powers of two from 64, not 100"),
    ],
)
def test_wrong_usage_is_a_sentence(arguments: tuple[str, ...], said: str) -> None:
    assert said in " ".join(run(*arguments, status=2).split())


@pytest.mark.parametrize("order", [(), ("--farthest",)])
def test_figure_16_in_short(order: tuple[str, ...], tmp_path: Path) -> None:
    picture = tmp_path / "fig16.png"
    arguments = ("--nodes", "64,256,1024", "--seeds", "3", "--picture", str(picture), "--json")
    report = json.loads(run("fig16", *arguments, *order))
    differs = [one["statement"].partition(" from")[0] for one in report["published"] if not one["holds"]]
    kinds = ("bigraph",) if order else ("bigraph", "fat-tree")
    assert differs == [f"{kind}, 256 MiB: halving-doubling grows most" for kind in kinds]
    assert picture.stat().st_size > 10_000
    hdrm = {
        result["workers"]: result["time_s_median"]
        for result in report["results"]
        if (result["topology"], result["algorithm"], result["size_bytes"]) == ("bigraph", "hdrm", 256 << 10)
    }
    assert hdrm[64] == pytest.approx(130e-6, rel=0.05)
    assert hdrm[1024] == pytest.approx(181e-6, rel=0.05)


def test_figure_16_keeps_its_order() -> None:
    """A snapshot: from the fastest, all lines of each part of the figure at 64 nodes."""
    found = figure16.points((64,), seeds=5)
    assert {size: _order(found, size) for size in figure16.SIZES_BYTES} == {
        256 << 10: "bigraph hdrm, fat-tree halving-doubling, bigraph halving-doubling, fat-tree hdrm, "
        "bigraph ring, fat-tree ring",
        256 << 20: "bigraph hdrm, bigraph ring, fat-tree ring, fat-tree halving-doubling, "
        "bigraph halving-doubling, fat-tree hdrm",
    }


def _order(found: list[figure16.Point], size_bytes: int) -> str:
    own = [one for one in found if one.size_bytes == size_bytes]
    own.sort(key=lambda one: (round(one.median_s, 12), one.topology))
    return ", ".join(f"{one.topology} {one.algorithm}" for one in own)


def edged(topology: Any, latency_s: float) -> Any:
    """The same with latency only at the hosts' cables. SimGrid gives flows with more of it a smaller share."""
    made, kinds, links = _core.Topology(), [kind for kind, _ in topology.nodes], topology.links
    for kind, name in topology.nodes:
        getattr(made, f"add_{kind}")(name)
    for source, target, resource in zip(*(links[name].tolist() for name in ("from", "to", "resource")), strict=True):
        at_host = "host" in (kinds[source], kinds[target])
        rate = float(topology.capacity_bit_s[resource])
        made.add_link(source, target, capacity_bit_s=rate, latency_s=latency_s if at_host else 0.0)
    return made


NETWORKS = {
    "bigraph": (_core.Topology.bigraph(4, 16, rate_bit_s=RATE), "destination"),
    "fat tree": (_core.Topology.fat_tree(4, 16, rate_bit_s=RATE), "hash"),
    "torus": (_core.Topology.torus(8, 8, 1, rate_bit_s=RATE), "hash"),
}


@pytest.fixture(scope="module")
def built_peer() -> None:
    try:
        simgrid.program()
    except simgrid.PeerError as error:
        pytest.skip(str(error))


@pytest.mark.usefixtures("built_peer")
@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("start", ["lock-step", "own-receive"])
@pytest.mark.parametrize("algorithm", simgrid.ALGORITHMS)
def test_every_step_ends_when_simgrid_says(algorithm: str, start: str, network: str) -> None:
    base, spread = NETWORKS[network]
    topology = edged(base, 1e-6)
    options = {"spread": spread, "sub_nodes": 4, "switches": 16}
    text, _ = simgrid.problem(topology, algorithm, 1 << 20, **options)
    theirs = np.array(simgrid.ask(text, start, simgrid.EXACT)["step_end_s"])
    found = _core.simulate(topology, algorithm, 1 << 20, start=start, transfers=True, **options)["transfers"]
    ours = np.zeros(len(theirs))
    np.maximum.at(ours, found["step"], found["end_s"])
    assert ours == pytest.approx(theirs, rel=0.01)


@pytest.mark.usefixtures("built_peer")
def test_the_comparison_in_short() -> None:
    results = json.loads(run("bench", "--workers", "64", "--large", "256", "--repeat", "1", "--json"))["results"]
    assert [result["algorithm"] for result in results] == [*simgrid.ALGORITHMS, "hdrm"]
    assert all(result["step_end_apart_max"] < 0.01 for result in results[:-1])
