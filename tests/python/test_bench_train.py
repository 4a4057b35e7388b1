"""Training profiles: the parts of a step, the CPU time by role, the proportion of the links, and small real runs."""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from forbidden_calls import can_forbid
from netfold_lab.bench import bounds
from netfold_lab.bench.control import MeasurementError
from netfold_lab.bench.sites import LocalSite
from netfold_lab.bench.train import pictures, placement, rate_search, rates, tables, threads
from netfold_lab.bench.train.buckets import Buckets
from netfold_lab.bench.train.loader import Loader
from netfold_lab.bench.train.models import make_task
from netfold_lab.bench.train.profile import ProfileSettings, Series, Step
from netfold_lab.bench.train.profiles import PRESETS, Profile, make_profile
from netfold_lab.bench.train.resnet import resnet50
from netfold_lab.bench.train.step_timer import (
    BACKWARD,
    EXPOSED,
    FORWARD,
    PARTS,
    SKEW,
    StepTimer,
    part_skew_from_exposed,
)
from netfold_lab.bench.train.variants import COMPUTE_ALONE, algorithms_of, variants_of
from netfold_lab.bench.train.workers import Workers, setup_of
from netfold_lab.errors import UsageError
from repository import ROOT
from torch_ranks import run_ranks

TIMEOUT_S = 240
BASELINE = "overlapped"


