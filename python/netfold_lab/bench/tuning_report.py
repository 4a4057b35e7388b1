"""Prints and draws the chooser's table: times, choices as regions of size x ranks, and the model's error."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table as RichTable

from netfold.chooser.accuracy import Accuracy, between_sizes, between_worlds
from netfold.chooser.choices import choice_at, size_text, time_text
from netfold.chooser.model import Model
from netfold.chooser.table import Table

COLOURS = ("#4c72b0", "#dd8452", "#55a868", "#c44e52", "#8172b3", "#937860", "#da8bc3", "#8c8c8c", "#ccb974", "#64b5cd")
PICTURES = (".png", ".svg", ".pdf")
SUBDIVISIONS = 4  # of a doubling of the size, in the picture
SPREAD_MAX = 1.5
BUSY = (
    "Repetitions differ by {:.1f} times at the median point: the machine was busy. Repeat with --again when it is idle."
)
NARROW = 2  # letters for an algorithm of one word in the grid


def colours(table: Table) -> dict[str, str]:
    """A colour for each algorithm, the same in every output."""
    return dict(zip(table.algorithms, itertools.cycle(COLOURS)))


def show(table: Table, path: Path) -> None:
    """The whole report, for a terminal."""
    model = Model(table)
    console = Console()
    for each in (_times(table), _regions(model), _costs(model)):
        console.print(each)
    busy = [BUSY.format(spread(table))] if spread(table) > SPREAD_MAX else []
    for line in (*accuracy_lines(table), *busy, f"Table: {path}, of {table.date}, {_conditions(table)}"):
        console.print(line, highlight=False, soft_wrap=True)


def accuracy_lines(table: Table) -> list[str]:
    """The model's error at held-out points, in sentences."""
    parts = (
        ("a size between measured ones", between_sizes(table)),
        ("a number of ranks between", between_worlds(table)),
    )
    return [f"Held out, {name}: {_sentence(found)}" for name, found in parts if found is not None]


def spread(table: Table) -> float:
    """The slowest repetition over the fastest, at the median point: 1 on an idle machine."""
    return statistics.median(max(point.time_s) / min(point.time_s) for point in table.points) if table.points else 1.0


def _sentence(found: Accuracy) -> str:
    return (
        f"times off by {found.error_median:.0%} at the median and {found.error_90:.0%} at 9 of 10 points "
        f"({found.points} points); its choices cost {found.loss_mean:.1%} more than the best"
    )


def _conditions(table: Table) -> str:
    said = table.conditions
    machine = f"{said.machine.cpu}, {said.machine.cores} cores"
    return f"{machine}, {said.link}, {said.format}, {said.repeat} repetitions, netfold {said.netfold}"


