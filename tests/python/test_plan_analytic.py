"""The planner's closed forms: section IV-C of FPGA-based AI Smart NICs, Table II of AllReduce-Switch, model sizes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from netfold_lab.bench.models import MODEL_MIB
from netfold_lab.errors import UsageError
from netfold_lab.plan.analytic import allreduce, iteration, scaling, smart_nic
from netfold_lab.plan.models.zoo import MODELS, mlp, model_of

NETFOLD = [sys.executable, "-c", "from netfold.cli import main; main()", "plan"]
PAPER = {  # system, batch, nodes: over the baseline
    ("smart NIC, bfp", 448, 32): 2.5,
    ("smart NIC", 448, 32): 1.8,
    ("smart NIC", 1792, 32): 1.4,
    ("smart NIC, bfp", 448, 6): 1.6,
    ("smart NIC", 1792, 6): 1.1,
}


@pytest.mark.parametrize(("system", "batch", "nodes"), PAPER)
def test_published_speedups_come_from_one_set_of_constants(system: str, batch: int, nodes: int) -> None:
    found = scaling.points(mlp(20, 2048), batch, [nodes])
    assert scaling.ratio(found, system, nodes) == pytest.approx(PAPER[system, batch, nodes], rel=0.05)


def test_a_step_follows_figure_4a() -> None:
    base, plain, bfp = (point.step for point in scaling.points(mlp(20, 2048), 448, [6]))
    assert plain.total_s / base.total_s == pytest.approx(0.82, rel=0.05)
    assert bfp.total_s / base.total_s == pytest.approx(0.60, rel=0.05)
    assert base.backward_s / plain.backward_s == pytest.approx(1.11, rel=0.06)
    assert bfp.exposed_s < 0.06 * base.exposed_s


def test_the_total_is_the_papers_sum_term_by_term() -> None:
    forward, backward, update, reduce = (
        [1.0, 2.0, 3.0, 4.0],
        [5.0, 6.0, 7.0, 8.0],
        [0.1, 0.2, 0.3, 0.4],
        [9.0, 1.0, 8.0, 20.0],
    )
    total = sum(forward) + 8.0 + max(7.0, 20.0)  # all T_F, T_B of the last, its all-reduce beside T_B of the one before
    total += max(0.4 + 6.0, 8.0) + max(0.3 + 5.0, 1.0)  # l = 3, 2
    total += max(0.2, 9.0) + 0.1
    assert iteration.step(forward, backward, update, reduce).total_s == pytest.approx(total)


def test_a_single_layer_hides_nothing() -> None:
    found = iteration.step([1.0], [2.0], [0.5], [4.0])
    assert (found.total_s, found.exposed_s) == (7.5, 4.0)


def test_terms_of_the_all_reduce() -> None:
    assert smart_nic.padded_bits(10, 4) == 32 * 12
    assert smart_nic.ring_s(320, 4, 100.0, usable=0.5, ratio=4.0) == pytest.approx(320 * 6 / (4 * 0.5 * 100 * 4))
    assert smart_nic.add_s(320, 4, adds_s=5.0) == pytest.approx(10 * 6 / (4 * 5.0))
    assert smart_nic.memory_s(320, 64.0) == 10.0


def test_table_ii() -> None:
    ring, folded, tree = (row(8, 10e9, 1e-6) for row in (allreduce.ring, allreduce.in_network, allreduce.tree))
    assert ring.bandwidth_bit_s == pytest.approx(8 * 10e9 / 14)
    assert ring.delay_s == pytest.approx(14e-6)
    assert (folded.bandwidth_bit_s, folded.critical_bit_s) == (10e9, 80e9)
    assert (tree.delay_s, tree.bandwidth_bit_s) == (pytest.approx(6e-6), 5e9)
    assert ring.seconds(1e12) / folded.seconds(1e12) == pytest.approx(1.75, rel=1e-4)


@pytest.mark.parametrize("nodes", [2, 8])
def test_every_algorithm_agrees_with_the_closed_form_of_the_ring(nodes: int) -> None:
    rates = allreduce.Rates(10e9, 1e-6, 1e15, 1e18)
    size = 1 << 20
    assert allreduce.reduce_s("ring", size, nodes, rates) == pytest.approx(
        allreduce.ring(nodes, 10e9, 1e-6).seconds(32 * size), rel=1e-3
    )
    for name in allreduce.algorithms(nodes):
        assert allreduce.reduce_s(name, size, nodes, rates) >= 32 * size / 10e9


def test_models_have_the_sizes_of_table_viii() -> None:
    for paper, mib in MODEL_MIB.items():
        found = model_of(paper.lower().replace("-5", "5") if paper == "ResNet-50" else paper.lower().replace("-", ""))
        assert found.parameters * 4 / 2**20 == pytest.approx(mib, rel=0.02)
    assert model_of("bert-base").parameters == 109_482_240


def test_models_count_operations_once() -> None:
    assert model_of("resnet50").operations == pytest.approx(8.2e9, rel=0.01)
    assert model_of("vgg16").operations == pytest.approx(30.9e9, rel=0.01)
    assert set(MODELS) >= {"alexnet", "googlenet", "bert-large"}


def test_a_torch_module_is_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a_model.py").write_text(
        "from netfold_lab.bench.train.resnet import resnet50\ndef make():\n    return resnet50(1000)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    found = model_of("a_model:make@3x224x224")
    ours = model_of("resnet50")
    assert found.parameters == ours.parameters
    assert found.operations == pytest.approx(ours.operations, rel=0.01)


@pytest.mark.parametrize("name", ["resnet51", "torch.nn:Nothing@3", "torch.nn:Identity@3x3", "torch.nn:Identity"])
def test_what_is_no_model_is_named(name: str) -> None:
    with pytest.raises(UsageError, match=name.split("@", maxsplit=1)[0]):
        model_of(name)


@pytest.mark.parametrize("text", ["", "3..", "a", "0", "5..3", "1..99999"])
def test_numbers_of_nodes_are_checked(text: str) -> None:
    with pytest.raises(UsageError, match="--nodes"):
        scaling.nodes_of(text)


def test_the_command_writes_page_picture_and_json(tmp_path: Path) -> None:
    page, picture = tmp_path / "plan.html", tmp_path / "fig4b.png"
    words = ["--model", "mlp", "--batch", "448", "--nodes", "6,32", "--page", str(page), "--picture", str(picture)]
    ended = subprocess.run([*NETFOLD, *words, "--json"], capture_output=True, text=True, timeout=60, check=True)
    told = json.loads(ended.stdout)
    assert {one["system"] for one in told["results"]} >= {"baseline", "smart NIC", "in-network, bfp"}
    assert picture.stat().st_size > 10_000
    assert "plotly" in page.read_text()


def test_without_cluster_and_nodes_the_command_says_what_to_do() -> None:
    ended = subprocess.run([*NETFOLD, "--model", "mlp"], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2
    assert "--nodes 3..32" in ended.stderr
