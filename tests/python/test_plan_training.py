"""Whole training steps predicted: the model against cases computed by hand, and the command in a small lab."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer

from netfold_lab.bench import bounds
from netfold_lab.bench.train.profile import Series, Step
from netfold_lab.bench.train.step_timer import PARTS
from netfold_lab.bench.train.variants import COMPUTE_ALONE, Variant
from netfold_lab.cli import plan_train
from netfold_lab.errors import UsageError
from netfold_lab.lab.spec import LabSpec
from netfold_lab.plan.report import train_check as report
from netfold_lab.plan.truth import other_load, train_check, train_model
from netfold_lab.plan.truth.model import LabModel
from netfold_lab.plan.truth.step_model import (
    BACKWARD,
    EXPOSED,
    FORWARD,
    UPDATE,
    Computation,
    Exchange,
    PredictedStep,
    fair_level,
    predict,
)
from netfold_lab.plan.truth.train_cases import CheckSettings, Job, Way
from netfold_lab.plan.truth.train_check import Case, Findings, Tell

CHECK = [sys.executable, "-c", "from netfold.cli import main; main()", "plan", "--check-train"]
TINY = ["--workers", "3", "--batch", "16", "--layers", "3", "--width", "64", "--repeat", "2", "--attempts", "1"]
TIMEOUT_S = 240
THREE = Computation(forward_s=2.0, bucket_s=(1.0, 1.0, 1.0), update_s=(0.5, 0.5, 0.5))
MANY_CORES = 64


def test_a_step_without_a_network_is_its_computation() -> None:
    found = predict(THREE, Exchange((0.0, 0.0, 0.0)), workers=4, cores=MANY_CORES)
    assert found.parts_s == pytest.approx({FORWARD: 2.0, BACKWARD: 3.0, EXPOSED: 0.0, UPDATE: 1.5})
    assert found.time_s == pytest.approx(THREE.total_s)


def test_workers_share_the_cores() -> None:
    found = predict(THREE, Exchange((0.0, 0.0, 0.0)), workers=6, cores=2)
    assert found.time_s == pytest.approx(3 * THREE.total_s)


def test_the_core_with_the_most_workers_is_the_slowest() -> None:
    # The computing threads are pinned: two cores have three and two of five workers.
    found = predict(THREE, Exchange((0.0, 0.0, 0.0)), workers=5, cores=2)
    assert found.time_s == pytest.approx(3 * THREE.total_s)


def test_engines_run_first_on_the_core_with_fewer_workers() -> None:
    # Of three workers on two cores, two share one. Half of the other core is free until others want more than that.
    two = Computation(1.0, (1.0, 1.0), (0.0, 0.0))
    for engine_cores, rate in ((0.1, 0.5), (0.2, (2 - 3 * 0.2) / 3)):
        found = predict(two, Exchange((20.0, 0.0), engine_cores=engine_cores), workers=3, cores=2)
        assert found.parts_s[BACKWARD] == pytest.approx(2.0 + 1 / rate)


def test_the_network_starts_with_the_first_bucket_and_hides_behind_the_rest() -> None:
    # Buckets are filled at 3, 4 and 5 s. Each takes 2 s: sums at 5, 7 and 9 s. Updates at 5 to 5.5, 7 to 7.5, 9 to 9.5.
    found = predict(THREE, Exchange((2.0, 2.0, 2.0)), workers=4, cores=MANY_CORES)
    assert found.time_s == pytest.approx(9.5)
    assert found.parts_s[EXPOSED] == pytest.approx(1.5 + 1.5)


def test_a_fast_network_exposes_only_the_last_bucket() -> None:
    # Sums at 3.25, 4.25 and 5.25 s: two updates from 5 to 6 hide the last one.
    found = predict(THREE, Exchange((0.25, 0.25, 0.25)), workers=4, cores=MANY_CORES)
    assert found.parts_s[EXPOSED] == pytest.approx(0.0)
    assert found.time_s == pytest.approx(THREE.total_s)


def test_after_backward_everything_is_exposed_but_what_updates_hide() -> None:
    # The network works from 5 to 11 s; only the last update comes after it.
    found = predict(THREE, Exchange((2.0, 2.0, 2.0)), workers=4, cores=MANY_CORES, overlaps=False)
    assert found.time_s == pytest.approx(11.5)
    assert found.parts_s[EXPOSED] == pytest.approx(6.0 - 1.0)


def test_starting_an_all_reduce_takes_the_computing_thread() -> None:
    found = predict(THREE, Exchange((0.0, 0.0, 0.0), submit_s=0.1), workers=1, cores=1)
    assert found.parts_s[BACKWARD] == pytest.approx(3.3)


def test_full_token_buckets_save_their_burst_after_rest() -> None:
    # At rest before the first bucket: 0.3 s are saved once. The network is busy from then on.
    late = predict(THREE, Exchange((2.0, 2.0, 2.0), burst_s=0.3), workers=1, cores=MANY_CORES)
    assert late.time_s == pytest.approx(9.5 - 0.3)
    # Between buckets the links rest for longer than a burst takes: each bucket saves it.
    one = Computation(0.0, (1.0, 1.0), (0.0, 0.0))
    assert predict(one, Exchange((0.5, 0.5), burst_s=0.3), 1, MANY_CORES).time_s == pytest.approx(2.0 + 0.2)
    # They rest for 0.2 s only: the second bucket saves as much.
    assert predict(one, Exchange((1.1, 0.5), burst_s=0.3), 1, MANY_CORES).time_s == pytest.approx(2.0 + 0.5 - 0.2)


def test_engines_and_the_switch_take_cores_from_computation() -> None:
    # Two workers, two cores. While the network is busy, engines take 2 x 0.2 cores and the switch 0.2: 1.4 are left,
    # so computing threads run at 0.7. Backward of the second bucket then takes 1 / 0.7 s.
    two = Computation(1.0, (1.0, 1.0), (0.0, 0.0))
    network = Exchange((10.0, 0.0), engine_cores=0.2, switch_cores=0.2)
    found = predict(two, network, workers=2, cores=2)
    assert found.parts_s[BACKWARD] == pytest.approx(1.0 + 1 / 0.7)
    assert found.time_s == pytest.approx(2.0 + 10.0)  # the network got what it wanted


def test_a_network_keeps_a_part_of_its_speed_beside_computation() -> None:
    # The network works from 1 to 2 s at half its speed, then at its speed: of 4 s, half a second is done at 2 s.
    two = Computation(0.0, (1.0, 1.0), (0.0, 0.0))
    found = predict(two, Exchange((4.0, 0.0), beside=0.5), workers=1, cores=2)
    assert found.time_s == pytest.approx(2.0 + 3.5)


def test_a_switch_that_wants_more_than_its_share_slows_the_network() -> None:
    # One core for two computing threads and a switch that wants 0.5: each gets a third, so the network runs at 2/3.
    one = Computation(0.0, (0.0, 1.0), (0.0, 0.0))
    found = predict(one, Exchange((4.0, 0.0), switch_cores=0.5), workers=2, cores=1)
    assert found.parts_s[BACKWARD] == pytest.approx(3.0)
    assert found.parts_s[EXPOSED] == pytest.approx(4.0 - 2.0)  # in 3 s it did what takes 2 s, then it has the core


@pytest.mark.parametrize(
    ("cores", "wanted", "level"),
    [
        (2, [1.0, 1.0], math.inf),
        (2, [1.0, 1.0, 1.0], 2 / 3),
        (2, [0.1, 1.0, 1.0], 0.95),
        (4, [1.5, 0.1], 1.0),
        (1, [], math.inf),
    ],
)
def test_cores_are_shared_by_max_min_fairness(cores: float, wanted: list[float], level: float) -> None:
    assert fair_level(cores, wanted) == pytest.approx(level)


@pytest.mark.parametrize("wire", ["fp32", "bfp"])
@pytest.mark.parametrize(("switch_rate", "times"), [(0.0, 1.0), (400.0, 1.0), (200.0, 2.0), (100.0, 4.0)])
def test_the_switchs_link_carries_the_tensors_of_all_workers(wire: str, switch_rate: float, times: float) -> None:
    model = LabModel(LabSpec(4, 100.0, switch_rate_mbit_s=switch_rate))
    bound_s = bounds.seconds(bounds.in_network_wire_bytes(1 << 20, 1500, wire), 100.0)
    assert model.busy_seconds("in-network", 1 << 20, wire) == pytest.approx(times * bound_s, rel=0.01)


@pytest.mark.parametrize(("wire", "part"), [("fp32", 1.0), ("bfp", 17 / 64)])
def test_a_ring_does_not_pass_the_switchs_link(wire: str, part: float) -> None:
    model = LabModel(LabSpec(4, 100.0, switch_rate_mbit_s=1.0))
    bound_s = bounds.seconds(bounds.ring_wire_bytes(4 << 20, 1500, 4), 100.0)
    assert model.busy_seconds("ring", 1 << 20, wire) == pytest.approx(part * bound_s, rel=0.01)


def step(cpu_s: float = 0.0, switch_cpu_s: float = 0.0, engine_cpu_s: float = 0.0, **parts: float) -> Step:
    cpu = {"compute": {"user_s": cpu_s, "system_s": 0.0}, "communication": {"user_s": engine_cpu_s, "system_s": 0.0}}
    return Step(dict.fromkeys(PARTS, 0.0) | parts, cpu, switch_cpu_s)


def series(*steps: Step) -> Series:
    return Series(COMPUTE_ALONE, list(steps))


def test_buckets_have_the_parts_of_backward_that_fill_them() -> None:
    alone = series(step(forward=1.0, backward=2.0, update=0.3))
    found = train_model.computation_of(alone, [[0.5, 1.5, 1.9], [0.7, 1.5, 2.1]], share=1.0)
    assert found.bucket_s == pytest.approx((0.6, 0.9, 0.5))
    assert (found.forward_s, sum(found.update_s)) == pytest.approx((1.0, 0.3))
    assert train_model.computation_of(alone, [[1.0, 2.0]], share=0.5).total_s == pytest.approx(found.total_s / 2)


def test_more_workers_than_cores_compute_as_two_on_one_core() -> None:
    settings, way = CheckSettings((3,), (448,)), Way("in-network", "fp32", False)
    own, shared = Computation(1.0, (1.0,), (0.0,)), Computation(1.1, (1.1,), (0.0,))
    links = {train_model.link_of(way): train_model.LinkCosts(1.0, 0.0, 0.0, 0.0)}
    for cores, forward_s in ((3, 1.0), (2, 2.2)):
        calibration = train_model.Calibration(cores, (4,), {448: own}, {448: shared}, links)
        assert calibration.predicted(settings, 3, 448, way).parts_s[FORWARD] == pytest.approx(forward_s)


def test_links_cost_what_two_workers_measured() -> None:
    settings, way = CheckSettings((3,), (448,)), Way("in-network", "fp32", True)
    counts = (1 << 18, 1 << 18)
    spec = settings.lab(2)
    ideal_s = sum(train_model.bucket_seconds(spec, way, counts))
    waited_s = ideal_s / 0.9 - train_model.burst_s(spec, way)  # a link that carries 90% of its rate
    found = train_model.link_costs(
        settings,
        way,
        counts,
        alone=series(step(cpu_s=1.0)),
        overlapped=series(step(cpu_s=1.1, engine_cpu_s=0.2, switch_cpu_s=0.4)),
        after=series(step(cpu_s=1.0, engine_cpu_s=0.1, switch_cpu_s=0.2, exposed=waited_s - 0.1, update=0.2)),
    )
    assert found.efficiency == pytest.approx(0.9)
    assert (found.engine_cpu_s, found.switch_cpu_s) == pytest.approx((0.15, 0.15))
    assert found.submit_cpu_s == pytest.approx(0.1)


@pytest.mark.parametrize("beside", [0.5, 0.9, 1.0])
def test_steps_within_backward_tell_how_the_network_is_delayed(beside: float) -> None:
    settings, way, counts = CheckSettings((3,), (448,)), Way("ring", "fp32", True), (1 << 18,) * 4
    computation = Computation(0.05, (0.05,) * 4, (0.001,) * 4)
    costs = train_model.LinkCosts(1.0, 0.0, 0.0, 0.0)
    exchange = train_model.exchange_of(settings, 2, way, counts, replace(costs, beside=beside))
    # Four workers on two cores: computation takes twice its time, which is not a delay of the network.
    overlapped = series(step(**predict(computation, exchange, 4, 2).parts_s))
    found = train_model.with_beside(costs, settings, way, counts, computation, overlapped)
    assert found.beside == pytest.approx(beside, abs=0.001)


def test_the_batch_that_shows_a_delay_most_tells_it() -> None:
    """A long network shows it beside long computation. A short one is hidden there, whether it is delayed or not."""
    settings, counts = CheckSettings((3,), (448, 1792)), (1 << 18,) * 20
    small, large, larger = (Computation(0.04 * batch, (0.004 * batch,) * 20, (0.0001,) * 20) for batch in (1, 4, 16))

    def shown(wire: str, computation: Computation) -> float:
        costs = train_model.LinkCosts(1.0, 0.0, 0.0, 0.0)
        return train_model.delay_shown(settings, Way("ring", wire, True), counts, computation, costs)

    assert shown("fp32", large) > 3 * shown("fp32", small) > 0
    assert shown("bfp", small) > 3 * shown("bfp", larger)


def test_two_workers_calibrate_every_way_once_and_those_within_backward_with_every_batch() -> None:
    settings = CheckSettings((3,), (448, 1792, 3584))
    assert settings.calibration_ways(448) == settings.ways()
    for batch in (1792, 3584):
        assert settings.calibration_ways(batch) == tuple(way for way in settings.ways() if way.overlaps)


@pytest.mark.parametrize("workers", [3, 6])
def test_a_network_bound_step_follows_its_bound(workers: int) -> None:
    settings = CheckSettings((workers,), (448,))
    counts = (1 << 18,) * 20
    computation = Computation(0.05, (0.005,) * 20, (0.0,) * 20)
    costs = train_model.LinkCosts(1.0, 0.0, 0.0, 0.0)
    ways = [Way("ring", "fp32", False), Way("in-network", "fp32", False), Way("in-network", "bfp", False, True)]
    calibration = train_model.Calibration(
        64, counts, {448: computation}, {}, {train_model.link_of(way): costs for way in ways}
    )
    size = sum(counts)
    narrow_bytes = workers * bounds.in_network_wire_bytes(size, 1500, "bfp")
    wires = [
        (bounds.ring_wire_bytes(4 * size, 1500, workers), 200.0),
        (bounds.in_network_wire_bytes(size, 1500, "fp32"), 200.0),
        (narrow_bytes, 400.0),
    ]
    for way, (wire_bytes, rate) in zip(ways, wires, strict=True):
        found = calibration.predicted(settings, workers, 448, way)
        bound_s = bounds.seconds(wire_bytes - 131072, rate)
        assert found.time_s == pytest.approx(0.15 + bound_s, rel=0.01)


def case(predicted_s: float, measured_s: float, way: Way) -> Case:
    predicted = PredictedStep({FORWARD: predicted_s, BACKWARD: 0.0, EXPOSED: 0.0, UPDATE: 0.0})
    return Case(3, 448, way, predicted, series(step(forward=measured_s)))


def test_errors_are_judged_without_their_signs(tmp_path: Path) -> None:
    ways = [Way("ring", "fp32", True), Way("in-network", "bfp", False, True)]
    findings = Findings(None, [case(1.04, 1.0, ways[0]), case(0.98, 1.0, ways[1])])
    assert (findings.off_mean, findings.off_worst) == pytest.approx((0.03, 0.04))
    assert report.is_within(findings, (0.031, 0.041))
    assert not report.is_within(findings, (0.029, 0.041))
    assert not report.is_within(findings, (0.031, 0.039))
    assert not report.is_within(Findings(), (0.5, 0.5)), "nothing measured is not within a limit"
    report.draw(tmp_path / "steps.svg", findings)
    assert (tmp_path / "steps.svg").read_text().count("predicted = measured") >= 1


@pytest.mark.parametrize(("attempts", "taken"), [(1, 1.0), (2, 2.0), (5, 3.0)])
def test_a_disturbed_step_is_measured_again(monkeypatch: pytest.MonkeyPatch, attempts: int, taken: float) -> None:
    # Other programs use 80% of the cores, then 30%, then 0%. The time of a step has no say in which attempt counts.
    clock, busy = [0.0], [0.0]
    tries = iter([(1.0, 0.8), (2.0, 0.3), (3.0, 0.0), (4.0, 0.0)])

    def take() -> Step:
        took_s, others = next(tries)
        clock[0] += took_s
        busy[0] += 2 * took_s * others + 2 * 0.1 + 0.05
        return step(cpu_s=0.1, switch_cpu_s=0.05, forward=took_s)

    monkeypatch.setattr(other_load.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(other_load, "busy_s", lambda: busy[0])
    monkeypatch.setattr(other_load.psutil, "cpu_count", lambda: 2)
    found, others = other_load.least_disturbed(take, workers=2, attempts=attempts)
    assert found.time_s == taken
    assert others == pytest.approx({1.0: 0.8, 2.0: 0.3, 3.0: 0.0}[taken])


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ({"workers": (2, 3)}, "--workers must be above 2"),
        ({"algorithms": ("hdrm",)}, "--algorithm takes"),
        ({"formats": ("fp16",)}, "--format takes"),
        ({"rate_mbit_s": 0.0}, "--rate-mbit-s"),
        ({"switch_rate_mbit_s": 600.0}, "--switch-rate-mbit-s"),
        ({"timeout_s": 0.0}, "--timeout-s"),
    ],
)
def test_cases_that_cannot_be_are_refused(words: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        CheckSettings(**({"workers": (3,), "batches": (448,)} | words))


@pytest.mark.parametrize("words", [["--within", "3"], ["--within", "8,3"], ["--workers", "2"], ["--out", "a.gif"]])
def test_wrong_options_are_said_before_anything_is_built(words: list[str]) -> None:
    ended = subprocess.run([*CHECK, *words], capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert ended.returncode == 2
    assert words[0] in ended.stderr


def environment(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "NETFOLD_RUNTIME_DIR": str(tmp_path)}


@pytest.mark.namespaces
@pytest.mark.usefixtures("nothing_left_behind")
def test_steps_are_predicted_and_measured(tmp_path: Path) -> None:
    words = ["--within", "0.0001,0.0001", "--out", str(tmp_path / "steps.png"), "--json"]
    ended = subprocess.run(
        [*CHECK, *TINY, *words],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        env=environment(tmp_path),
    )
    assert ended.returncode == 1, ended.stderr  # nothing is predicted that exactly
    told = json.loads(ended.stdout)
    cases = told["results"]
    # Ring and in-network, both formats, both times to start; in-network also with a narrow link of the switch.
    assert len(cases) == told["parameters"]["cases"] == 2 * 2 * 2 + 2 * 2
    assert {one["workers"] for one in cases} == {3}, "the steps of the two workers that calibrate are not cases"
    for one in cases:
        assert len(one["time_s"]) == 2
        assert one["time_s_predicted"] == pytest.approx(sum(one["parts_s_predicted"].values()))
        assert one["off"] == pytest.approx(one["time_s_predicted"] / one["time_s_median"] - 1)
    assert {one["switch_rate_mbit_s"] for one in cases} == {None, 600.0, 400.0}
    offs = [abs(one["off"]) for one in cases]
    assert told["parameters"]["off_mean"] == pytest.approx(sum(offs) / len(offs))
    assert told["parameters"]["off_worst"] == max(offs)
    assert told["parameters"]["steps"] == 2 * len(cases) + 4 * (2 + len(cases)), (
        "those that calibrate are twice as many"
    )
    calibrated = told["parameters"]["calibrated"]
    assert calibrated["workers"] == 2
    assert [(one["batch"], one["cores"]) for one in calibrated["computation"]] == [
        (16, "one each"),
        (16, "one for both"),
    ]
    assert len(calibrated["computation"][0]["backward_s_of_buckets"]) == 3
    assert len(calibrated["links"]) == 2 * 2 + 2
    for one in calibrated["links"]:
        assert 0 < one["efficiency"] <= 1
        assert 0 < one["speed_beside_computation"] <= 1
    assert (tmp_path / "steps.png").stat().st_size > 5000


class FakeCrew:
    """In place of workers: every step takes a second. The third ring of four workers is interrupted."""

    def __init__(self, workers: int) -> None:
        self.workers = workers

    @classmethod
    @contextmanager
    def at_work(cls, settings: CheckSettings, job: Job, others: list[float]) -> Iterator[FakeCrew]:
        yield cls(job.profile.workers)

    def counts(self) -> tuple[int, ...]:
        return 1 << 16, 1 << 16

    def compute(self, variant: Variant, repeat: int, tell: Tell) -> tuple[Series, list[list[float]]]:
        return series(step(forward=0.5, backward=0.4, update=0.1)), [[0.2, 0.4]]

    def take_turns(self, measured: Mapping[Way, Series], repeat: int, tell: Tell) -> None:
        for repetition in range(repeat):
            for way in measured:
                if self.workers == 4 and repetition == 2:
                    raise KeyboardInterrupt
                measured[way].steps.append(step(forward=0.5, backward=0.4, exposed=0.1))


def test_an_interruption_shows_the_cases_that_were_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(train_check, "Crew", FakeCrew)
    monkeypatch.setattr("netfold_lab.lab.kept.prepare", lambda: None)
    app = typer.Typer()
    app.callback()(lambda: None)
    plan_train.register(app)
    words = ["--workers", "3,4,5", "--batch", "448", "--algorithm", "ring", "--format", "fp32", "--repeat", "5"]
    with pytest.raises(SystemExit) as ended:
        app(["check-train", *words, "--json"], standalone_mode=False)
    assert ended.value.code == 1
    printed = capsys.readouterr()
    assert "interrupted" in printed.err
    cases = json.loads(printed.out)["results"]
    assert [(one["workers"], len(one["time_s"])) for one in cases] == [(3, 5), (3, 5), (4, 2), (4, 2)]
