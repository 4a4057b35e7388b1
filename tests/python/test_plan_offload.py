"""Optimizers in the host's memory, and shards within groups of workers."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from netfold_lab.errors import UsageError
from netfold_lab.plan.cluster import spec
from netfold_lab.plan.library.machine import HOPPER, Machine
from netfold_lab.plan.models.zoo import model_of
from netfold_lab.plan.step import offload
from netfold_lab.plan.step.answer import Job, outcomes
from netfold_lab.plan.step.collectives import ALL_GATHER, ALL_REDUCE, Contender, net_of
from netfold_lab.plan.step.sharded import REDUCE_SCATTER, Training
from netfold_lab.plan.step.timeline import Timeline

SERVERS = """
fabric: {kind: star, ports: 32, rate_gbit_s: 400}
servers: {gpus: 8, nics: 8, pcie_switches: 4, nvlink: {rate_gbit_s: 3600}}
compute: {device: h100, tflop_s: 400%s}
"""
LLAMA = model_of("llama3-8b")


def cluster(tmp_path: Path, more: str = "", text: str = SERVERS) -> spec.Cluster:
    path = tmp_path / "cluster.yaml"
    path.write_text(text % more)
    return spec.read(path)


def step(of: spec.Cluster, training: Training, batch: int = 1) -> Timeline:
    return outcomes(of, net_of(of), Job(LLAMA, batch, training), ["nccl"])[0].timeline


def test_a_host_updates_as_fast_as_its_memory_or_pcie(tmp_path: Path) -> None:
    of = cluster(tmp_path, ", host_gbyte_s: 400")
    assert of.layout is not None
    own = LLAMA.parameters / 32
    pcie = offload.pcie_bytes_s(of.layout)
    assert pcie == pytest.approx(504e9 / 8 / 2), "two GPUs share a root port of PCIe 5.0"
    offloaded = Training("zero3", recompute="full", offload=True)
    assert step(of, offloaded).update_s == pytest.approx(own * 28 * 8 / 400e9, rel=1e-3)
    assert step(of, replace(offloaded, optimizer="sgd")).update_s == pytest.approx(own * 12 * 8 / 400e9, rel=1e-3)
    fast = replace(of, host_bytes_s=1e15)
    assert step(fast, offloaded).update_s == pytest.approx(own * 4 / pcie, rel=1e-3)
    assert step(of, replace(offloaded, offload=False)).update_s < own * 4 / pcie


def test_the_backward_pass_hides_copies_that_are_shorter(tmp_path: Path) -> None:
    of = cluster(tmp_path)
    assert of.layout is not None
    line = Timeline((), 1.0, 4.0, 0.5, 0.0, 0.25)
    for seconds, exposed in ((1.5, 0.25), (2.0, 0.25), (3.0, 1.25)):
        copied = seconds * offload.pcie_bytes_s(of.layout)
        told = offload.with_copies(line, of, Training(accumulate=2, offload=True), copied)
        assert told.exposed_s == pytest.approx(exposed)
    assert offload.with_copies(line, of, Training(), 1e15) == line


def test_an_offloaded_optimizer_leaves_room(tmp_path: Path) -> None:
    of = cluster(tmp_path)
    training = Training(recompute="full")
    with pytest.raises(UsageError, match=r"takes 128.5 GB"):
        step(of, training)
    with pytest.raises(UsageError, match=r"takes 64.24 GB .* --sharding zero3"):
        step(of, replace(training, offload=True), 4)
    assert step(of, replace(training, offload=True), 1).total_s > 0


def test_a_group_gathers_within_and_sums_across(tmp_path: Path) -> None:
    net, nccl = net_of(cluster(tmp_path)), Contender("nccl")
    size = 1 << 30
    inside = net.seconds(nccl.of(ALL_GATHER).within(8), size)
    assert inside == pytest.approx(size * 7 / 8 / (450e9 * 20.6 / 25), rel=0.2), "NVLink alone"
    assert net.seconds(nccl.of(ALL_GATHER).within(32), size) == net.seconds(nccl.of(ALL_GATHER), size)
    assert net.seconds(nccl.of(ALL_GATHER).within(16), size) > inside
    asked: list[tuple[str, int, int]] = []
    seconds = net.seconds

    def told(contender: Contender, size: float, quantile: int = 1) -> float:
        options = dict(contender.options)
        asked.append((options.get("collective", ALL_REDUCE), options.get("within", 0), options.get("one_of", 0)))
        return seconds(contender, size, quantile)

    net.seconds = told  # type: ignore[method-assign,assignment]
    of = cluster(tmp_path)
    Job(LLAMA, 1, Training("zero3", recompute="full", group=8)).line(of, net, nccl)
    assert set(asked) == {(ALL_GATHER, 8, 0), (REDUCE_SCATTER, 8, 0), (ALL_REDUCE, 0, 8)}


def test_a_group_has_its_part_of_the_machine() -> None:
    machine = Machine(4, 8, 450e9, 400e9, 1.2e-6, HOPPER, sums=True)
    assert machine.within(32) == machine
    assert machine.within(16) == replace(machine, servers=2)
    own = machine.within(4)
    assert (own.servers, own.gpus, own.nics_bytes_s, own.sums) == (1, 4, 200e9, False)


def test_a_group_keeps_more_and_updates_more(tmp_path: Path) -> None:
    of = cluster(tmp_path)
    whole = step(of, Training("zero3", recompute="full"))
    group = step(of, Training("zero3", recompute="full", group=8))
    assert group.update_s == pytest.approx(4 * whole.update_s)
    assert step(of, Training("zero3", recompute="full", group=32)) == whole


NO_SERVERS = "fabric: {kind: star, ports: 32, rate_gbit_s: 400}\ncompute: {device: h100, tflop_s: 400%s}\n"
WRONG = {
    "sharding": (Training(group=8), "nothing is sharded; add --sharding zero3"),
    "size": (Training("zero3", group=3), "cannot be divided evenly by it; 2, 4, 8, 16, 32 can be"),
    "large": (Training("zero3", group=64), "4 servers of cluster have 8 GPUs each"),
    "pipeline": (Training("zero1", group=8, pipeline=2), "not planned with pipelines or experts"),
    "servers": (Training("zero3", group=8), "have no NVLink; write servers.nvlink"),
    "offload": (Training(offload=True), "--offload needs to know the servers of cluster"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_cannot_be_is_an_error_that_says_what_can(tmp_path: Path, what: str) -> None:
    training, sentence = WRONG[what]
    of = cluster(tmp_path, text=NO_SERVERS if what in ("servers", "offload") else SERVERS)
    with pytest.raises(UsageError, match=sentence):
        offload.check(of, net_of(of).machine, training)


def test_the_command_offloads_within_groups(tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(SERVERS % "")
    command = [sys.executable, "-m", "netfold.cli", "plan", "cluster.yaml", "--model", "llama3-8b", "--batch", "1"]
    command += ["--sharding", "zero3", "--shard-group", "8", "--offload", "--json", "--page", "plan.html"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True)
    said = {each["what"]: (each["taken"], each["from"]) for each in json.loads(run.stdout)["parameters"]["assumptions"]}
    assert said["groups of shards"][0] == "8 workers share a copy of the state; 4 copies"
    assert "28 bytes a weight" in said["offloaded optimizer"][0]
    assert said["offloaded optimizer"][1] == "assumed"
