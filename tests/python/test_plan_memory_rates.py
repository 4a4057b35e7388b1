"""Two rates of a GPU: of matrix products, and of the memory that bounds all else. Bytes, times, published rates."""

from __future__ import annotations

import statistics
from dataclasses import replace
from pathlib import Path

import pytest

from netfold_lab.errors import UsageError
from netfold_lab.plan.cluster import spec
from netfold_lab.plan.cluster.devices import DEVICES
from netfold_lab.plan.models.layers import BACKWARD_OPERATIONS
from netfold_lab.plan.models.transformers import TEXTS, decoder
from netfold_lab.plan.models.zoo import model_of
from netfold_lab.plan.report.assumptions import assumption_entries
from netfold_lab.plan.step import tensor
from netfold_lab.plan.step.answer import Job, answer, outcomes
from netfold_lab.plan.step.collectives import net_of
from netfold_lab.plan.step.sharded import Training
from netfold_lab.plan.truth import memory_rates

SERVERS = """
fabric: {kind: star, ports: 16, rate_gbit_s: 400}
servers: {gpus: 8, nics: 8, nvlink: {rate_gbit_s: 3600}}
compute: {device: h100, tflop_s: 400%s}
"""
MEMORY = ", memory_gbyte_s: 2000"


def cluster(tmp_path: Path, memory: str = MEMORY) -> spec.Cluster:
    path = tmp_path / "cluster.yaml"
    path.write_text(SERVERS % memory)
    return spec.read(path)


def test_bytes_of_a_block_are_those_of_its_operations() -> None:
    attention, feed_forward = model_of("gpt3").layers[1:3]
    assert (attention.moved, feed_forward.moved) == (4 + 7, 4 + 7 + 4 * 4)
    attention, feed_forward = model_of("llama3-8b").layers[1:3]
    assert attention.moved == 4 + 6 + 4 * (1 + 8 / 32)
    assert feed_forward.moved == 4 + 6 + 6 * 14336 / 4096
    experts = model_of("mixtral-8x7b").layers[3]
    assert experts.moved == (4 + 6) / 2 + 6 * 14336 / 4096, "a token is normalized once for both of its experts"
    assert not any(layer.moved_by_each for layer in model_of("gpt3").layers)


def test_software_of_2021_moves_all_scores_and_normalizes_on_each_gpu() -> None:
    told, plain, old = TEXTS["gpt3"], decoder("gpt3"), decoder("gpt3", is_of_2021=True)
    attention, feed_forward = old.layers[1:3]
    assert attention.moved == 9 * told.tokens * told.heads / told.width
    assert feed_forward.moved == 4 * 4
    assert attention.moved_by_each == feed_forward.moved_by_each == 4 + 7
    assert attention.operations - plain.layers[1].operations == 2 * told.tokens**2 * told.width
    assert old.parameters == plain.parameters


@pytest.mark.parametrize(("recompute", "again"), [("none", 0), ("selective", 1), ("full", 1)])
def test_what_moves_takes_time_beside_products(recompute: str, again: int) -> None:
    batch, group, flop_s, bytes_s = 2, 8, 1e14, 1e12
    model = decoder("gpt3", is_of_2021=True)
    without, with_memory = (
        tensor.part_of(model, batch, group, recompute, flop_s, lambda size: 0.0, moved_bytes_s=each)
        for each in (0.0, bytes_s)
    )
    layer = model.layers[1]
    took = batch * layer.exchanged * (layer.moved / group + layer.moved_by_each) / bytes_s
    one, two = without.layers[1], with_memory.layers[1]
    assert (two.operations - one.operations) * batch / flop_s == pytest.approx(took)
    assert one.backward_operations is not None and two.backward_operations is not None
    backward = (two.backward_operations - one.backward_operations) * batch / flop_s
    assert backward == pytest.approx((1.5 + again) * took)
    output, scored = model.layers[-1], with_memory.layers[-1]
    loss = batch * (10 * output.scored / group + 4 * output.exchanged) / bytes_s
    assert (scored.operations - without.layers[-1].operations) * batch / flop_s == pytest.approx(loss)
    everything = tensor.moving_s(model, batch, group, recompute, bytes_s)
    grown = sum(
        each.operations + (each.backward_operations or 0.0) - old.operations - (old.backward_operations or 0.0)
        for each, old in zip(with_memory.layers, without.layers, strict=True)
    )
    assert everything == pytest.approx(grown * batch / flop_s)


def test_one_gpu_without_recomputation_moves_as_well() -> None:
    model = model_of("llama3-8b")
    part = tensor.part_of(model, 1, 1, "", 1e14, lambda size: 0.0, moved_bytes_s=1e12)
    assert part.operations > model.operations
    assert tensor.part_of(model, 1, 1, "", 1e14, lambda size: 0.0) is model
    pictures = model_of("resnet50")
    assert tensor.part_of(pictures, 1, 1, "", 1e14, lambda size: 0.0, moved_bytes_s=1e12) is pictures


