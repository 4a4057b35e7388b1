"""Whole training steps predicted: the model against cases computed by hand, and the command in a small lab."""

from __future__ import annotations

import math

import pytest

from netfold_lab.bench import bounds
from netfold_lab.lab.spec import LabSpec
from netfold_lab.plan.truth.model import LabModel
from netfold_lab.plan.truth.step_model import (
    BACKWARD,
    EXPOSED,
    FORWARD,
    UPDATE,
    Computation,
    Exchange,
    fair_level,
    predict,
)

THREE = Computation(forward_s=2.0, bucket_s=(1.0, 1.0, 1.0), update_s=(0.5, 0.5, 0.5))
MANY_CORES = 64


def test_a_step_without_a_network_is_its_computation() -> None:
    found = predict(THREE, Exchange((0.0, 0.0, 0.0)), workers=4, cores=MANY_CORES)
    assert found.parts_s == pytest.approx({FORWARD: 2.0, BACKWARD: 3.0, EXPOSED: 0.0, UPDATE: 1.5})
    assert found.time_s == pytest.approx(THREE.total_s)


def test_workers_share_the_cores() -> None:
    found = predict(THREE, Exchange((0.0, 0.0, 0.0)), workers=6, cores=2)
    assert found.time_s == pytest.approx(3 * THREE.total_s)


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
