"""The papers' figures: the required agreement, and their pages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from netfold_lab.plan.papers import allreduce_switch, eflops_latency, eflops_server, pages, smart_nic
from netfold_lab.plan.papers.figure import PREDICTED, Figure
from netfold_lab.plan.step import ranges

ASKED = {  # figure: how far off a row may be
    "eflops 2": (eflops_server.figure_2, 0.15),
    "eflops 3": (eflops_server.figure_3, 0.15),
    "eflops 4": (eflops_server.figure_4, 0.15),
    "eflops 12": (eflops_latency.figure_12, 0.20),
    "smart NIC 4b": (smart_nic.figure_4b, 0.05),
}


@pytest.mark.parametrize("name", ASKED)
def test_published_numbers_come_out_as_asked(name: str) -> None:
    make, allowed = ASKED[name]
    figure: Figure = make()
    rows = [row for row in figure.rows if not row.what.endswith("without those three")]
    assert {row.what: row.off for row in rows if abs(row.off) > allowed} == {}
    assert all(holds for _, holds in figure.remarks)


def test_what_a_fit_touched_is_never_called_predicted() -> None:
    """Of each figure: the rows that may be called predicted."""
    predicted = {
        f"{paper.name} {figure.number}": {row.what for row in figure.rows if row.basis == PREDICTED}
        for paper in pages.PAPERS
        for figure in (make() for make in paper.figures)
    }
    assert not any(predicted[name] for name in ("eflops 13", "eflops section VII-D", "smart-nic 4a"))
    assert all(what.endswith("without those three") for what in predicted["eflops 12"])
    assert "two copies behind two switches" not in predicted["eflops 3"]
    assert predicted["smart-nic 4b"] == {"32 nodes, batch 448", "6 nodes, batch 1792"}
    assert len(predicted["allreduce-switch Table VIII"]) == 12


def test_without_the_three_constants_figure_12_does_not_use_them(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = list(eflops_latency.MIDDLE_GBIT_S)
    before = [eflops_latency.gbit_s(*case, is_tuned=False) for case in cases]
    for name in ("SLICE_BYTES", "COPY_BYTES_S", "BUFFERED_BYTES"):
        monkeypatch.setattr(eflops_latency, name, 1)
    eflops_latency.costs.cache_clear()
    assert [eflops_latency.gbit_s(*case, is_tuned=False) for case in cases] == before
    eflops_latency.costs.cache_clear()


def test_every_constant_has_a_source_or_is_called_fitted_or_assumed() -> None:
    found = [each for paper in pages.PAPERS for make in paper.figures for each in make().constants]
    assert len(found) > 30
    for each in found:
        assert re.match(r"(fitted|assumed|section|Table|Figure)", each.source), each


def test_the_plans_range_is_as_wide_as_what_was_held_out() -> None:
    rows = [row for row in eflops_latency.rows() if row.basis == PREDICTED and not row.what.startswith("halving")]
    assert max(abs(row.off) for row in rows) == pytest.approx(ranges.HELD_OUT, abs=0.005)


def test_table_viii_counts_mebibytes_at_the_links_rate() -> None:
    row = next(row for row in allreduce_switch.table_viii().rows if row.what == "VGG-19: switch")
    assert row.ours == pytest.approx(1e3 * 143.67e6 * 32 / 10e9, rel=0.001)  # its parameters, in fp32


def test_a_ring_by_one_card_crosses_it_twice_and_a_server_of_four_does_not_share() -> None:
    graph = eflops_server.server(1)
    cards = [at for at, node in enumerate(graph.nodes) if node.role == "NIC"]
    flows = [eflops_server.through_cards(1, one, (one + 1) % 8) for one in (1, 3)]
    uplink = {
        link.resource for link in graph.links if link.source == cards[0] and graph.nodes[link.target].role == "switch"
    }
    assert all(uplink & set(flow) for flow in flows)
    assert eflops_server.ring_bit_s(4, "nic") == eflops_server.STREAM_BIT_S


def test_the_pages_in_the_repository_are_what_the_command_writes(tmp_path: Path) -> None:
    kept = Path(__file__).parents[2] / "docs" / "reference" / "papers"
    for page in pages.write_pages(tmp_path):
        assert page.read_text() == (kept / page.name).read_text(), f"run `{pages.COMMAND}`"
    assert {each.name for each in tmp_path.glob("*.png")} == {each.name for each in kept.glob("*.png")}
