"""The papers' figures: the required agreement, and their pages."""

from __future__ import annotations

from pathlib import Path

import pytest

from netfold_lab.plan.papers import eflops_latency, eflops_server, pages, smart_nic
from netfold_lab.plan.papers.figure import Figure

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
    assert {row.what: row.off for row in figure.rows if abs(row.off) > allowed} == {}
    assert all(holds for _, holds in figure.remarks)


def test_figure_12_is_fitted_to_what_was_allowed_and_no_more() -> None:
    sizes = {(workers, size) for _, workers, size in eflops_latency.FITTED_S}
    assert sizes == {(8, 1 << 10), (64, 1 << 10), (64, 256 << 20)}
    assert not set(eflops_latency.FITTED_S) & set(eflops_latency.PREDICTED_GBIT_S)


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
