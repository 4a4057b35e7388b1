"""Sharded training: what fits a worker's memory, what crosses the network, and the time line."""

from __future__ import annotations

from pathlib import Path

import pytest

from netfold_lab.errors import UsageError
from netfold_lab.plan.cluster import spec
from netfold_lab.plan.cluster.devices import DEVICES, Device
from netfold_lab.plan.models.layers import Layer, Model
from netfold_lab.plan.models.zoo import mlp, model_of
from netfold_lab.plan.step.answer import Job, answer, outcomes
from netfold_lab.plan.step.collectives import ALL_GATHER, ALL_REDUCE, Contender, net_of
from netfold_lab.plan.step.sharded import REDUCE_SCATTER, Training, bytes_of, check_memory, step_line

MIB = 1 << 20
PARAMETERS = {  # of the released weights
    "gpt2": 124_439_808,
    "gpt2-xl": 1_557_611_200,
    "llama3-8b": 8_030_261_248,
    "llama3-70b": 70_553_706_496,
    "llama3-405b": 405_853_388_800,
    "vit-b16": 86_567_656,
    "vit-l16": 304_326_632,
}
TWO = Model("two", (Layer("a", 1000, 10.0), Layer("b", 1000, 10.0)))
SLOW = Device(10.0, 24_000.0, 1.0)  # forward 1 s a layer, backward 2 s, update 1 s


@pytest.mark.parametrize("name", PARAMETERS)
def test_models_have_the_parameters_of_the_released_weights(name: str) -> None:
    assert model_of(name).parameters == PARAMETERS[name]


def test_memory_is_counted_as_the_papers_of_zero_count_it() -> None:
    model = mlp(100, 1000)  # 1e8 weights, 16 bytes each with Adam
    gigabytes = {name: bytes_of(model, Training(name), 64, 1) / 1e9 for name in ("none", "zero1", "zero2", "zero3")}
    assert gigabytes["none"] == pytest.approx(1.6)
    assert gigabytes["zero1"] == pytest.approx(0.8 + 0.8 / 64)
    assert gigabytes["zero2"] == pytest.approx(0.4 + 1.2 / 64)
    assert gigabytes["zero3"] == pytest.approx(1.6 / 64 + 3 * 4e6 / 1e9)
    assert bytes_of(model, Training(optimizer="sgd"), 64, 1) == pytest.approx(0.8e9)


def test_what_does_not_fit_is_refused_with_what_would() -> None:
    llama, h100 = model_of("llama3-70b"), DEVICES["h100"]
    with pytest.raises(
        UsageError, match=r"takes 1,129 GB on each of 64 workers .* has 85.9 GB; --sharding zero3 \(30.2 GB"
    ):
        check_memory(llama, Training(), 64, 25 * MIB, h100)
    with pytest.raises(UsageError, match="--sharding zero3 fits from 16 workers on") as caught:
        check_memory(llama, Training("zero3"), 12, 25 * MIB, h100)
    assert "activations" in str(caught.value)
    check_memory(llama, Training("zero3"), 16, 25 * MIB, h100)
    with pytest.raises(UsageError, match="a device with more memory is needed"):
        check_memory(llama, Training(), 64, 25 * MIB, DEVICES["rtx2080"])
    check_memory(llama, Training(), 64, 25 * MIB, Device(1, 1, 1))  # unknown memory is not checked


def line(sharding: str, accumulate: int = 1, each_s: float = 0.5) -> tuple[float, list[str]]:
    sent = []

    def seconds(collective: str, size: float) -> float:
        assert size == 4000
        sent.append(collective)
        return each_s

    return step_line(TWO, 1, SLOW, 1, Training(sharding, accumulate), 4, seconds).total_s, sent


def test_each_sharding_sends_what_it_must() -> None:
    assert line("none")[1] == [ALL_REDUCE] * 2
    assert line("none", 3)[1] == [ALL_REDUCE] * 2
    assert line("zero1", 3)[1] == [REDUCE_SCATTER] * 2 + [ALL_GATHER] * 2
    assert line("zero2", 3)[1] == [REDUCE_SCATTER] * 6 + [ALL_GATHER] * 2
    assert sorted(line("zero3", 2)[1]) == sorted(([ALL_GATHER] * 4 + [REDUCE_SCATTER] * 2) * 2)


def test_times_add_up() -> None:
    # forward 2 s, backward 4 s, the last bucket's all-reduce 0.5 s, update 1 s (each worker its quarter, if sharded)
    assert line("none")[0] == pytest.approx(2 + 4 + 0.5 + 1)
    assert line("none", 3)[0] == pytest.approx(3 * 6 + 0.5 + 1)
    assert line("zero1")[0] == pytest.approx(2 + 4 + 0.5 + 0.25 + 2 * 0.5)
    # the first gather is exposed; the others run beside computation, as does each reduce-scatter but the last
    assert line("zero3")[0] == pytest.approx(0.5 + 2 + 0.5 + 4 + 0.5 + 0.25)
    assert line("zero3", each_s=0.0)[0] == pytest.approx(2 + 4 + 0.25)


def test_on_a_cluster_the_halves_of_an_all_reduce_are_halves(tmp_path: Path) -> None:
    (tmp_path / "star.yaml").write_text("fabric: {kind: star, ports: 8, rate_gbit_s: 10}\ncompute: {device: h100}\n")
    cluster = spec.read(tmp_path / "star.yaml")
    net, ring = net_of(cluster), Contender("ring", "bfp")
    whole, scattered, gathered = (
        net.seconds(ring.of(each), 64 * MIB) for each in (ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER)
    )
    assert scattered == pytest.approx(whole / 2, rel=0.05)
    assert gathered == pytest.approx(whole / 2 * 32 / 8.5, rel=0.05), "weights are not coded"
    found = outcomes(cluster, net, Job(mlp(4, 4096), 8, Training("zero3")), ())
    assert {one.contender.algorithm for one in found} == {"ring", "direct"}
    with pytest.raises(UsageError, match="in-network is an all-reduce"):
        outcomes(cluster, net, Job(mlp(4, 4096), 8, Training("zero3")), ["in-network"])
    told = answer(cluster, mlp(4, 1024), 8, training=Training("zero1", 2))
    assert told.batch == 16


@pytest.mark.parametrize(
    ("training", "what"),
    [
        (Training("zero4"), "--sharding takes none"),
        (Training(optimizer="newton"), "--optimizer takes sgd"),
        (Training(accumulate=0), "--accumulate must be at least 1"),
    ],
)
def test_wrong_ways_to_train_are_named(training: Training, what: str) -> None:
    with pytest.raises(UsageError, match=what):
        training.check()