def bench(tmp_path: Path, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """`netfold bench ...` as a user runs it, with labs in a folder of its own."""
    environment = {**os.environ, "NETFOLD_RUNTIME_DIR": str(tmp_path), "PYTHONPATH": str(ROOT / "python")}
    command = [sys.executable, "-m", "netfold.cli", "bench", *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0 or not check, done.stderr
    return done


def test_the_step_timer_leaves_no_gap() -> None:
    began = time.perf_counter()
    timer = StepTimer()
    for part in (FORWARD, BACKWARD, EXPOSED, FORWARD):
        time.sleep(0.002)
        timer.end(part)
    elapsed = time.perf_counter() - began
    assert sum(timer.seconds.values()) <= elapsed
    assert timer.seconds[FORWARD] >= 0.004
    assert tuple(timer.seconds) == PARTS


def test_waiting_for_slower_workers_is_not_communication() -> None:
    seconds = dict.fromkeys(PARTS, 0.0) | {BACKWARD: 2.0, EXPOSED: 1.0}
    parted = part_skew_from_exposed(seconds, computed=10.0, all_computed=10.25)
    assert (parted[SKEW], parted[EXPOSED]) == (0.25, 0.75)
    assert sum(parted.values()) == sum(seconds.values())
    assert part_skew_from_exposed(seconds, computed=10.0, all_computed=10.0) == seconds
    assert part_skew_from_exposed(seconds, computed=10.0, all_computed=14.0)[EXPOSED] == 0.0


def test_the_papers_proportion_follows_from_its_percentages() -> None:
    # 40 Gbit/s and 20 layers of 2048 x 2048 in fp32: the computation that fits has to be one that 28 cores can do.
    proportion = rates.paper_proportion()
    assert proportion == pytest.approx(0.64, abs=0.005)
    once_s = 20 * 2048**2 * 32 / 40e9
    operations = 6 * 20 * 2048**2 * 448
    assert 1.5e12 < operations / (once_s / proportion) < 4.3e12
    assert rates.proportion_for("mlp", 1792) == pytest.approx(proportion / 4)


@pytest.mark.parametrize("workers", [2, 6])
def test_a_ring_takes_the_wanted_part_of_the_computation(workers: int) -> None:
    rate = rates.rate_mbit_s(20 << 20, workers, compute_s=2.0, proportion=0.5, mtu=1500)
    ring_s = bounds.seconds(bounds.ring_wire_bytes(20 << 20, 1500, workers), rate)
    assert ring_s == pytest.approx(0.5 * rates.ring_share(workers) * 2.0, rel=0.02)


@pytest.mark.parametrize("hides_s", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("first_mbit_s", [50.0, 800.0, 20000.0])
def test_the_rate_that_makes_the_baseline_wait_as_the_papers_is_found(hides_s: float, first_mbit_s: float) -> None:
    wanted = rates.paper_exposed()
    assert wanted == pytest.approx(0.379, abs=0.001)

    def ring_s(rate_mbit_s: float) -> float:
        return rates.ring_s(20 << 20, 6, rate_mbit_s, 1500)

    def baseline(rate_mbit_s: float) -> tuple[float, float]:
        """It computes for a second, and slower while it communicates; it hides `hides_s` and overruns its bound."""
        exposed_s = max(0.0, 1.05 * ring_s(rate_mbit_s) - hides_s)
        return 1.0 + 0.3 * min(hides_s, ring_s(rate_mbit_s)) + exposed_s, exposed_s

    step_s, exposed_s = baseline(rate_search.search(first_mbit_s, wanted, ring_s, baseline))
    assert exposed_s / step_s == pytest.approx(wanted, abs=0.01)


@pytest.mark.parametrize("bucket_bytes", [0, 1 << 10, 1 << 30])
def test_every_gradient_is_in_one_bucket(bucket_bytes: int) -> None:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8))
    buckets = Buckets(model, bucket_bytes, averaged_over=1)
    assert len(buckets.all) == {0: 4, 1 << 10: 2, 1 << 30: 1}[bucket_bytes]
    inputs = torch.randn(5, 16)
    model(inputs).square().mean().backward()
    expected = torch.autograd.grad(model(inputs).square().mean(), list(model.parameters()))
    in_buckets = torch.cat([bucket.gradients for bucket in buckets.all])
    assert torch.equal(in_buckets, torch.cat([gradient.flatten() for gradient in reversed(expected)]))
    assert buckets.size_bytes == 4 * in_buckets.numel()


def test_an_update_not_in_earnest_leaves_the_weights() -> None:
    model = nn.Linear(8, 8)
    buckets = Buckets(model, 0, averaged_over=2)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    for in_earnest in (False, True):
        model(torch.ones(3, 8)).sum().backward()
        for bucket in buckets.all:
            bucket.update(in_earnest)
            assert not bucket.gradients.any()
        same = [torch.equal(now, then) for now, then in zip(model.parameters(), before, strict=True)]
        assert same == [not in_earnest] * 2


def test_resnet50_is_the_published_one() -> None:
    model = resnet50(1000)
    assert sum(parameter.numel() for parameter in model.parameters()) == 25_557_032
    assert model(torch.randn(2, 3, 32, 32)).shape == (2, 1000)


@pytest.mark.parametrize("model", ["mlp", "resnet50"])
def test_ranks_have_the_same_weights_and_batches_of_their_own(model: str) -> None:
    first, second = (make_task(make_profile(model, "tiny"), rank) for rank in range(2))
    pairs = zip(first.model.parameters(), second.model.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)
    assert not torch.equal(first.inputs, second.inputs)


def test_the_loader_prepares_the_same_batches_beside_or_between_steps() -> None:
    alone, beside = (Loader(32, 4, 10, seed=3) for _ in range(2))
    try:
        for _ in range(2):
            pictures, labels = alone.prepare()
            prefetched, prefetched_labels = beside.prefetch().result(timeout=30)
            assert pictures.shape == (4, 3, 32, 32)
            assert float(pictures.mean()) == pytest.approx(0, abs=1e-4)
            assert float(pictures.std()) == pytest.approx(1, abs=1e-4)
            assert torch.equal(pictures, prefetched)
            assert torch.equal(labels, prefetched_labels)
    finally:
        alone.close()
        beside.close()


def spin(seconds: float) -> None:
    """Use this CPU time in the calling thread."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def test_cpu_time_is_charged_to_the_thread_that_spent_it() -> None:
    may_end, loader_id = threading.Event(), []

    def work(seconds: float, is_loader: bool) -> None:
        if is_loader:
            loader_id.append(threading.get_native_id())
        spin(seconds)
        spent.release()
        may_end.wait(60)

    spent = threading.Semaphore(0)
    helpers = [threading.Thread(target=work, args=arguments) for arguments in ((0.3, False), (0.2, True))]
    before = threads.by_role()
    for helper in helpers:
        helper.start()
    spin(0.1)
    for _ in helpers:
        assert spent.acquire(timeout=60)
    after = threads.by_role(frozenset(loader_id))
    may_end.set()
    for helper in helpers:
        helper.join(60)
    used = {role: (after[role] - before[role]).user_s + (after[role] - before[role]).system_s for role in after}
    slack_s = 5 * threads.TICK_S
    assert used["communication"] >= 0.3 - slack_s
    assert 0.2 - slack_s <= used["loading"] < 0.3
    assert used["compute"] >= 0.1 - slack_s


def test_what_a_child_spends_is_communication() -> None:
    child = "import time\nwhile time.process_time() < 0.3: pass\nprint('spent', flush=True)\ninput()"
    parent = f"""
import subprocess, sys
from netfold_lab.bench.train import threads
before = threads.by_role()["communication"]
pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE)
with subprocess.Popen([sys.executable, "-c", {child!r}], **pipes) as agent:
    agent.stdout.readline()
    used = threads.by_role()["communication"] - before
    agent.communicate(b"\\n", timeout=60)
