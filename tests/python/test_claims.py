"""The papers' claims about steps, bytes and connections, counted: a snapshot of the claims that hold."""

from __future__ import annotations

import json

import typer
from typer.testing import CliRunner

from netfold.timeline import timeline
from netfold_lab.bench import claims
from repository import ROOT

HOLD = [True, True, True, True, False, True, False, True, True]


def test_which_claims_hold() -> None:
    found = list(claims.counted())
    assert [one.holds for one in found] == HOLD, "docs/measurements/2026-11-21-claims.md says which"
    assert len({one.claim for one in found}) == len(found)
    page = (ROOT / "docs" / "measurements" / "2026-11-21-claims.md").read_text()
    counted = page.partition("## Counted")[2].partition("## Timed")[0]
    assert counted.count("| yes") == sum(HOLD)
    assert counted.count("| no") == len(HOLD) - sum(HOLD)


def test_connections_without_a_link_of_their_own_are_found() -> None:
    assert claims._a_link("hdrm", 4, 8) == (1, 0)
    assert claims._a_link("hdrm", 8, 8) != (1, 0), "more sub-nodes than N/2: links are shared"
    assert claims._a_link("halving-doubling", 4, 8) == (4, 128)


def test_pairs_are_those_of_one_step_or_of_all() -> None:
    line = timeline("recursive-doubling", 4, 8)
    assert claims._pairs(line, 0) == {frozenset((0, 1)), frozenset((2, 3))}
    assert len(claims._pairs(line)) == 4


def test_the_command_reports_as_all_do() -> None:
    app = typer.Typer()
    app.callback()(lambda: None)
    claims.register(app)
    report = json.loads(CliRunner().invoke(app, ["claims", "--json"]).stdout)
    assert set(report) == {"command", "version", "machine", "parameters", "results"}
    assert [one["holds"] for one in report["results"]] == HOLD
    assert "HDRM" in CliRunner().invoke(app, ["claims"]).stdout
