"""Training to the end with coarse gradients: small real runs, which give the same numbers every time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import typer
from typer.testing import CliRunner

from netfold_lab.bench import convergence
from netfold_lab.bench.convergence import picture
from netfold_lab.bench.convergence.measure import ConvergenceSettings, train_all
from netfold_lab.bench.convergence.runs import Run, runs_of
from netfold_lab.bench.convergence.tasks import NAMES, make_task
from netfold_lab.errors import UsageError


@pytest.fixture
def app() -> typer.Typer:
    bench = typer.Typer()
    bench.callback()(lambda: None)
    convergence.register(bench)
    return bench


def test_runs_by_mantissa() -> None:
    found = runs_of("7,3")
    assert [run.name for run in found] == ["fp32", "bfp7", "bfp7 with feedback", "bfp3", "bfp3 with feedback"]
    assert found[3].group("ring").options() == {"algorithm": "ring", "format": "bfp", "bfp": (16, 3)}
    for wrong in ("", "8", "1", "7,x"):
        with pytest.raises(UsageError, match="--mantissas"):
            runs_of(wrong)


@pytest.mark.parametrize("name", NAMES)
def test_tasks_are_alike_on_every_rank_and_differ_by_seed(name: str) -> None:
    one, other, another = make_task(name, 1), make_task(name, 1), make_task(name, 2)
    assert torch.equal(one.train_inputs, another.train_inputs)
    weights = [torch.cat([part.flatten() for part in task.model.parameters()]) for task in (one, other, another)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    assert one.model(one.test_inputs).shape == (len(one.test_classes), int(one.train_classes.max()) + 1)


@pytest.mark.usefixtures("nothing_left_behind")
def test_coarse_gradients_learn_as_exact_ones_do(tmp_path: Path) -> None:
    runs = (Run(), Run(7), Run(3), Run(3, feedback=True), Run())
    settings = ConvergenceSettings(runs, workers=2, epochs=8, batch=32, seeds=1)
    heard: list[str] = []
    fp32, bfp7, bfp3, fed_back, again = train_all(settings, heard.append)
    assert len([words for words in heard if not words.startswith("starting")]) == settings.steps()
    assert fp32["accuracy"] > 0.93
    assert abs(bfp7["points_from_fp32"]) <= 1.0
    assert fed_back["accuracy"] > 0.9
    assert all(len(one["accuracy_by_epoch"]) == settings.epochs for one in (fp32, bfp7, bfp3, fed_back))
    assert all(one["same_bits"] for one in (fp32, bfp7, bfp3, fed_back))
    assert bfp7["loss_by_epoch"] != fp32["loss_by_epoch"], "coarse gradients were really used"
    assert fed_back["loss_by_epoch"] != bfp3["loss_by_epoch"], "and so was the feedback"
    assert fed_back["loss_last"] < bfp3["loss_last"] * 1.5
    assert again["loss_by_epoch"] == fp32["loss_by_epoch"], "the same run gives the same bits"
    picture.draw([fp32, bfp7, bfp3, fed_back], "digits", tmp_path / "deep" / "lines.png")
    assert (tmp_path / "deep" / "lines.png").stat().st_size > 1000


@pytest.mark.usefixtures("nothing_left_behind")
def test_the_command_reports_in_json(app: typer.Typer) -> None:
    words = ["convergence", "--task", "mlp", "--workers", "2", "--epochs", "1", "--seeds", "1", "--mantissas", "5"]
    done = CliRunner().invoke(app, [*words, "--batch", "256", "--algorithm", "in-network", "--json"])
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert [one["name"] for one in report["results"]] == ["fp32", "bfp5", "bfp5 with feedback"]
    assert report["parameters"]["algorithm"] == "in-network"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--task", "cats"), "--task must be one of"),
        (("--workers", "1"), "--workers must be from 2"),
        (("--epochs", "0"), "--epochs must be at least 1"),
        (("--algorithm", "ring,binomial"), "one algorithm"),
        (("--algorithm", "hierarchical"), "--algorithm takes"),
        (("--out", "picture.gif"), "--out must end in"),
    ],
)
def test_wrong_usage(app: typer.Typer, words: tuple[str, ...], says: str) -> None:
    done = CliRunner().invoke(app, ["convergence", *words])
    assert done.exit_code == 2
    assert says in " ".join(done.output.split())
