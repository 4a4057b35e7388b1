"""Pipelines: schedules against their closed forms, memory of stages, transfers, published rates, and what cannot be."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from netfold_lab.errors import UsageError
from netfold_lab.plan.cluster import spec
from netfold_lab.plan.cluster.devices import DEVICES, Device
from netfold_lab.plan.library import nccl, published
from netfold_lab.plan.library.machine import HOPPER, Machine
from netfold_lab.plan.models.layers import Layer, Model
from netfold_lab.plan.models.zoo import model_of
from netfold_lab.plan.report.assumptions import assumption_entries
from netfold_lab.plan.step import pipeline, schedules, stages, tensor
from netfold_lab.plan.step.answer import Job, answer, outcomes
from netfold_lab.plan.step.collectives import net_of
from netfold_lab.plan.step.names import ALL_GATHER, REDUCE_SCATTER
from netfold_lab.plan.step.schedules import GPIPE, INTERLEAVED, ONE_F_ONE_B, Pass
from netfold_lab.plan.step.sharded import Training
from netfold_lab.plan.truth import pipelines

SERVERS = """
fabric: {kind: star, ports: %d, rate_gbit_s: 400}
servers: {gpus: 8, nics: 8, nvlink: {rate_gbit_s: 3600}}
compute: {device: h100, tflop_s: 400}
"""
SHAPES = [
    (schedule, count, batches, 1)
    for schedule in (GPIPE, ONE_F_ONE_B)
    for count, batches in ((2, 1), (2, 5), (4, 3), (4, 4), (4, 16), (7, 20))
] + [(INTERLEAVED, count, batches, 2 + count % 3) for count, batches in ((2, 2), (2, 8), (4, 4), (4, 16), (5, 15))]


def cluster(tmp_path: Path, gpus: int = 64) -> spec.Cluster:
    path = tmp_path / "cluster.yaml"
    path.write_text(SERVERS % gpus)
    return spec.read(path)


def machine(servers: int, gpus: int = 8) -> Machine:
    return Machine(servers, gpus, 450e9, gpus * 50e9, 1.2e-6, HOPPER, sums=True)


def trained(count: int, batches: int, schedule: str = "", virtual: int = 0, **others: object) -> Training:
    told = Training(accumulate=batches, pipeline=count, schedule=schedule, virtual=virtual)
    return stages.completed(replace(told, **others))  # type: ignore[arg-type]


@pytest.mark.parametrize(("schedule", "count", "batches", "virtual"), SHAPES)
def test_a_run_takes_as_long_as_its_closed_form(schedule: str, count: int, batches: int, virtual: int) -> None:
    chunks, order = count * virtual, schedules.orders(schedule, count, batches, virtual)
    ran = schedules.run(order, [1 / virtual] * chunks, [2.5 / virtual] * chunks, lambda stage, other: 0.0)
    assert ran.total_s == pytest.approx(schedules.closed_form_s(schedule, count, batches, 1, 2.5, virtual))
    assert len(ran.end_s) == 2 * batches * chunks


@pytest.mark.parametrize(("schedule", "count", "batches", "virtual"), SHAPES)
def test_no_pass_runs_before_what_it_needs(schedule: str, count: int, batches: int, virtual: int) -> None:
    chunks, order = count * virtual, schedules.orders(schedule, count, batches, virtual)
    ran = schedules.run(order, [1.0 + chunk % 3 for chunk in range(chunks)], [2.0] * chunks, lambda stage, other: 0.25)
    for each, start in ran.start_s.items():
        if each.is_forward:
            before = Pass(True, each.chunk - 1, each.batch) if each.chunk else None
        elif each.chunk == chunks - 1:
            before = Pass(True, each.chunk, each.batch)
        else:
            before = Pass(False, each.chunk + 1, each.batch)
        if before is not None:
            sent = 0.0 if before.chunk == each.chunk else 0.25
            assert start >= ran.end_s[before] + sent - 1e-9
    for own in order:
        for one, following in pairwise(own):
            assert ran.start_s[following] >= ran.end_s[one] - 1e-9


def test_transfers_delay_as_worked_out_by_hand() -> None:
    order = schedules.orders(GPIPE, 2, 2)
    ran = schedules.run(order, [1.0, 1.0], [2.0, 2.0], lambda stage, other: 0.5)
    assert ran.start_s[Pass(True, 1, 0)] == 1.5
    assert ran.start_s[Pass(False, 0, 0)] == 6.0
    assert ran.total_s == 10.0
    # a transfer of 3 s takes longer than a pass of 1 s: the second one waits for the first
    slow = schedules.run(order, [1.0, 1.0], [2.0, 2.0], lambda stage, other: 3.0)
    assert [slow.start_s[Pass(True, 1, batch)] for batch in (0, 1)] == [4.0, 7.0]


def test_a_schedule_says_how_many_micro_batches_are_kept() -> None:
    def kept(schedule: str, batches: int, virtual: int = 1) -> list[float]:
        return [schedules.most_kept(own, lambda chunk: 1.0) for own in schedules.orders(schedule, 4, batches, virtual)]

    assert kept(GPIPE, 16) == [16, 16, 16, 16]
    assert kept(ONE_F_ONE_B, 16) == [4, 3, 2, 1]
    assert kept(ONE_F_ONE_B, 2) == [2, 2, 2, 1]
    assert kept(INTERLEAVED, 16, 2) == [11, 9, 7, 5]  # chunks of half a stage


@pytest.mark.parametrize(("name", "chunks"), [("gpt2", 4), ("llama3-8b", 8), ("llama3-405b", 16), ("llama3-405b", 128)])
def test_stages_have_every_layer_once(name: str, chunks: int) -> None:
    model = model_of(name)
    found = stages.chunks_of(model, trained(chunks, 1))
    assert [layer.name for each in found for layer in each.layers] == [layer.name for layer in model.layers]
    assert sum(each.parameters for each in found) == model.parameters + model.layers[-1].shared
    blocks = [sum(layer.name.endswith("attention") for layer in each.layers) for each in found]
    assert len(set(blocks[1:-1])) == 1
    assert blocks[0] == blocks[-1] == blocks[1] - (name == "llama3-405b")


def test_an_output_with_the_weights_of_the_embeddings_has_a_copy_of_them() -> None:
    assert model_of("gpt2").layers[-1].shared == 50257 * 768
    assert model_of("llama3-8b").layers[-1].shared == 0


def test_stages_are_spread_over_servers_first() -> None:
    assert machine(8).stages_inside(8, 4) == 1
    assert machine(2).stages_inside(2, 8) == 4
    assert machine(1).stages_inside(2, 4) == 4
    assert machine(6).stages_inside(4, 4) == 2
    assert machine(6).stages_inside(8, 4) == 0
    own = machine(6).divided(4, 4)
    assert (own.servers, own.gpus, own.nics_bytes_s) == (3, 1, 50e9)
    assert machine(8).divided(1, 4) == machine(2)
    for servers, group, count in ((8, 8, 4), (2, 2, 8), (6, 4, 4), (3, 1, 3)):
        assert machine(servers).divided(group, count).world * group * count == machine(servers).world
    ways = pipeline.Ways(2, 1.0, 10.0)
    assert [ways.seconds(stage, stage + 1) for stage in range(3)] == [1.0, 10.0, 1.0]
    assert ways.crossings(4) == 1


def test_a_message_takes_its_gpus_part_of_the_nics() -> None:
    assert nccl.send_s(machine(2), 1e9, False) == pytest.approx(1e9 / (50e9 * 0.94), rel=0.01)
    assert nccl.send_s(machine(2), 1e9, True) == pytest.approx(1e9 / (450e9 * 20.6 / 25), rel=0.01)


def test_more_micro_batches_and_chunks_make_the_bubble_smaller(tmp_path: Path) -> None:
    of = cluster(tmp_path)
    net, model = net_of(of), model_of("gpt3")
    bubbles = []
    for batches, schedule, virtual in ((8, "", 0), (32, "", 0), (32, INTERLEAVED, 3)):
        told = trained(8, batches, schedule, virtual, tensor=8, sharding="zero1", recompute="full")
        line = outcomes(of, net, Job(model, 1, told), ())[0].timeline
        assert line.total_s == pytest.approx(max(span.end_s for span in line.spans), rel=1e-6)
        bubbles.append(line.bubble_s / line.total_s)
    assert bubbles == sorted(bubbles, reverse=True)
    assert bubbles[0] == pytest.approx(7 / 15, abs=0.03)
    assert bubbles[1] == pytest.approx(7 / 39, abs=0.03)


def test_gradients_cross_the_network_once_for_each_stage(tmp_path: Path) -> None:
    of = cluster(tmp_path)
    for sharding, passes in (("none", 1), ("zero1", 2)):
        training = trained(4, 8, tensor=2, sharding=sharding, recompute="full")
        line = outcomes(of, net_of(of), Job(model_of("llama3-8b"), 1, training), ())[0].timeline
        sent = sum(span.size_bytes for span in line.spans if span.lane == "all-reduce")
        first = stages.chunks_of(model_of("llama3-8b"), training)[0]
        assert sent == pytest.approx(passes * 4 * first.parameters / 2, rel=1e-6)


@pytest.mark.parametrize(
    ("schedule", "virtual", "sent"),
    [("", 0, 8), (GPIPE, 0, 8), (INTERLEAVED, 2, 2)],  # interleaved: groups of 4 micro-batches
)
def test_zero2_sends_gradients_whenever_a_stage_has_no_room_for_their_sums(
    tmp_path: Path, schedule: str, virtual: int, sent: int
) -> None:
    of, model = cluster(tmp_path), model_of("llama3-8b")
    training = trained(4, 8, schedule, virtual, tensor=2, sharding="zero2", recompute="full")
    line = outcomes(of, net_of(of), Job(model, 1, training), ())[0].timeline
    chunks = stages.chunks_of(model, training)[::4]
    own = sum(tensor.own_parameters(layer, 2, 1) for each in chunks for layer in each.layers)
    bytes_of = {
        collective: sum(span.size_bytes for span in line.spans if span.name.startswith(collective))
        for collective in ("reduce-scatter", "all-gather")
    }
    assert bytes_of == {"reduce-scatter": sent * 4 * own, "all-gather": 4 * own}
    lanes = {span.name.rsplit(" after ")[-1] for span in line.spans if span.name.startswith("reduce-scatter")}
    assert lanes == {f"micro-batch {number}" for number in range(8 // sent, 9, 8 // sent)}


def test_zero2_takes_as_long_as_worked_out_by_hand() -> None:
    """Two stages, two micro-batches, forward 1 s and backward 2 s, so passes end at 9 s. The first stage's backward
    passes end at 6 and 9 s. Its four workers update for 0.125 s, and gather weights."""
    chunks = [Model("half", (Layer(name, 1000, 10.0),)) for name in ("a", "b")]
    device = Device(10.0, 24_000.0, 1.0)

    def total(sharding: str, reduce_s: float) -> float:
        seconds = {REDUCE_SCATTER: reduce_s, ALL_GATHER: 0.5}

        def of(collective: str, size: float) -> float:
            assert size == 4000
            return seconds[collective]

        told = trained(2, 2, sharding=sharding)
        return pipeline.line(chunks, 1, device, 1, told, 4, of, of, pipeline.NO_WAY, 0.0).total_s

    assert total("zero2", 0.5) == pytest.approx(9 + 0.5 + 0.125 + 0.5)  # the first one runs beside computation
    assert total("zero1", 4.0) == pytest.approx(9 + 4 + 0.125 + 0.5)
    assert total("zero2", 4.0) == pytest.approx(6 + 2 * 4 + 0.125 + 0.5)  # the second one waits for the first


def test_zero2_keeps_whole_gradients_of_two_layers_or_chunks() -> None:
    model, workers = model_of("gpt3"), 16
    for schedule, virtual in ((ONE_F_ONE_B, 1), (INTERLEAVED, 3)):
        training = trained(4, 8, schedule, virtual, tensor=8, sharding="zero2")
        chunks = stages.chunks_of(model, training)[1::4]
        layers = [[tensor.own_parameters(layer, 8, 1) for layer in each.layers] for each in chunks]
        whole = 2 * max(layers[0]) if virtual == 1 else sum(layers[0]) + sum(layers[1])
        state = stages.memory(model, 1, training, workers)[1][0]
        assert state == pytest.approx((2 + 16 / workers) * sum(map(sum, layers)) + 4 * whole)


def test_a_stage_that_fits_with_sharded_gradients_alone_is_told_so(tmp_path: Path) -> None:
    of = cluster(tmp_path, 8192)
    net, model = net_of(of), model_of("llama3-405b")
    assert net.machine is not None
    training = trained(16, 32, INTERLEAVED, 8, tensor=8, sharding="zero1")
    with pytest.raises(UsageError, match=r"takes 94.83 GB, .* a GPU has 85.9 GB; --sharding zero2 fits"):
        stages.check_memory(model, 1, training, net.machine, of.device)
    stages.check_memory(model, 1, replace(training, sharding="zero2"), net.machine, of.device)


def test_one_worker_of_each_stage_exchanges_no_gradients(tmp_path: Path) -> None:
    told = answer(cluster(tmp_path, 8), model_of("gpt2"), 1, training=trained(4, 8, tensor=2))
    assert told.groups == 1
    assert told.best.timeline.reduce_s == 0
    assert told.best.timeline.bubble_s > 0


def test_stages_in_a_server_pass_on_over_nvlink_and_others_over_the_nics() -> None:
    training = trained(4, 32, tensor=2)
    inside, between = (pipeline.ways_of(machine(servers), 1e9, training) for servers in (1, 4))
    assert inside.seconds(0, 1) == pytest.approx(nccl.send_s(machine(1), 1e9 / 2, True))
    assert between.seconds(0, 1) == pytest.approx(nccl.send_s(machine(4), 1e9 / 2, False))
    assert between.seconds(0, 1) > 4 * inside.seconds(0, 1)


def test_memory_counts_the_micro_batches_that_a_stage_keeps() -> None:
    model, group = model_of("llama3-70b"), 8
    needed = {
        schedule: stages.memory(model, 1, trained(4, 16, schedule, tensor=group, recompute="none"), 8)
        for schedule in (GPIPE, ONE_F_ONE_B)
    }
    chunk = stages.chunks_of(model, trained(4, 16))[0]
    once = tensor.stored_bytes(chunk, 1, group, "none")
    assert needed[GPIPE][0][1] == pytest.approx(16 * once)
    assert needed[ONE_F_ONE_B][0][1] == pytest.approx(4 * once)
    assert needed[ONE_F_ONE_B][0][0] == pytest.approx(18 * chunk.parameters / group, rel=1e-6)
    assert needed[ONE_F_ONE_B][0][1] > needed[ONE_F_ONE_B][3][1], "the first stage keeps most"


WRONG = {
    "stages": (
        trained(5, 8),
        "5 stages cannot share the 32 blocks of llama3-8b evenly; --pipeline 2, 4",
    ),
    "chunks": (trained(4, 8, INTERLEAVED, 3), "12 chunks cannot share the 32 blocks"),
    "no stages": (
        trained(4, 8, INTERLEAVED, 3),
        "12 chunks cannot share the 32 blocks of llama3-8b evenly; --virtual-stages 2, 4, 8 can be",
    ),
    "servers": (trained(16, 8, tensor=8), "the 8 servers with 8 GPUs of cluster cannot be divided evenly"),
    "micro-batches": (trained(4, 6, INTERLEAVED), "needs a multiple of the 4 stages as --accumulate, not 6; 4 or 8"),
    "schedule": (trained(4, 8, "2f2b"), "--schedule takes gpipe, 1f1b, interleaved, not 2f2b"),
    "virtual": (trained(4, 8, GPIPE, 2), "--virtual-stages 2 with --schedule gpipe"),
    "no pipeline": (Training(schedule=GPIPE), "need a pipeline; add --pipeline"),
    "sharding": (
        trained(4, 8, sharding="zero3"),
        "each micro-batch of a pipeline would exchange all gradients, and gather all weights twice; .* or zero2",
    ),
    "algorithm": (trained(4, 8), "ring is not planned with pipeline parallelism; take nccl"),
    "model": (trained(4, 8), "resnet50 has no equal blocks; take a model of text"),
    "heads": (trained(4, 8, tensor=8), "the 25 heads of gpt2-xl cannot be divided evenly by it; 1 can"),
    "memory": (
        trained(8, 8, tensor=4),
        r"stage 1 of 8 of gpt3 takes [\d.]+ GB, .* a GPU has 85.9 GB; .* fits",
    ),
}
MODELS = {"model": "resnet50", "heads": "gpt2-xl", "memory": "gpt3"}


@pytest.mark.parametrize("what", WRONG)
def test_a_pipeline_that_cannot_be_is_an_error_that_says_what_can(tmp_path: Path, what: str) -> None:
    training, sentence = WRONG[what]
    wanted = ["ring"] if what == "algorithm" else []
    with pytest.raises(UsageError, match=sentence):
        answer(cluster(tmp_path), model_of(MODELS.get(what, "llama3-8b")), 1, wanted, training=training)


def test_what_is_said_to_fit_fits(tmp_path: Path) -> None:
    of = cluster(tmp_path, 128)
    net, model = net_of(of), model_of("llama3-405b")
    assert net.machine is not None
    training = trained(16, 16, tensor=8)
    with pytest.raises(UsageError, match=r"--recompute (\w+) (--sharding \w+ )?fits") as refused:
        stages.check_memory(model, 1, training, net.machine, of.device)
    words = str(refused.value).split("; ")[-1].split()
    told = dict(zip(words[:-1:2], words[1:-1:2], strict=True))
    other = replace(training, recompute=told["--recompute"], sharding=told.get("--sharding", training.sharding))
    stages.check_memory(model, 1, other, net.machine, of.device)


def test_published_rates_of_pipelines_are_met() -> None:
    of = {kind: [row for row in pipelines.rows() if row.kind == kind] for kind in ("fitted", "seen", "blind")}
    assert {kind: len(rows) for kind, rows in of.items()} == {"fitted": 2, "seen": 6, "blind": 3}
    for kind, most in (("fitted", 0.01), ("seen", 0.12), ("blind", 0.18)):
        assert max(abs(row.off) for row in of[kind]) < most


def test_every_published_pipeline_fits_the_memory_of_its_gpus() -> None:
    rows = pipelines.rows()
    room = DEVICES["h100"].memory_bytes / 1e9
    assert all(row.gigabytes < room for row in rows)
    tight = []
    for told in published.read()["pipelines"]:
        whole = pipelines.row_of(told | {"sharding": "zero1" if told["sharding"] == "zero2" else told["sharding"]})
        tight += [whole.name] if whole.gigabytes > room else []
    assert tight == ["Llama 3 405B, 8,192 GPUs", "Llama 3 405B, 16,384 GPUs"], "they shard gradients"


def test_a_block_of_gpt_keeps_what_its_authors_count() -> None:
    """Korthikanti et al., table 2: 34 s b h / t with sequence parallelism, selective recomputation of attention."""
    model, batch, group = model_of("gpt3"), 2, 8
    block = replace(model, layers=model.layers[1:3])
    assert tensor.stored_bytes(block, batch, group, "none") == pytest.approx(34 * 2048 * batch * 12288 / group)


def test_sharded_optimizers_include_the_copy_of_the_weights() -> None:
    model, one = model_of("gpt3"), trained(4, 8, tensor=8)
    chunk = sum(tensor.own_parameters(layer, 8, 1) for layer in stages.chunks_of(model, one)[1].layers)
    for sharding, each in (("none", 18.0), ("zero1", 6 + 12 / 16)):
        state = stages.memory(model, 1, replace(one, sharding=sharding), 16)[1][0]
        assert state == pytest.approx(each * chunk)
    least = stages.memory(model, 1, replace(one, sharding="zero2"), 16)[1][0]
    assert (2 + 16 / 16) * chunk < least < 1.1 * 6.75 * chunk / 2


@pytest.mark.parametrize(
    ("virtual", "sharding", "sent"),
    [
        (1, "zero1", "after the last micro-batch"),
        (1, "zero2", "after each micro-batch"),
        (2, "zero2", "after groups of 4 micro-batches of a chunk"),
    ],
)
def test_a_plan_says_when_gradients_are_sent(tmp_path: Path, virtual: int, sharding: str, sent: str) -> None:
    training = trained(4, 8, INTERLEAVED if virtual > 1 else "", virtual, tensor=8, sharding=sharding)
    told = answer(cluster(tmp_path), model_of("llama3-8b"), 1, ["nccl"], training=training)
    said = {each["what"]: each for each in assumption_entries(told)}["gradients of a stage"]
    assert (said["taken"], said["from"]) == (f"reduce-scattered {sent}", f"--sharding {sharding}")


def test_the_command_plans_a_pipeline(tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(SERVERS % 64)
    command = [sys.executable, "-m", "netfold.cli", "plan", "cluster.yaml", "--model", "llama3-8b", "--batch", "1"]
    command += ["--pipeline", "4", "--accumulate", "8", "--schedule", "interleaved", "--tensor-parallel", "2"]
    command += ["--recompute", "full", "--json", "--page", "plan.html", "--trace", "step.json"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True)
    told = json.loads(run.stdout)
    best = next(each for each in told["results"] if each["kind"] == "algorithm")
    assert 0 < best["bubble_s"] < best["time_s_median"]
    assert told["parameters"]["virtual"] == 2
    said = {each["what"]: each["taken"] for each in told["parameters"]["assumptions"]}
    assert "interleaved, 2 chunks a stage" in said["pipeline"]
    assert "3 of 3 boundaries" in said["between stages"]
    assert said["gradients of a stage"] == "all-reduced after the last micro-batch"
    events = json.loads((tmp_path / "step.json").read_text())["traceEvents"]
    assert sum(each.get("cat") == "forward" for each in events) == 16
