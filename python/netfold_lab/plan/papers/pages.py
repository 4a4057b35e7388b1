"""The pages docs/reference/papers/: every figure and table that a model can produce, beside the published values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from netfold_lab.plan.library import page as library_page
from netfold_lab.plan.papers import (
    allreduce_switch,
    dpdk_switch,
    eflops_latency,
    eflops_server,
    eflops_system,
    smart_nic,
)
from netfold_lab.plan.papers.figure import Figure, Row
from netfold_lab.plan.report import charts
from netfold_lab.plan.truth import memory_rates, pipelines, trainings

DASHED = ("ideal", "2 (n - 1) / n")
COMMAND = "netfold plan papers"


@dataclass(frozen=True)
class Paper:
    """`name` is the page's file name. `left_out`: figures that no model here produces, and the reasons."""

    name: str
    title: str
    figures: tuple[Callable[[], Figure], ...]
    left_out: str


PAPERS = (
    Paper(
        "eflops",
        "EFLOPS: Algorithm and System Co-design",
        (
            eflops_server.figure_2,
            eflops_server.figure_3,
            eflops_server.figure_4,
            eflops_latency.figure_12,
            eflops_system.figure_13,
            eflops_system.figure_15b,
            eflops_system.section_vii_d,
        ),
        "Table II compares with other vendors' systems; Figure 15a is an in-house application of unknown "
        "size. Figure 16 is simulated: `netfold simulate fig16`. The latency of its steps, 7.1 us, is fitted to both "
        "published times of HDRM.",
    ),
    Paper(
        "smart-nic",
        "FPGA-based AI Smart NICs",
        (smart_nic.figure_2, smart_nic.figure_4a, smart_nic.figure_4b),
        "Table I is a synthesis result. The text has no numbers of Figure 2b, only the statements above.",
    ),
    Paper(
        "allreduce-switch",
        "AllReduce-Switch",
        (allreduce_switch.table_ii, allreduce_switch.table_viii, allreduce_switch.figure_18),
        "Figures 16 and 17 are synthesis and simulation of hardware. Figure 19 (images a second) depends on the GPUs' "
        "computation, which the paper does not state.",
    ),
    Paper(
        "dpdk-switch",
        "An In-Network Parameter Aggregation using DPDK",
        (dpdk_switch.section_5_1, dpdk_switch.section_3_2),
        "Table 1's measured rates and Figures 10 and 11 are of its machines.",
    ),
)


def write_pages(folder: Path, papers: Sequence[Paper] = PAPERS) -> list[Path]:
    """Write a page and its pictures for each paper, and the page of NCCL. Raises OSError if they cannot be written."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for paper in papers:
        figures = [make() for make in paper.figures]
        for figure in figures:
            if figure.panels:
                path = folder / f"{paper.name}-{_slug(figure)}.png"
                charts.draw_lines(figure.panels, *figure.axes, path, DASHED, figure.log, figure.marks)
        page = folder / f"{paper.name}.md"
        page.write_text("\n".join(_page(paper, figures)) + "\n", encoding="utf-8")
        written.append(page)
    library = folder / library_page.NAME
    steps = [*trainings.lines(), *pipelines.lines(), *memory_rates.lines()]
    library.write_text("\n".join(library_page.lines(COMMAND, steps)) + "\n", encoding="utf-8")
    return [*written, library]


def _slug(figure: Figure) -> str:
    return figure.number.lower().replace(" ", "-").replace(".", "-")


def _page(paper: Paper, figures: Sequence[Figure]) -> list[str]:
    lines = [
        f"# {paper.title}",
        "",
        f"Written by `{COMMAND}`. The last column says what agreement proves. *Predicted*: nothing was fitted to this "
        "number. *Fitted*: a constant was fitted to it, or to a number that it follows from; agreement proves nothing. "
        "*Computed*: the paper's own formula with the paper's own inputs; agreement proves the arithmetic. *Assumed*: "
        "it follows from numbers without a source.",
        "",
    ]
    for figure in figures:
        lines += [f"## {_heading(figure)}", ""]
        lines += [f"- {each}" for each in figure.assumptions]
        if figure.constants:
            lines += ["", "| constant | value | from |", "|---|---|---|"]
            lines += [f"| {each.name} | {each.value} | {each.source} |" for each in figure.constants]
        lines += ["", "| | published | here | off | |", "|---|---|---|---|---|"]
        lines += [_row(row) for row in figure.rows]
        lines += [""]
        if figure.remarks:
            lines += [f"- {'Holds' if holds else 'Does not hold'}: {what}." for what, holds in figure.remarks]
            lines += [""]
        if figure.panels:
            lines += [f"![{figure.title}]({paper.name}-{_slug(figure)}.png)", ""]
    return [*lines, "## Not here", "", paper.left_out]


def _heading(figure: Figure) -> str:
    number = figure.number if not figure.number[0].isdigit() else f"Figure {figure.number}"
    return f"{number[0].upper()}{number[1:]}: {figure.title}"


def _row(row: Row) -> str:
    unit = f" {row.unit}" if row.unit and row.unit != "x" else row.unit
    return f"| {row.what} | {_number(row.theirs)}{unit} | {_number(row.ours)}{unit} | {row.off:+.1%} | {row.basis} |"


def _number(value: float) -> str:
    if abs(value) >= 10_000:
        return f"{value:,.0f}"
    return f"{value:.4g}"