def test_a_plan_counts_memory_only_if_the_file_states_its_rate(tmp_path: Path) -> None:
    job = Job(model_of("llama3-8b"), 1, Training("zero3", tensor=8, recompute="full"))
    times = []
    for memory in ("", MEMORY):
        of = cluster(tmp_path, memory)
        line = outcomes(of, net_of(of), job, ["nccl"])[0].timeline
        times.append(line.forward_s + line.backward_s)
        told = answer(of, job.model, 1, ["nccl"], training=job.training)
        said = {each["what"]: each["taken"] for each in assumption_entries(told)}
        assert ("memory beside matrix products" in said) == bool(memory)
    moving = tensor.moving_s(job.model, 1, 8, "full", 2e12)
    assert times[1] - times[0] == pytest.approx(moving)
    assert said["memory beside matrix products"] == f"2,000 GB/s: {1e3 * moving:,.4g} ms of the passes"


@pytest.mark.parametrize(("name", "model", "tflop_s"), [("h100", "llama3-8b", 400), ("a100", "gpt2", 183)])
def test_a_model_of_text_has_the_rate_of_its_like(tmp_path: Path, name: str, model: str, tflop_s: int) -> None:
    """ResNet-50's rate, 140 TFLOP/s of an H100, made a step of Llama 3 8B last 2.4 times as long as TorchTitan's."""
    path = tmp_path / "cluster.yaml"
    path.write_text(f"fabric: {{kind: star, ports: 4, rate_gbit_s: 400}}\ncompute: {{device: {name}}}\n")
    of, said = spec.read(path), []
    for each in (model, "resnet50"):
        told = answer(of, model_of(each), 1, ["ring"], training=Training("zero3", optimizer="sgd"))
        said.append({row["what"]: row for row in assumption_entries(told)}["computation"])
    assert said[0]["taken"].startswith(f"{tflop_s} TFLOP/s")
    assert "trainings of models of text" in said[0]["from"]
    assert said[1]["taken"].startswith(f"{DEVICES[name].flop_s / 1e12:g} TFLOP/s")
    assert "trainings of ResNet-50" in said[1]["from"]


def test_a_stated_rate_is_taken_for_all_models(tmp_path: Path) -> None:
    told = answer(cluster(tmp_path, ""), model_of("gpt2"), 1, ["nccl"])
    assert told.cluster.device.flop_s == 400e12


def test_a_rate_of_memory_needs_that_of_products(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text("fabric: {kind: star, ports: 4, rate_gbit_s: 400}\ncompute: {device: h100, memory_gbyte_s: 2000}\n")
    with pytest.raises(UsageError, match="write tflop_s, too"):
        spec.read(path)


def test_a_slower_device_has_a_slower_memory() -> None:
    device = replace(DEVICES["h100"], moved_bytes_s=2e12)
    assert device.slower(2).moved_bytes_s == 1e12


def test_a_pipeline_counts_memory_too(tmp_path: Path) -> None:
    training = Training(accumulate=4, tensor=8, recompute="full", pipeline=2, schedule="1f1b", virtual=1)
    job = Job(model_of("llama3-8b"), 1, training)
    lines = []
    for memory in ("", MEMORY):
        of = cluster(tmp_path, memory)
        lines.append(outcomes(of, net_of(of), job, ["nccl"])[0].timeline)
    assert lines[1].forward_s > 1.02 * lines[0].forward_s


def test_published_rates_are_met_at_all_widths() -> None:
    rows = memory_rates.rows()
    assert {kind: sum(row.kind == kind for row in rows) for kind in ("fitted", "seen", "blind")} == {
        "fitted": 1,
        "seen": 9,
        "blind": 3,
    }
    for row in rows:
        assert abs(row.off_two) < {"fitted": 0.01, "seen": 0.05, "blind": 0.26}[row.kind], row.name
    one, two = memory_rates.mean_errors()
    assert two < 0.03
    assert one > 0.1
    assert two == pytest.approx(statistics.mean(abs(row.off_two) for row in rows if row.kind == "seen"))


def test_software_of_2021_computes_what_its_authors_count() -> None:
    """Narayanan et al., equation 3: whole products of attention, everything but the output computed again."""
    model = decoder("megatron-145b", is_of_2021=True)
    counted = 96 * 2048 * 80 * 12288**2 * (1 + 2048 / (6 * 12288) + 51200 / (16 * 80 * 12288))
    own = (2 + BACKWARD_OPERATIONS) * model.operations - model.layers[-1].operations
    assert own == pytest.approx(counted)


def test_a_plan_that_counts_no_activations_says_how_large_they_are(tmp_path: Path) -> None:
    job = Job(model_of("llama3-70b"), 1, Training("zero3"))
    told = answer(cluster(tmp_path, ", memory_gb: 600"), job.model, 1, ["nccl"], training=job.training)
    said = {each["what"]: each["taken"] for each in assumption_entries(told)}["memory of a worker"]
    whole, part = (tensor.activation_bytes(job.model, 1, 1, each) / 1e9 for each in ("none", "full"))
    assert said.endswith(
        f"activations are not counted without --recompute: {whole:,.3g} GB with none, {part:,.3g} GB with full"
    )
    pictures = answer(cluster(tmp_path, ""), model_of("resnet50"), 1, ["nccl"])
    said = {each["what"]: each["taken"] for each in assumption_entries(pictures)}["memory of a worker"]
    assert said.endswith("activations are not counted")
