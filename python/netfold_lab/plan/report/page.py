"""A self-contained HTML page of sections: text, tables, charts (with plotly's code inside the page), drawings (SVG)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CLEAR, INK, RULE = "rgba(0,0,0,0)", "#7b8694", "rgba(128,128,128,0.25)"  # legible on light and on dark pages
COLOURS = ("#0b6bcb", "#c2570c", "#4d7c0f", "#8f3fbf", "#b8860b", "#0f8b8d", "#d64545", "#5b6675", "#00a36c", "#e377c2")


@dataclass(frozen=True)
class Table:
    """A table: heads, and rows of cells as text."""

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Section:
    """A heading with, in this order, paragraphs, charts (plotly figures), drawings and tables."""

    title: str
    text: Sequence[str] = ()
    charts: Sequence[Any] = ()
    drawings: Sequence[str] = ()
    tables: Sequence[Table] = ()


@dataclass(frozen=True)
class Page:
    """A title, a sentence, the most important numbers, and sections in tabs."""

    title: str
    summary: Sequence[str]
    facts: Sequence[tuple[str, str]] = ()
    sections: Sequence[Section] = field(default_factory=list)


def write_page(path: Path, page: Page) -> None:
    """Write the page. Raises OSError if it cannot be written."""
    import jinja2
    from plotly.offline import get_plotlyjs

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("netfold_lab.plan.report", "."), autoescape=True, undefined=jinja2.StrictUndefined
    )
    sections = [
        {"section": section, "charts": [_chart(chart) for chart in section.charts]} for section in page.sections
    ]
    has_charts = any(one["charts"] for one in sections)
    text = environment.get_template("page.html.j2").render(
        page=page, sections=sections, plotly=get_plotlyjs() if has_charts else ""
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _chart(figure: Any) -> str:
    figure.update_layout(
        template="plotly_white",
        margin={"l": 60, "r": 20, "t": 40, "b": 50},
        colorway=list(COLOURS),
        font={"family": "system-ui, sans-serif", "size": 13, "color": INK},
        paper_bgcolor=CLEAR,
        plot_bgcolor=CLEAR,
        legend={"orientation": "h", "y": -0.2},
    )
    figure.update_xaxes(gridcolor=RULE, zerolinecolor=RULE)
    figure.update_yaxes(gridcolor=RULE, zerolinecolor=RULE)
    return figure.to_html(full_html=False, include_plotlyjs=False, config={"displaylogo": False, "responsive": True})
