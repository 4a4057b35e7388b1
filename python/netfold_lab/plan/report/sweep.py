"""Reports of a sweep: the best designs by time and by price, a picture of the Pareto front, a page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from netfold_lab.plan.report import charts
from netfold_lab.plan.report.cluster import milliseconds
from netfold_lab.plan.report.page import Page, Section, Table, write_page
from netfold_lab.plan.sweep.results import front, per_price, per_second, possible

HEADS = ("design", "algorithm", "step, ms", "exposed, ms", "samples/s", "price", "those for 1000")
SHOWN, SHOWN_HERE = 20, 5  # rows on the page, on a terminal


def name_of(result: dict[str, Any]) -> str:
    """The values that distinguish a design. Its prices follow from the other values."""
    told = [_named(key, value) for key, value in result["varied"].items() if not key.startswith("prices.")]
    return ", ".join(told)


WORDS = {
    "rate_gbit_s": "{} Gbit/s",
    "uplink_gbit_s": "uplinks of {} Gbit/s",
    "nics": "{} NICs a server",
    "gpus": "{} GPUs a server",
    "ports": "{} ports",
    "format": "{}",
}


def _named(key: str, value: Any) -> str:
    last = key.rpartition(".")[2]
    if isinstance(value, dict):
        words = [str(each) for each in value.values() if isinstance(each, str)]
        numbers = [f"{each:g}" for each in value.values() if isinstance(each, int | float)]
        told = " ".join([*words, "x".join(numbers)]).strip()
        return told if last == "fabric" else f"{last} {told}"
    if value is None:
        return f"no {last.replace('_', ' ')}"
    return WORDS[last].format(value) if last in WORDS else f"{last.replace('_', ' ')} {value}"


def row(result: dict[str, Any]) -> list[str]:
    """The row of a design."""
    price = result["price"]
    return [
        name_of(result),
        result["algorithm"] if result["format"] == "fp32" else f"{result['algorithm']}, {result['format']}",
        milliseconds(result["time_s_median"]),
        milliseconds(result["exposed_s"]),
        f"{result['samples_s']:,.0f}",
        f"{price:,.0f} {result['currency']}" if price else "",
        f"{1000 * result['samples_s'] / price:.2f}" if price else "",
    ]


def tables(results: Sequence[dict[str, Any]]) -> list[tuple[str, list[list[str]]]]:
    """Titles and rows."""
    found = [("Fastest", [row(one) for one in per_second(results)[:SHOWN]])]
    if priced := per_price(results):
        found.append(("Most samples per second per price", [row(one) for one in priced[:SHOWN]]))
        found.append(("Pareto front: no other design is both cheaper and faster", [row(one) for one in front(results)]))
    if wrong := [one for one in results if "error" in one]:
        rows = [[name_of(one), one["error"], "", "", "", "", ""] for one in wrong[:SHOWN]]
        found.append((f"{len(wrong)} impossible designs", rows))
    return found


def draw(path: Path, results: Sequence[dict[str, Any]]) -> None:
    """Price against samples per second, with the front as a line. Without prices, step against exposed part."""
    named = _points(results)
    x, y = _axes(results)
    charts.draw_points({name: points for name, (points, _) in named.items()}, x, y, path, _FRONT)


_FRONT = "Pareto front"


def _axes(results: Sequence[dict[str, Any]]) -> tuple[str, str]:
    edge = front(results)
    return (f"price, {edge[0]['currency']}", "samples a second") if edge else ("step, ms", "exposed, ms")


def _points(results: Sequence[dict[str, Any]]) -> dict[str, tuple[list[tuple[float, float]], list[str]]]:
    edge = front(results)
    found: dict[str, tuple[list[tuple[float, float]], list[str]]] = {}
    for one in possible(results):
        at = (one["price"], one["samples_s"]) if edge else (1e3 * one["time_s_median"], 1e3 * one["exposed_s"])
        if at[0] is None:
            continue
        points, names = found.setdefault(one["algorithm"], ([], []))
        points.append(at)
        names.append(name_of(one))
    if edge:
        found[_FRONT] = [(one["price"], one["samples_s"]) for one in edge], [name_of(one) for one in edge]
    return found


def write(path: Path, results: Sequence[dict[str, Any]], title: str) -> None:
    """The page."""
    import plotly.graph_objects as go

    figure = go.Figure()
    for name, (points, names) in _points(results).items():
        xs, ys = zip(*points, strict=True)
        mode = "lines" if name == _FRONT else "markers"
        steps = {"shape": "hv"} if name == _FRONT else None  # a price between two designs buys the cheaper one
        figure.add_trace(
            go.Scatter(x=xs, y=ys, name=name, mode=mode, line=steps, hovertext=names, hoverinfo="text+x+y")
        )
    x, y = _axes(results)
    figure.update_layout(xaxis_title=x, yaxis_title=y, height=560)
    sections = [
        Section("Designs", ["Each point is a design; hover for its values."], [figure] if possible(results) else [])
    ]
    sections += [Section(name, tables=[Table(HEADS, rows)]) for name, rows in tables(results)]
    best = per_second(results)[:1]
    facts = [("designs", f"{len(results):,}"), *(("fastest", name_of(one)) for one in best)]
    facts += [("most samples per second per price", name_of(one)) for one in per_price(results)[:1]]
    write_page(
        path, Page(title, ["Every combination of the values in the file, with its fastest algorithm."], facts, sections)
    )


def show(console: Any, results: Sequence[dict[str, Any]]) -> None:
    """Print the tables on a terminal."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table as Shown

    for title, rows in tables(results):
        shown = Shown(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
        for head in ("", *HEADS[1:]):  # the names of designs are too long for a column
            words = head.replace(" ", "\n")
            shown.add_column(words, justify="left" if head == "algorithm" else "right", no_wrap=True)
        for i, (_, *told) in enumerate(rows[:SHOWN_HERE], 1):
            shown.add_row(str(i), *told)
        console.print(shown)
        for i, (design, *_) in enumerate(rows[:SHOWN_HERE], 1):
            console.print(f"{i}: {design}", highlight=False)