print(used.user_s + used.system_s)
"""  # a process of its own: this one has other children, which come and go
    told = subprocess.run([sys.executable, "-c", parent], capture_output=True, text=True, timeout=60, check=True)
    assert float(told.stdout) >= 0.3 - 5 * threads.TICK_S


def step(total: float) -> Step:
    return Step(dict.fromkeys(PARTS, total / len(PARTS)), {}, 0.0)


@pytest.mark.parametrize(("times", "median"), [([3, 1, 2], 2), ([4, 1, 3, 2], 2), ([5], 5)])
def test_the_median_step_is_a_step(times: list[float], median: float) -> None:
    assert Series(COMPUTE_ALONE, [step(time_s) for time_s in times]).median.time_s == pytest.approx(median)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--model", "vgg"), "--model must be one of"),
        (("--preset", "huge"), "--preset must be one of"),
        (("--workers", "1"), "--workers must be from 2"),
        (("--batch", "0"), "--batch must be at least 1"),
        (("--model", "resnet50", "--image", "8"), "--image must be at least"),
        (("--model", "face", "--classes", "1"), "--classes must be at least"),
        (("--variants", "naive,fast"), "--variants takes"),
        (("--algorithm", "hdrm"), "--algorithm takes"),
        (("--rate", "-1"), "--rate-mbit-s"),
        (("--proportion", "nan"), "--proportion"),
        (("--match", "paper"), "--match must be one of"),
        (("--match", "baseline", "--rate", "100"), "--match baseline"),
        (("--match", "baseline", "--variants", "naive"), "--match baseline"),
        (("--repeat", "0"), "--repeat must be at least 1"),
        (("--timeout-s", "0"), "--timeout-s"),
        (("--out", "picture.gif"), "--out must end in"),
        (("--model", "face", "--sweep-cores"), "--sweep-cores"),
        (("--sweep-workers", "1,2"), "--workers must be from 2"),
    ],
)
def test_wrong_usage_is_said_before_anything_is_built(
    words: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    import typer
    from typer.testing import CliRunner

    from netfold_lab.bench import train

    app = typer.Typer()
    app.callback()(lambda: None)
    train.register(app)
    done = CliRunner().invoke(app, ["train", *words])
    assert done.exit_code == 2
    assert says in " ".join(done.output.split())


def test_presets_are_profiles() -> None:
    for model, presets in PRESETS.items():
        for preset in presets:
            assert make_profile(model, preset, workers=3).workers == 3
    assert make_profile("mlp", "paper", width=None).width == 2048


def test_variants_by_name() -> None:
    found = variants_of("overlapped,offloaded-bfp", ["ring", "in-network"])
    assert [one.name for one in found] == [
        "alone",
        "overlapped",
        "offloaded-bfp ring",
        "offloaded-bfp in-network",
    ]
    assert found[2].group is not None
    assert found[2].group.options() == {"algorithm": "ring", "format": "bfp"}
    assert len(variants_of("overlapped", [], prefetching=True)) == 4
    with pytest.raises(UsageError, match="one algorithm"):
        algorithms_of("ring,binomial", 2, several=False)


def test_placements_leave_computation_the_other_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2})
    monkeypatch.setattr(placement, "_knows_engines", lambda: True)
    names = [one.placement for one in placement.variants_of(["in-network"])[0]]
    assert "caller" not in names, "a switch needs answers also while no caller waits"
    found, remarks = placement.variants_of(["ring"])
    by_name = {one.name.removeprefix("offloaded ring "): one for one in found}
    assert set(by_name) == {
        *("alone", "overlapped", "caller", "thread", "agent"),
        *("thread on 0", "thread on 0,1", "thread on 0,1,2"),
    }
    assert remarks == []
    assert by_name["thread on 0"].compute_cores == (1, 2)
    assert by_name["thread on 0,1"].group.options()["cores"] == (0, 1)
    assert by_name["thread on 0,1,2"].compute_cores == (0, 1, 2)
    assert by_name["agent"].group.options()["engine"] == "agent"


def entry(name: str, workers: int, time_s: float, kind: str = "offloaded") -> dict[str, Any]:
    return {
        "name": name,
        "variant": kind,
        "system": "netfold",
        "workers": workers,
        "parts_s": dict.fromkeys(PARTS, time_s / len(PARTS)),
        "time_s_median": time_s,
        "speedup": workers / time_s,
        "backward_increase_s": 0.1 * time_s,
        "compute_cores": [],
        "cpu_s_per_step": {role: {"user_s": 0.1, "system_s": 0.1} for role in ("compute", "loading", "communication")},
        **dict.fromkeys(("engine_cpu_s_per_gb", "added_cpu_s_per_gb", "switch_cpu_s_per_gb", "step_reduction"), 0.2),
    }


@pytest.mark.parametrize("suffix", pictures.SUFFIXES)
def test_pictures_and_tables(tmp_path: Path, suffix: str) -> None:
    found = [entry(name, n, 1.0 + n / 10) for n in (2, 4) for name in ("offloaded ring", "offloaded binomial")]
    for draw in (lambda out: pictures.draw_scaling(found, out), lambda out: pictures.draw_breakdown(found, "all", out)):
        draw(tmp_path / f"picture{suffix}")
        assert (tmp_path / f"picture{suffix}").stat().st_size > 5000
    assert tables.breakdown("all", found).row_count == tables.cpu(found).row_count == 4
    assert placement.best(found).startswith("the best balance here: offloaded ring, computation on cores any: 1.200 s")


def sharded_gradients(rank: int, world: int) -> list[np.ndarray]:
    """A rank's gradients of the face classifier: all-reduced gradients of the extractor, and its own gradients of the
    classes."""
    import torch.distributed as dist

    from netfold_lab.bench.train.large_softmax import ModelParallelFace
    from netfold_lab.bench.train.sharded import Exchange

    torch.set_num_threads(1)
    face = ModelParallelFace(make_profile("face", "tiny", workers=world, classes=11), rank)
    pictures, labels = face._loader.prepare()
    face.loss(pictures, labels, Exchange(dist.group.WORLD, world, StepTimer())).backward()
    for parameter in face.extractor.parameters():
        dist.all_reduce(parameter.grad)
    face.close()
    own = face.classifier.weight
    found = [pictures, labels, own.detach(), own.grad, *(each.grad for each in face.extractor.parameters())]
    return [each.numpy() for each in found]  # torch would share a tensor's memory, which goes with this process


@pytest.mark.usefixtures("no_rank_left")
@pytest.mark.parametrize("backend", ["gloo", "netfold"])
def test_a_sharded_classifier_learns_as_a_whole_one(backend: str) -> None:
    from netfold_lab.bench.train.large_softmax import ModelParallelFace

    environment = {"NETFOLD_ALGORITHM": "ring"} if backend == "netfold" else {}
    outcomes = run_ranks(sharded_gradients, 2, backend=backend, environment=environment, timeout_s=150)
    assert not any(one.error for one in outcomes), outcomes
    ranks = [[torch.from_numpy(each) for each in one.value] for one in outcomes]
    pictures, labels = (torch.cat([rank[i] for rank in ranks]) for i in range(2))
    weights = torch.cat([rank[2] for rank in ranks]).requires_grad_()
    extractor = ModelParallelFace(make_profile("face", "tiny", classes=11), 0).extractor
    # Batch normalization sees one worker's pictures at a time: so does the whole model.
    features = torch.cat([extractor(part) for part in pictures.chunk(2)])
    functional.cross_entropy(features @ weights.T, labels).backward()
    assert torch.allclose(torch.cat([rank[3] for rank in ranks]), weights.grad, rtol=1e-3, atol=1e-6)
    for i, parameter in enumerate(extractor.parameters()):
        for rank in ranks:
            assert torch.allclose(rank[4 + i], parameter.grad, rtol=1e-2, atol=1e-5)


def steps_without_network(rank: int, folder: str) -> int:
    """Training steps in a thread that must not use a socket; returns the number of successful steps.

    This thread cannot say goodbye either. So a rank waits, by files in `folder`, until both have done their steps."""
    import socket

    import torch.distributed as dist

    from forbidden_calls import forbid_network
    from netfold_lab.bench.train.workload import DataParallel

    torch.set_num_threads(1)
    profile = Profile(workers=2, batch=8, layers=3, width=64)
    workload = DataParallel(profile, rank)
    group = dist.group.WORLD
    workload.step(group, overlaps=True, prefetches=False)
    with socket.socketpair()[0] as end:
        forbid_network()
        with pytest.raises(PermissionError):
            end.send(b"now it cannot")
    done = sum(workload.step(group, overlaps=True, prefetches=False).seconds[BACKWARD] > 0 for _ in range(5))
    Path(folder, str(rank)).touch()
    deadline = time.monotonic() + 60
    while len(list(Path(folder).iterdir())) < profile.workers and time.monotonic() < deadline:
        time.sleep(0.01)
    return done


@pytest.mark.skipif(not can_forbid(), reason="the numbers of system calls are those of Linux on x86-64")
@pytest.mark.usefixtures("no_rank_left")
@pytest.mark.parametrize("algorithm", ["ring", "in-network"])
def test_the_thread_that_computes_never_touches_the_network(algorithm: str, tmp_path: Path) -> None:
    environment = {"NETFOLD_ALGORITHM": algorithm}
    outcomes = run_ranks(steps_without_network, str(tmp_path), environment=environment, timeout_s=150)
    assert [one.value for one in outcomes] == [5, 5], outcomes


def check_entries(entries: list[dict[str, Any]], repeat: int) -> None:
    """Checks for every variant of every profile."""
    for one in entries:
        assert len(one["time_s"]) == len(one["parts_s_of_steps"]) == repeat
        assert one["time_s_median"] == pytest.approx(sum(one["parts_s"].values()))
        assert one["time_s_median"] == statistics.median_low(one["time_s"])
        assert all(seconds >= 0 for seconds in one["parts_s"].values())
        assert one["parts_s"]["forward"] > 0
        assert one["parts_s"]["backward"] > 0
        assert set(one["cpu_s_per_step"]) == {"compute", "loading", "communication"}
        assert one["same_bits"], "all workers ended with the same weights"
        assert {"engine_cpu_s_per_gb", "added_cpu_s_per_gb", "switch_cpu_s_per_gb", "speedup"} <= set(one)
        if one["variant"] != "alone":
            assert {"step_reduction", "exposed_reduction", "backward_reduction"} <= set(one)
    by_name = {one["name"]: one for one in entries}
    assert by_name[BASELINE]["step_reduction"] == 0
    assert sum(by_name["alone"]["cpu_s_per_step"]["communication"].values()) < 0.1


@pytest.mark.namespaces
@pytest.mark.usefixtures("nothing_left_behind")
def test_a_profile_of_the_perceptron(tmp_path: Path) -> None:
    picture = tmp_path / "deep" / "bars.svg"
    words = ("train", "--preset", "tiny", "--repeat", "3", "--width", "256", "--out", str(picture), "--json")
    report = json.loads(bench(tmp_path, *words).stdout)
    assert report["command"] == "bench train"
    names = ["alone", "naive", BASELINE, "offloaded ring", "offloaded in-network"]
    names += ["offloaded-bfp ring", "offloaded-bfp in-network"]
    assert [one["name"] for one in report["results"]] == names
    check_entries(report["results"], repeat=3)
    told = report["parameters"]
    assert (told["model"], told["workers"], told["width"], told["size_bytes"]) == ("mlp", 2, 256, 4 * 256 * 256 * 4)
    assert told["rate_chosen_by"] == "proportion"
    expected = rates.rate_mbit_s(told["size_bytes"], 2, told["compute_alone_s"], told["proportion"], 1500)
    assert told["rate_mbit_s"] == expected
    assert picture.read_text().count("exposed communication") >= 1
    naive = report["results"][1]
    ring_s = bounds.seconds(bounds.ring_wire_bytes(told["size_bytes"], 1500, 2), told["rate_mbit_s"])
    burst_s = bounds.seconds(131072, told["rate_mbit_s"])
    assert naive["parts_s"]["exposed"] > ring_s - 2 * burst_s - 0.01, (
        "the gradients crossed the link, and were waited for"
    )


@pytest.mark.namespaces
@pytest.mark.usefixtures("nothing_left_behind")
def test_links_that_make_the_baseline_as_the_papers(tmp_path: Path) -> None:
    words = ("train", "--preset", "tiny", "--match", "baseline", "--variants", BASELINE, "--repeat", "1", "--json")
    report = json.loads(bench(tmp_path, *words).stdout)
    assert [one["name"] for one in report["results"]] == ["alone", BASELINE]
    assert report["parameters"]["rate_chosen_by"] == "baseline"
    assert report["parameters"]["rate_mbit_s"] >= 1


@pytest.mark.namespaces
@pytest.mark.usefixtures("nothing_left_behind")
def test_a_profile_of_the_face_classifier(tmp_path: Path) -> None:
    words = ("train", "--model", "face", "--preset", "tiny", "--repeat", "1", "--rate", "400")
    done = bench(tmp_path, *words, "--variants", "overlapped,offloaded", "--algorithm", "ring", "--json")
    report = json.loads(done.stdout)
    check_entries(report["results"], repeat=1)
    assert (report["parameters"]["rate_mbit_s"], report["parameters"]["rate_chosen_by"]) == (400, "--rate")
    assert [one["prefetches"] for one in report["results"]] == [False, True] * 3
    assert all(one["parts_s"]["loading"] > 0 for one in report["results"])


@pytest.mark.namespaces
@pytest.mark.usefixtures("nothing_left_behind")
def test_training_on_a_bigraph_maps_its_ranks(tmp_path: Path) -> None:
    words = (
        "train",
        "--preset",
        "tiny",
        "--repeat",
        "1",
        "--rate",
        "400",
        "--variants",
        "overlapped,offloaded",
        "--json",
    )
    report = json.loads(
        bench(tmp_path, *words, "--fabric", "bigraph", "--shape", "1x4", "--placement", "shuffled").stdout
    )
    assert [one["name"] for one in report["results"]] == ["alone", BASELINE, "offloaded ring", "offloaded hdrm"]
    check_entries(report["results"], repeat=1)
    told = report["parameters"]
    assert (told["workers"], told["fabric"], told["shape"], told["placement"]) == (4, "bigraph", "1x4", "shuffled")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--fabric", "bigraph"), "--shape"),
        (("--fabric", "bigraph", "--shape", "1x4", "--algorithm", "in-network"), "in-network needs --fabric star"),
        (("--fabric", "bigraph", "--shape", "1x4", "--workers", "6"), "1 sub-nodes x 4 switches are not 6 ranks"),
        (("--fabric", "bigraph", "--shape", "1x4", "--workers", "6", "--algorithm", "ring"), "4 workers, not 6"),
        (("--algorithm", "hdrm"), "not 'hdrm'"),
        (("--placement", "odd"), "--placement must be one of"),
    ],
)
def test_training_refuses_networks_that_do_not_fit(tmp_path: Path, arguments: tuple[str, ...], sentence: str) -> None:
    done = bench(tmp_path, "train", "--preset", "tiny", *arguments, check=False)
    assert done.returncode == 2
    assert sentence in done.stderr


@pytest.mark.namespaces
@pytest.mark.usefixtures("nothing_left_behind")
def test_a_sweep_of_cores_measures_every_placement(tmp_path: Path) -> None:
    words = ("train", "--preset", "tiny", "--sweep-cores", "--repeat", "1", "--rate", "400", "--algorithm", "ring")
    report = json.loads(bench(tmp_path, *words, "--json").stdout)
    placements, remarks = placement.variants_of(["ring"])
    assert [one["name"] for one in report["results"]] == [one.name for one in placements]
    assert report["parameters"]["remarks"][:-1] == remarks
    assert "best balance here: offloaded ring" in report["parameters"]["remarks"][-1]
    check_entries(report["results"], repeat=1)
    cores = sorted(os.sched_getaffinity(0))
    pinned = next(one for one in report["results"] if one["engine_cores"] == cores[:1])
    assert pinned["compute_cores"] == (cores[1:] or cores)


@pytest.mark.usefixtures("nothing_left_behind")
def test_a_worker_that_dies_is_reported() -> None:
    settings = ProfileSettings(
        Profile(workers=2, batch=4, layers=2, width=16), tuple(variants_of(BASELINE, [])), timeout_s=60
    )
    setup = setup_of(settings.profile, settings.variants)
    with LocalSite(2) as site, Workers(site, "netfold_lab.bench.train.worker", setup, 60, with_switch=False) as workers:
        assert len(workers.step(1)) == 2
        os.kill(workers.pids[1], signal.SIGKILL)
        with pytest.raises(
            MeasurementError, match=r"training: (rank 1 (ended|is gone)|a process ended with status -9)"
        ):
            workers.step(1)


@pytest.mark.usefixtures("nothing_left_behind")
def test_a_worker_that_cannot_start_is_an_error_with_its_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NETFOLD_WINDOW", "many")  # a setting of the backend: every worker refuses it
    words = ("train", "--preset", "tiny", "--variants", "offloaded", "--algorithm", "ring", "--timeout-s", "60")
    done = bench(tmp_path, *words, check=False)
    assert done.returncode == 1
    assert "NETFOLD_WINDOW" in done.stderr
