"""Compares the planner with this machine: the lab's model with its bounds, a lab's times, a calibration."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from netfold.chooser.table import Point
from netfold.chooser.work import work_of
from netfold.machine import this_machine
from netfold.topology.wiring import BIGRAPH, FAT_TREE, Wiring
from netfold_lab.bench import bounds
from netfold_lab.lab.spec import STAR
from netfold_lab.plan.cluster import spec
from netfold_lab.plan.truth import calibrate, check
from netfold_lab.plan.truth.model import LabModel, Machine, path, shape_of

NETFOLD = [sys.executable, "-c", "from netfold.cli import main; main()", "plan"]
RATE = 20.0
SIZE = 4 << 20


def test_a_star_is_as_fast_as_its_bounds_from_rest() -> None:
    star = check.lab_spec(STAR, (2, 4), RATE)
    model = LabModel(star)
    for name, wire_bytes in (
        ("ring", bounds.ring_wire_bytes(SIZE, star.mtu, 8)),
        ("hdrm", bounds.ring_wire_bytes(SIZE, star.mtu, 8)),
        ("in-network", bounds.in_network_wire_bytes(SIZE // 4, star.mtu, "fp32")),
    ):
        bound_s = bounds.seconds(wire_bytes - star.burst_bytes, RATE)
        assert model.seconds(name, SIZE) == pytest.approx(bound_s, rel=0.005)


def test_messages_are_the_least_that_an_all_reduce_takes() -> None:
    model = LabModel(check.lab_spec(STAR, (2, 4), RATE), Machine(step_s=1e-3))
    assert model.seconds("ring", 32) == pytest.approx(14e-3, rel=0.05)


def test_hosts_and_switches_are_numbered_as_the_labs() -> None:
    for kind in (BIGRAPH, FAT_TREE):
        model = LabModel(check.lab_spec(kind, (2, 4), RATE))
        wiring = Wiring(kind, 2, 4)
        leaves = {wiring.switch_of(rank) for rank in range(8)}
        for rank in range(8):
            home = [leaf for leaf in leaves if _is_cable(model, rank, leaf)]
            assert home == [wiring.switch_of(rank)]


def _is_cable(model: LabModel, rank: int, switch: int) -> bool:
    try:
        return bool(path(model.graph, rank, rank, [switch]))
    except KeyError:
        return False


def test_known_routes_are_taken() -> None:
    tree = check.lab_spec(FAT_TREE, (2, 4), RATE)
    wiring = Wiring(FAT_TREE, 2, 4)
    pairs = [(a, b) for a in range(8) for b in range(8) if wiring.switch_of(a) != wiring.switch_of(b)]
    crowded = {pair: [wiring.switch_of(pair[0]), 0, wiring.switch_of(pair[1])] for pair in pairs}
    spread = {(a, b): [wiring.switch_of(a), wiring.port_of(b) % 2, wiring.switch_of(b)] for a, b in pairs}
    times = [LabModel(tree, routes=routes).seconds("halving-doubling", SIZE) for routes in (crowded, spread)]
    assert times[0] > 1.2 * times[1]


def test_a_star_orders_hdrm_as_the_squarest_bigraph() -> None:
    assert shape_of(check.lab_spec(STAR, (2, 4), RATE)) == (2, 4)
    assert shape_of(check.lab_spec(STAR, (1, 2), RATE)) == (1, 2)
    assert shape_of(check.lab_spec(STAR, (1, 2), RATE, 32)) == (4, 8)


def test_who_is_said_to_win_is_judged_by_what_was_measured() -> None:
    def cell(name: str, predicted: float, measured: float) -> check.Cell:
        return check.Cell(STAR, name, SIZE, predicted, (measured,))

    (right,) = check.winners([cell("ring", 1.0, 1.01), cell("hdrm", 1.1, 1.0)])
    (wrong,) = check.winners([cell("ring", 1.0, 1.2), cell("hdrm", 1.1, 1.0)])
    assert (right.is_right, wrong.is_right) == (True, False)
    assert cell("ring", 1.02, 1.0).is_within
    assert not cell("ring", 1.04, 1.0).is_within


@pytest.mark.namespaces
def test_a_lab_is_predicted_and_measured() -> None:
    words = ["check-lab", "--fabric", "star", "--shape", "1x2", "--rate-mbit-s", "100", "--size-bytes", "1048576"]
    ended = subprocess.run(
        [*NETFOLD, *words, "--repeat", "1", "--json"], capture_output=True, text=True, timeout=120, check=True
    )
    told = json.loads(ended.stdout)
    assert {one["algorithm"] for one in told["results"]} == {"ring", "halving-doubling", "hdrm", "in-network"}
    bound_s = bounds.seconds(bounds.ring_wire_bytes(1 << 20, 1500, 2), 100.0)
    for one in told["results"]:  # how near is for a quiet machine to say
        assert 0.5 * bound_s < one["time_s_predicted"] < 2 * bound_s
    assert told["parameters"]["winners"] == 1


def test_a_calibration_finds_the_costs_it_was_made_of() -> None:
    cores = this_machine().cores
    alpha, beta = 30e-6, 2e-9
    points = [
        Point(name, world, size, (alpha * work.steps + size * beta * work.sends,))
        for name in calibrate.ALGORITHMS
        for world in (2, 4)
        for work in [work_of(name, world, cores)]
        for size in calibrate.FITTED_BYTES + calibrate.UNSEEN_BYTES
    ]
    found = calibrate.judged("tcp", (2, 4), points)
    assert found.step_latency_us == pytest.approx(30, rel=0.01)
    assert max(found.off_max.values()) < 0.01
    assert (found.points_unseen, found.winners) == (12, 6)


def test_a_calibration_goes_into_a_cluster(tmp_path: Path) -> None:
    out = tmp_path / "here.json"
    words = ["--calibrate", "--ranks", "2", "--repeat", "1", "--out", str(out), "--json"]
    ended = subprocess.run([*NETFOLD, *words], capture_output=True, text=True, timeout=120, check=True)
    (told,) = json.loads(ended.stdout)["results"]
    assert told["costs"]["ring"]["alpha"] > 0
    assert min(told["fold_gbyte_s"], told["copy_gbyte_s"], told["compute_gflop_s"]) > 0
    text = "fabric: {kind: star, ports: 4}\nsoftware: {calibration: here.json}\n"
    (tmp_path / "cluster.yaml").write_text(text)
    read = spec.read(tmp_path / "cluster.yaml")
    assert read.software.step_latency_s == pytest.approx(told["step_latency_us"] * 1e-6)
