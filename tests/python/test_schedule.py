"""Schedules in Python: the contract of netfold.schedule, and the command that prints, draws and exports them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import netfold
from netfold import _core
from netfold.timeline import SWITCH, timeline

NETFOLD = [sys.executable, "-c", "from netfold.cli import main; main()", "schedule"]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """`netfold schedule` with these arguments."""
    return subprocess.run([*NETFOLD, *arguments], capture_output=True, text=True, timeout=60, check=False)


def test_a_ring_of_three_step_by_step() -> None:
    assert netfold.schedule("ring", 3, 0, 6) == [
        [("send", 1, 4, 2), ("fold", 2, 2, 2)],
        [("send", 1, 2, 2), ("fold", 2, 0, 2)],
        [("send", 1, 0, 2), ("store", 2, 4, 2)],
        [("send", 1, 4, 2), ("store", 2, 2, 2)],
    ]


def test_rank_mapping_is_the_published_one() -> None:
    assert netfold.rank_mapping(1, 8) == [0, 3, 5, 6, 1, 2, 4, 7]
    assert sorted(netfold.rank_mapping(4, 8)) == list(range(32))


def test_what_cannot_be_served_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="ring"):
        netfold.schedule("butterfly", 2, 0, 1)
    with pytest.raises(ValueError, match="powers of two"):
        netfold.rank_mapping(3, 8)


@pytest.mark.parametrize("algorithm", [name for name, _ in _core.algorithms() if name not in ("hdrm", "dissemination")])
@pytest.mark.parametrize("world", [1, 2, 5, 8])
def test_a_timeline_pairs_every_message(algorithm: str, world: int) -> None:
    line = timeline(algorithm, world, 100, group=2)
    sent = sum(action == "send" for steps in line.steps for step in steps for action, *_ in step)
    received = sum(action != "send" for steps in line.steps for step in steps for action, *_ in step)
    to_switch = sum(m.receiver == SWITCH for m in line.messages)
    assert len(line.messages) == received + to_switch
    assert sent == received
    assert all(m.end == m.start + 1 for m in line.messages)


def test_lengths_are_those_of_the_papers() -> None:
    assert timeline("ring", 8, 800).length == 2 * 7
    assert timeline("halving-doubling", 8, 800).length == 2 * 3
    assert timeline("recursive-doubling", 8, 800).length == 3
    assert timeline("in-network", 8, 800).length == 2


def test_the_command_prints_and_lists() -> None:
    shown = run("ring", "--workers", "3", "--count", "6")
    assert shown.returncode == 0, shown.stderr
    assert "send to 1: 4 + 2" in shown.stdout
    assert "double-binary-tree" in run("list").stdout


def test_json_has_the_shape_of_every_report() -> None:
    report = json.loads(run("ring", "--workers", "2", "--count", "4", "--json").stdout)
    assert set(report) == {"command", "version", "machine", "parameters", "results"}
    for rank, one in enumerate(report["results"]):
        steps = [list(map(list, step)) for step in netfold.schedule("ring", 2, rank, 4)]
        assert one == {"algorithm": "ring", "rank": rank, "steps": steps}
    report = json.loads(run("list", "--json").stdout)
    assert set(report) == {"command", "version", "machine", "parameters", "results"}
    assert [(one["algorithm"], one["description"]) for one in report["results"]] == _core.algorithms()


def test_the_command_draws_and_exports(tmp_path: Path) -> None:
    picture, goal = tmp_path / "hd.png", tmp_path / "hd.goal"
    done = run("in-network", "--workers", "3", "--count", "10", "--picture", str(picture), "--goal", str(goal))
    assert done.returncode == 0, done.stderr
    assert picture.read_bytes().startswith(b"\x89PNG")
    text = goal.read_text()
    assert text.startswith("num_ranks 4\n")
    assert text.count("{") == text.count("}") == 4
    sends = re.findall(r"send (\d+)b", text)
    receives = re.findall(r"recv (\d+)b", text)
    assert sorted(sends) == sorted(receives) == ["40"] * 6


def test_bad_wishes_are_wrong_usage(tmp_path: Path) -> None:
    pictures = (["ring", "--picture", str(tmp_path / name)] for name in ("ring", "ring.gif"))
    for arguments in (["butterfly"], ["hdrm", "--workers", "6"], ["ring", "--collective", "scan"], *pictures):
        refused = run(*arguments)
        assert refused.returncode == 2
        assert refused.stderr.strip()
    assert list(tmp_path.iterdir()) == []
    file = tmp_path / "file"
    file.touch()
    nowhere = run("ring", "--goal", str(file / "all.goal"))
    assert nowhere.returncode == 2
    assert "cannot be written" in nowhere.stderr