def _times(table: Table) -> RichTable:
    shown = RichTable(title="Median times", caption="bold: the least", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    shown.add_column("ranks", justify="right")
    shown.add_column("size", justify="right", no_wrap=True)
    for name in table.algorithms:
        shown.add_column(_short(name), justify="right", no_wrap=True)
    for world, size in itertools.product(table.worlds, table.sizes):
        points = [table.by_key.get((name, world, size)) for name in table.algorithms]
        least = min((point.time_s_median for point in points if point), default=None)
        if least is not None:
            cells = [
                "" if point is None else _bold(time_text(point.time_s_median), point.time_s_median == least)
                for point in points
            ]
            shown.add_row(str(world), size_text(size), *cells)
    return shown


def _bold(text: str, is_least: bool) -> str:
    return f"[bold]{text}[/bold]" if is_least else text


def _short(name: str) -> str:
    words = name.split("-")
    return name[:NARROW] if len(words) == 1 else "".join(word[0] for word in words)


def _regions(model: Model) -> RichTable:
    colour = colours(model.table)
    legend = ", ".join(f"[{colour[name]}]{_short(name)} {name}[/]" for name in model.table.algorithms)
    shown = RichTable(title="Choices", caption=legend, box=SIMPLE_HEAD, padding=(0, 0))
    shown.add_column("ranks", justify="right")
    for size in model.table.sizes:
        shown.add_column(size_text(size), justify="center")
    for world in model.table.worlds:
        row = [choice_at(model, world, size) for size in model.table.sizes]
        cells = [
            "" if each is None else f"[white on {colour[each.algorithm]}] {_short(each.algorithm):^6} [/]"
            for each in row
        ]
        shown.add_row(str(world), *cells)
    return shown


def _costs(model: Model) -> RichTable:
    shown = RichTable(title="Model: steps x alpha + bytes sent x beta + bytes folded x gamma", box=SIMPLE_HEAD)
    shown.caption = (
        "If a schedule folds a fixed part of its bytes, beta and gamma cannot be separated: one gets all of it."
    )
    for name in ("algorithm", "alpha, us", "1/beta, GB/s", "1/gamma, GB/s"):
        shown.add_column(name, justify="left" if name == "algorithm" else "right")
    for name, costs in sorted(model.costs.items()):
        rates = [f"{1e-9 / cost:.2f}" if cost > 0 else "free" for cost in (costs.beta, costs.gamma)]
        shown.add_row(name, f"{costs.alpha * 1e6:.2f}", *rates)
    return shown


def parameters(table: Table) -> dict[str, Any]:
    """`parameters` of the JSON object: the table's conditions, and the model's error at held-out points."""
    said = table.conditions
    held_out = {"size": between_sizes(table), "workers": between_worlds(table)}
    return {
        "link": said.link,
        "format": said.format,
        "repeat": said.repeat,
        "size_bytes": table.sizes,
        "date": table.date,
        "held_out": {name: None if found is None else asdict(found) for name, found in held_out.items()},
    }


def entries(table: Table) -> list[dict[str, Any]]:
    """`results` of the JSON object: one for each point. It says whether the point is the choice for its size and
    ranks."""
    model = Model(table)
    chosen = {
        (choice.algorithm, world, size)
        for world, size in itertools.product(table.worlds, table.sizes)
        if (choice := choice_at(model, world, size)) is not None
    }
    return [
        {
            "system": "netfold",
            "algorithm": point.algorithm,
            "format": table.conditions.format,
            "workers": point.world,
            "size_bytes": point.size_bytes,
            "time_s": list(point.time_s),
            "time_s_median": point.time_s_median,
            "is_choice": point.key in chosen,
        }
        for point in table.points
    ]


def _edges(centres: Sequence[float], step: float) -> list[float]:
    """The edges of cells with these centres. matplotlib finds them too, but not those of one cell by itself."""
    return [centre - step / 2 for centre in centres] + [centres[-1] + step / 2]


def draw(table: Table, path: Path) -> None:
    """The regions as a picture: sizes from left to right, ranks upwards. Each algorithm has a colour, each measured
    cell a dot.

    Raises OSError if it cannot be written.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    import numpy as np
    from matplotlib import pyplot
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

    model, colour, names = Model(table), colours(table), table.algorithms
    first, last = np.log2(table.sizes[0]), np.log2(table.sizes[-1])
    steps = max(1, round((last - first) * SUBDIVISIONS))
    sizes = np.linspace(first, last, steps + 1)
    worlds = range(table.worlds[0], table.worlds[-1] + 1)
    chosen = [[choice_at(model, world, round(2**size)) for size in sizes] for world in worlds]
    grid = [[np.nan if each is None else names.index(each.algorithm) for each in row] for row in chosen]
    figure, axes = pyplot.subplots(figsize=(8, 1.8 + 0.35 * len(worlds)))
    axes.pcolormesh(
        _edges(sizes.tolist(), 1 / SUBDIVISIONS),
        _edges(worlds, 1),
        grid,
        shading="flat",
        cmap=ListedColormap([colour[name] for name in names]),
        vmin=-0.5,
        vmax=len(names) - 0.5,
    )
    cells = sorted({(point.world, point.size_bytes) for point in table.points})
    axes.plot([np.log2(size) for _, size in cells], [world for world, _ in cells], ".", color="white", markersize=3)
    axes.set_xticks([np.log2(size) for size in table.sizes], [size_text(size) for size in table.sizes], rotation=30)
    axes.set_yticks(list(worlds))
    axes.set_ylabel("ranks")
    axes.set_title(f"The fastest algorithm: {table.conditions.machine.cpu}, {table.conditions.link}", fontsize=10)
    shown = sorted({each.algorithm for row in chosen for each in row if each is not None})
    handles = [Patch(color=colour[name], label=name) for name in shown]
    axes.legend(handles=handles, loc="upper center", bbox_to_anchor=(0.5, -0.25), ncols=4, frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150, bbox_inches="tight")
    pyplot.close(figure)
