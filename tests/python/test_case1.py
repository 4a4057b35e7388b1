"""A host, its workers and the Ethernet switch between them (netfold bench case1), with a hundredth of a model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from netfold_lab.bench import case1
from netfold_lab.errors import UsageError
from test_frame_switch import pytestmark  # noqa: F401  where there is DPDK

PNG = b"\x89PNG"


def test_the_switch_folds_what_is_addressed_to_the_host_and_tells_it(tmp_path: Path) -> None:
    app = typer.Typer()
    case1.register(app)
    plot = tmp_path / "bars.png"
    words = ["--models", "VGG 19", "--scale", "0.01", "--rate-mbit-s", "400", "--repeat", "1", "--json"]
    done = CliRunner().invoke(app, [*words, "--out", str(plot)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    folded, summed = json.loads(done.stdout)["results"]
    assert [folded["system"], summed["system"]] == ["netfold", "host"]
    assert folded["size_bytes"] == summed["size_bytes"] == 802_000
    for entry in (folded, summed):
        assert entry["ranks_with_wrong_bits"] == 0
        assert len(entry["time_s"]) == 1
    gradients = 3 * 802_000
    assert summed["host_received_bytes"] > gradients
    assert summed["host_sent_bytes"] > gradients
    assert folded["host_received_bytes"] < 10_000, "the signal alone"
    assert folded["host_sent_bytes"] < 10_000
    assert plot.read_bytes().startswith(PNG)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"models": ("VGG 11",)}, "VGG 11"),
        ({"scale": 0.0}, "--scale"),
        ({"repeat": 0}, "--repeat"),
        ({"format": "bfp"}, "--format"),
        ({"workers": -1}, "--workers"),
    ],
)
def test_what_makes_no_sense_is_said(options: dict[str, object], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        case1.Case1Settings(**options)
