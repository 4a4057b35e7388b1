"""Mixtures of experts: their sizes, the all-to-alls, memory, which gradients cross the network, and what cannot be."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from netfold_lab.errors import UsageError
from netfold_lab.plan.cluster import spec
from netfold_lab.plan.library import nccl
from netfold_lab.plan.library.machine import HOPPER, Machine
from netfold_lab.plan.models.zoo import model_of
from netfold_lab.plan.step import experts, stages, tensor
from netfold_lab.plan.step.answer import Job, answer, outcomes
from netfold_lab.plan.step.collectives import Contender, net_of
from netfold_lab.plan.step.experts import Routing
from netfold_lab.plan.step.sharded import Training, bytes_of

SERVERS = """
fabric: {kind: star, ports: 64, rate_gbit_s: 400}
servers: {gpus: 8, nics: 8%s}
compute: {device: h100, tflop_s: 400}
"""
NVLINK = ", nvlink: {rate_gbit_s: 3600}"
MIXTRAL = model_of("mixtral-8x7b")
OF_EXPERTS = sum(layer.parameters for layer in MIXTRAL.layers if layer.experts)


def cluster(tmp_path: Path, nvlink: str = NVLINK) -> spec.Cluster:
    path = tmp_path / "cluster.yaml"
    path.write_text(SERVERS % nvlink)
    return spec.read(path)


def machine(servers: int, gpus: int = 8) -> Machine:
    return Machine(servers, gpus, 450e9, gpus * 50e9, 1.2e-6, HOPPER)


@pytest.mark.parametrize(("name", "parameters"), [("mixtral-8x7b", 46_702_792_704), ("mixtral-8x22b", 140_620_634_112)])
def test_mixtures_have_the_parameters_of_the_released_weights(name: str, parameters: int) -> None:
    assert model_of(name).parameters == parameters


def test_a_token_is_computed_by_two_experts_of_eight() -> None:
    own = next(layer for layer in MIXTRAL.layers if layer.experts)
    assert own.operations == pytest.approx(2 * MIXTRAL.tokens * own.parameters * 2 / 8)
    assert own.exchanged == 2 * MIXTRAL.tokens * 4096


def test_an_all_to_all_loads_nvlink_and_the_nics_as_counted_by_hand() -> None:
    gpu, nic = 450e9 * 20.6 / 25, 50e9 * 0.94
    fill = 125e-6  # of the pipeline of a server; half as much again, if the messages cross the network
    start = (5.1 + 8.4 + 3.4) * 1e-6  # the kernel, NCCL's start with Simple, a hop
    inside = nccl.all_to_all_s(machine(1), 8e9, 8)  # seven messages of 1 GB
    assert inside == pytest.approx(7e9 / gpu + fill + start, rel=1e-3)
    # of 16 messages of 1 GB, 8 leave the server; 7 of them go to the GPU at their rail first, as do 7 to neighbours
    between = nccl.all_to_all_s(machine(2), 16e9, 16)
    assert between == pytest.approx(max(8e9 / nic, 14e9 / gpu) + 1.5 * fill, rel=1e-3)
    assert nccl.all_to_all_s(machine(2), 4e9, 4) == pytest.approx(3e9 / gpu + fill + start, rel=2e-3)
    # one GPU of each server: no message is for a neighbour
    assert nccl.all_to_all_s(machine(4, 1), 4e9, 4) == pytest.approx(3e9 / nic + 1.5 * fill, rel=1e-3)
    assert nccl.all_to_all_s(machine(2), 1.0, 16) > nccl.all_to_all_s(machine(1), 1.0, 8) > 5e-6


def test_groups_fill_a_server_before_they_take_another_one() -> None:
    assert [machine(4).shares(group) for group in (2, 8, 16, 32, 3, 24)] == [True, True, True, True, False, False]
    own = machine(4).one_of_each(4)
    assert (own.servers, own.gpus, own.nics_bytes_s) == (4, 2, 100e9)
    own = machine(4).one_of_each(16)
    assert (own.servers, own.gpus, own.nics_bytes_s) == (2, 1, 50e9)
    for group in (1, 2, 8, 16, 32):
        assert machine(4).one_of_each(group).world * group == machine(4).world


def test_a_gpu_computes_its_experts_and_waits_for_two_all_to_alls_a_pass() -> None:
    at = next(number for number, layer in enumerate(MIXTRAL.layers) if layer.experts)
    layer = MIXTRAL.layers[at]
    routing = Routing(8, 1.5, lambda size: size / 1e11)
    for group, recompute, passes in ((1, "none", 2), (2, "full", 3)):
        part = tensor.part_of(MIXTRAL, 4, group, recompute, 1e12, lambda size: 0.0, routing).layers[at]
        sent = 2 * 4 * layer.exchanged * 1.5 / group
        computed, waited = 1.5 * 4 * layer.operations / group / 1e12, 2 * sent / 1e11
        assert part.parameters == layer.parameters / 8 / group
        assert 4 * part.operations / 1e12 == pytest.approx(computed + waited)
        assert part.backward_operations is not None
        assert 4 * part.backward_operations / 1e12 == pytest.approx(passes * computed + (passes - 1) * waited)
        dense = tensor.part_of(MIXTRAL, 4, group, recompute, 1e12, lambda size: 0.0, routing).layers[1]
        assert dense.parameters == MIXTRAL.layers[1].parameters / group


def test_memory_divides_experts_among_their_group() -> None:
    dense = MIXTRAL.parameters - OF_EXPERTS
    for sharding, workers, expected in (
        ("none", 64, 16 * (dense + OF_EXPERTS / 8)),
        ("zero1", 64, 8 * (dense + OF_EXPERTS / 8) + 8 * (dense / 64 + OF_EXPERTS / 8 / 8)),
    ):
        training = Training(sharding, experts=8)
        part = tensor.part_of(MIXTRAL, 1, 1, "", 1.0, lambda size: 0.0, Routing(8))
        assert bytes_of(part, training, workers, 25 << 20) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(("stage_count", "group"), [(1, 8), (1, 2), (4, 8), (4, 2)])
def test_gradients_of_experts_are_summed_by_those_that_hold_them(tmp_path: Path, stage_count: int, group: int) -> None:
    of = replace(cluster(tmp_path), device=replace(cluster(tmp_path).device, memory_bytes=0.0))
    training = Training(accumulate=4, recompute="full", pipeline=stage_count, experts=group)
    job = Job(MIXTRAL, 1, stages.completed(training))
    seen = []
    net = net_of(of)
    asked = net.seconds

    def seconds(contender: Contender, size: float, quantile: int = 1) -> float:
        seen.append((contender, size))
        return asked(contender, size, quantile)

    net.seconds = seconds  # type: ignore[method-assign,assignment]
    line = outcomes(of, net, job, ["nccl"])[0].timeline
    sent = sum(span.size_bytes for span in line.spans if span.lane == "all-reduce")
    if stage_count == 1:
        assert sent == pytest.approx(4 * (MIXTRAL.parameters - OF_EXPERTS + OF_EXPERTS / group), rel=1e-6)
    held = {dict(contender.options).get("one_of", 1) for contender, _ in seen}
    assert held == {1, group}
    largest = {
        is_expert: max(size for one, size in seen if (dict(one.options).get("one_of", 1) > 1) == is_expert)
        for is_expert in (False, True)
    }
    assert largest[True] == 4 * 8 * 3 * 4096 * 14336 / group


def test_the_fewer_gpus_hold_an_expert_the_shorter_is_the_sum(tmp_path: Path) -> None:
    net = net_of(cluster(tmp_path))
    times = [net.seconds(Contender("nccl-ring").one_of_each(group), 1 << 30) for group in (8, 16, 32, 64)]
    assert times == sorted(times, reverse=True)
    assert times[-1] == 0.0, "one GPU holds each expert"


def test_an_uneven_load_makes_a_step_longer(tmp_path: Path) -> None:
    of = cluster(tmp_path)
    training = Training("zero1", recompute="full", experts=8)
    steps = [
        outcomes(of, net_of(of), Job(MIXTRAL, 1, replace(training, load=load)), ())[0].timeline.total_s
        for load in (0.0, 1.0, 1.5)
    ]
    assert steps[0] == steps[1] < steps[2]


WRONG = {
    "experts": (
        Training(experts=3),
        "mixtral-8x7b has 8 experts, which cannot be divided evenly.* 2, 4, 8 can",
    ),
    "none": (Training(experts=0), "--expert-parallel must be at least 1"),
    "model": (Training(experts=8), "llama3-8b has no experts; take mixtral-8x7b"),
    "NVLink": (Training(experts=8), "the servers of cluster have no NVLink"),
    "workers": (Training(experts=8, tensor=8, pipeline=4, accumulate=4), "2 servers of cluster have 1 GPUs each"),
    "load": (Training(experts=8, load=0.5), "--expert-load 0.5: the busiest GPU has at least the mean load"),
    "much load": (Training(experts=2, load=2.5), "one of 2 GPUs has at most 2 times the mean load"),
    "load alone": (Training(load=1.2), "--expert-load needs a group of GPUs"),
    "ring": (Training(experts=8), "ring is not planned with groups of GPUs; take nccl"),
    "memory": (Training(experts=4, recompute="full"), r"a worker has .*--sharding zero2 \(60.3 GB\) or zero3"),
}


@pytest.mark.parametrize("what", WRONG)
def test_experts_that_cannot_be_are_an_error_that_says_what_can(tmp_path: Path, what: str) -> None:
    training, sentence = WRONG[what]
    of = cluster(tmp_path, "" if what == "NVLink" else NVLINK)
    model = model_of("llama3-8b") if what == "model" else MIXTRAL
    with pytest.raises(UsageError, match=sentence):
        if what == "ring":
            answer(of, model, 1, ["ring"], training=replace(training, sharding="zero1", recompute="full"))
        elif what == "memory":
            answer(of, model, 1, training=training)
        else:
            experts.check(of, net_of(of).machine, model, training)


def test_the_command_plans_experts(tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(SERVERS % NVLINK)
    command = [sys.executable, "-m", "netfold.cli", "plan", "cluster.yaml", "--model", "mixtral-8x7b", "--batch", "1"]
    command += ["--sharding", "zero1", "--expert-parallel", "8", "--recompute", "full", "--json", "--page", "plan.html"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True)
    told = json.loads(run.stdout)["parameters"]
    said = {each["what"]: (each["taken"], each["from"]) for each in told["assumptions"]}
    assert "8 GPUs share the 8 experts of a layer" in said["expert parallelism"][0]
    assert said["load of experts"] == ("the busiest GPU gets 1 times the mean of tokens", "assumed")
