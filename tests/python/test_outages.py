"""A training whose switch goes and comes back (netfold bench outages)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from netfold_lab.bench import outages
from test_bench_train import bench


def test_what_an_outage_costs() -> None:
    ends = [0.0, 1.0, 2.0, 5.0, 7.0, 8.0, 9.5]
    hit, whole = outages.lost_in_steps(ends, [2.5, 8.2], usual_s=1.0)
    assert hit == [2.0, 0.5]
    assert whole == [3.0, 0.5]  # the first also made the next step 1 s longer


@pytest.mark.usefixtures("nothing_left_behind")
def test_the_training_goes_on_with_the_same_bits(tmp_path: Path) -> None:
    words = ("outages", "--workers", "2", "--outages", "1", "--down-s", "0.5", "--size-bytes", "2MiB")
    plot = tmp_path / "steps.png"
    done = bench(tmp_path, *words, "--rate-mbit-s", "0", "--switch-rate-mbit-s", "0", "--out", str(plot), "--json")
    (entry,) = json.loads(done.stdout)["results"]
    assert entry["outages"] == 1
    assert entry["steps"] > 20
    assert entry["same_parameters"] is True
    assert plot.stat().st_size > 1000


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--how", "explode"), "--how must be kill or hang"),
        (("--down-s", "0"), "--down-s must be a positive number"),
        (("--workers", "1"), "--workers must be at least 2"),
        (("--size-bytes", "1MiB,2MiB"), "--size-bytes takes one size"),
        (("--out", "steps.txt"), "--out must end in .png or .svg"),
    ],
)
def test_settings_that_make_no_sense(words: tuple[str, ...], says: str) -> None:
    app = typer.Typer()
    outages.register(app)
    done = CliRunner().invoke(app, list(words))
    assert done.exit_code != 0
    assert says in " ".join(done.output.split())
