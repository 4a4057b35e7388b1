"""Folding machines beside the network, their links and cores, and tensors that the ranks share with them; the range of
an answer, and its assumptions."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from netfold.capacity import best_share, sent_among
from netfold_lab.errors import UsageError
from netfold_lab.plan.cluster import spec
from netfold_lab.plan.cluster.costs import count_of
from netfold_lab.plan.models.zoo import mlp
from netfold_lab.plan.report.cluster import assumptions, milliseconds, summary
from netfold_lab.plan.step.answer import Job, answer, outcomes
from netfold_lab.plan.step.collectives import AUTO, Contender, Net, net_of
from netfold_lab.plan.step.ranges import CHECKED_IN_LABS, errors_of

SIZE = 16 << 20
IDEAL = "software: {step_latency_us: 0, header_bytes: 0}\ncompute: {fold_gbyte_s: 100000}\n"
LAB = "software: {step_latency_us: 0, mtu: 1406, header_bytes: 94}\n"
# docs/measurements/2026-11-24-shared-with-a-switch.md: 8 workers at 200 Mbit/s; the switch's link: `auto`, in-network
RECORD_MS = {200: (1168, 5628), 400: (1108, 2811), 800: (934, 1404), 1600: (703, 704)}


def read(tmp_path: Path, folding: str, more: str = IDEAL, rate: float = 10) -> spec.Cluster:
    path = tmp_path / "cluster.yaml"
    path.write_text(f"fabric: {{kind: star, ports: 8, rate_gbit_s: {rate}, latency_us: 0, folding: {folding}}}\n{more}")
    return spec.read(path)


def net(tmp_path: Path, folding: str, more: str = IDEAL, rate: float = 10) -> Net:
    return net_of(read(tmp_path, folding, more, rate))


@pytest.mark.parametrize("mbit_s", RECORD_MS)
def test_the_labs_record_is_predicted(tmp_path: Path, mbit_s: int) -> None:
    made = net(tmp_path, f"{{at: attached, link_gbit_s: {mbit_s / 1000}}}", LAB, 0.2)
    shared, alone = RECORD_MS[mbit_s]
    assert 1e3 * made.seconds(Contender(AUTO), SIZE) == pytest.approx(shared, rel=0.06)
    assert 1e3 * made.seconds(Contender("in-network"), SIZE) == pytest.approx(alone, rel=0.03)


@pytest.mark.parametrize("links", [1, 2, 4, 8])
def test_the_best_share_is_the_closed_form(tmp_path: Path, links: int) -> None:
    made = net(tmp_path, f"{{at: attached, link_gbit_s: {10 * links}, gbit_s: 1000}}")
    share = best_share(8, 10, 10 * links / 8)
    run = made.simulate(Contender(AUTO), SIZE // 4)
    assert run["share"] == pytest.approx(share, abs=0.01)
    assert run["time_s"] == pytest.approx((share + sent_among(8) * (1 - share)) * SIZE * 8 / 10e9, rel=0.01)


def test_links_of_several_machines_add_up(tmp_path: Path) -> None:
    one, four = (net(tmp_path, f"{{at: attached, boxes: {boxes}, gbit_s: 1000}}") for boxes in (1, 4))
    assert one.seconds(Contender("in-network"), SIZE) == pytest.approx(8 * SIZE * 8 / 10e9, rel=0.01)
    assert four.seconds(Contender("in-network"), SIZE) == pytest.approx(2 * SIZE * 8 / 10e9, rel=0.01)
    wide = net(tmp_path, "{at: attached, link_gbit_s: 40, gbit_s: 1000}")
    assert four.seconds(Contender(AUTO), SIZE) == pytest.approx(wide.seconds(Contender(AUTO), SIZE), rel=0.01)


def test_a_small_tensor_is_not_divided(tmp_path: Path) -> None:
    assert net(tmp_path, "{at: attached, gbit_s: 1000}").simulate(Contender(AUTO), 1 << 16)["share"] in (0, 1)


def test_cores_limit_what_nobody_called_infinite(tmp_path: Path) -> None:
    for folding, gradients_s in (
        ("{at: all, cores: 1}", 6.7e9),
        ("{at: all, program: sockets, cores: 4}", 4 * 0.23e9),
        ("{at: attached, link_gbit_s: 1000, cores: 4}", 4 * 0.23e9),
    ):
        made = net(tmp_path, folding, rate=200)
        least_s = 8 * SIZE / 4 / gradients_s
        assert made.seconds(Contender("in-network"), SIZE) == pytest.approx(least_s, rel=0.01)
    hardware = net(tmp_path, "{at: all, program: hardware}", rate=200)
    assert hardware.seconds(Contender("in-network"), SIZE) == pytest.approx(SIZE * 8 / 200e9, rel=0.01)


def test_the_users_own_measurement_counts(tmp_path: Path) -> None:
    runs = [{"format": wire, "gradients_s_per_core": rate} for wire, rate in (("fp32", 2e9), ("fp32", 1e9))]
    (tmp_path / "mine.json").write_text(json.dumps({"results": runs}))
    found = read(tmp_path, "{at: all, cores: 3, bench: mine.json}")
    assert found.folding is not None
    assert found.folding.bit_s("fp32", 32) == 3 * 1e9 * 32
    assert found.folding.gradients_s("bf16") == 1e9
    assert ("folding of one core", "1e+09 gradients a second", "cluster file: bench") in found.folding.assumptions(
        "fp32"
    )


@pytest.mark.parametrize(
    ("folding", "what"),
    [
        ("{at: all, boxes: 2}", "boxes: only machines beside the fabric"),
        ("{at: attached, program: hardware}", "program: machines beside the fabric run sockets or dpdk"),
        ("{at: all, gbit_s: 5, cores: 2}", "cores: gbit_s already says"),
        ("{at: all, program: hardware, cores: 2}", "cores: program: hardware already says"),
        ("{at: attached, boxes: 65}", "boxes: must be at most 64, not 65"),
        ("{at: all, bench: cluster.yaml}", "is not the output of `netfold bench switch"),
        ("{at: attached, link_gbit_s: 25000}", "if it is in Mbit/s, write 25"),
    ],
)
def test_contradictions_are_named(tmp_path: Path, folding: str, what: str) -> None:
    with pytest.raises(UsageError, match=what):
        read(tmp_path, folding)


def test_machines_beside_the_network_are_counted(tmp_path: Path) -> None:
    count = count_of(read(tmp_path, "{at: attached, boxes: 3}"))
    assert (count["switch"], count["folding_switch"], count["cable"]) == (1, 3, 8 + 3)


def test_coding_and_staging_are_charged_when_the_file_has_rates(tmp_path: Path) -> None:
    wire = IDEAL.replace("header_bytes: 0", "header_bytes: 0, format: bfp%s")
    free = net(tmp_path, "{at: all, program: hardware}", wire % "")
    coded = net(tmp_path, "{at: all, program: hardware}", wire % ", encode_gbyte_s: 1, decode_gbyte_s: 2")
    staged = net(tmp_path, "{at: all, program: hardware}", wire % ", stage_gbyte_s: 4")
    bfp = Contender("in-network", "bfp")
    assert free.seconds(bfp, SIZE) == pytest.approx(SIZE * 8 / 10e9 * 8.5 / 32, rel=0.01)
    assert coded.seconds(bfp, SIZE) == pytest.approx(SIZE / 1e9 + SIZE / 2e9)
    assert staged.seconds(bfp, SIZE) == pytest.approx(free.seconds(bfp, SIZE) + 2 * SIZE / 4e9)


def test_an_answer_has_a_range_and_says_what_it_assumed(tmp_path: Path) -> None:
    found = read(tmp_path, "{at: attached}", "")
    told = answer(found, mlp(4, 1024), 8)
    best = told.best
    assert best.low_s < best.timeline.total_s < best.high_s
    sentences = " ".join(summary(told))
    assert "expected: " in sentences
    assert "cores that fold there" in sentences
    sources = {row[0]: row[2] for row in assumptions(told)}
    assert (sources["rate of a cable"], sources["a message"]) == ("cluster file", "assumed")


def test_the_range_is_as_wide_as_what_was_checked(tmp_path: Path) -> None:
    told = read(tmp_path, "{at: all}", "compute: {tflop_s: 10}\nsoftware: {step_latency_us: 5}\n")
    assert (errors_of(told).communication, errors_of(told).computation) == (CHECKED_IN_LABS, 0)
    calibration = {"step_latency_us": 9.0, "off_max": {"ring": 0.3, "halving-doubling": 0.1}}
    (tmp_path / "here.json").write_text(json.dumps(calibration))
    calibrated = read(tmp_path, "{at: all}", "software: {calibration: here.json}\n")
    assert errors_of(calibrated).communication == 0.3
    one, *_ = outcomes(told, net_of(told), Job(mlp(4, 4096), 1), ["in-network"])
    line = one.timeline
    assert one.high_s == pytest.approx(line.total_s + CHECKED_IN_LABS * line.reduce_s, rel=0.02)
    assert errors_of(replace(told, told=frozenset())).communication > CHECKED_IN_LABS


@pytest.mark.parametrize(
    ("seconds", "digits", "text"),
    [(0.01234, 2, "12"), (0.01234, 3, "12.3"), (1.2345, 3, "1,230"), (0.000123, 2, "0.12"), (0, 3, "0")],
)
def test_digits_are_as_many_as_are_true(seconds: float, digits: int, text: str) -> None:
    assert milliseconds(seconds, digits) == text
