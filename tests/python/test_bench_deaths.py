"""Ranks that are killed, and how the others go on (netfold bench deaths)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from netfold_lab.bench.deaths import DeathSettings, entry_of
from netfold_lab.errors import UsageError
from test_bench_train import bench

pytestmark = pytest.mark.timeout(150)


@pytest.mark.parametrize("way", [[], ["--by", "reconfigure", "--replace"]], ids=["shrink", "reconfigure"])
def test_the_others_go_on_with_whole_tensors(tmp_path: Path, way: list[str]) -> None:
    ended = bench(tmp_path, "deaths", "--ranks", "4", "--deaths", "2", "--size-bytes", "4MiB", *way, "--json")
    ours, gloo = json.loads(ended.stdout)["results"]
    for entry in (ours, gloo):
        assert entry["deaths"] == 2
        assert entry["steps"] > 0
        assert 0 < entry["heard_s_median"] < entry["again_s_median"]
        assert entry["joined"] == (2 if way else 0)
    assert (ours["system"], gloo["system"]) == ("netfold", "gloo")
    assert ours["torn_tensors"] == 0
    assert ours["lost_steps_max"] <= 2, "the step that was hit, and one that some ranks had ended"


def test_the_entry_counts_from_the_death_to_the_last_rank() -> None:
    deaths = [
        {"heard_s": 0.1, "again_s": 0.5, "lost": 1, "torn": 3},
        {"heard_s": 0.3, "again_s": 0.4, "lost": 2, "torn": 0},
    ]
    entry = entry_of("gloo", 4, [*deaths, {"joined_s": 0.25}, {"steps": 9}])
    assert (entry["joined"], entry["joined_s_median"], entry["joined_s_max"]) == (1, 0.25, 0.25)
    assert (entry["heard_s_median"], entry["again_s_max"]) == (0.2, 0.5)
    assert (entry["lost_steps_max"], entry["torn_tensors"], entry["steps"]) == (2, 3, 9)


def test_what_makes_no_sense_is_said() -> None:
    with pytest.raises(UsageError, match="--ranks must be at least 7"):
        DeathSettings(ranks=(6,), deaths=5)
    with pytest.raises(UsageError, match="--against knows gloo, not mpi"):
        DeathSettings(against=("mpi",))
    with pytest.raises(UsageError, match="--by knows shrink and reconfigure, not hope"):
        DeathSettings(by="hope")
    with pytest.raises(UsageError, match="--replace needs --by reconfigure"):
        DeathSettings(replace=True)
    with pytest.raises(UsageError, match="--every-s"):
        DeathSettings(every_s=float("nan"))
