"""Line and bar charts, for a page (plotly) or a file (matplotlib), from the same numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from netfold_lab.errors import UsageError
from netfold_lab.plan.report.page import COLOURS

FORMATS = (".png", ".svg", ".pdf")
Line = Sequence[tuple[float, float]]
SIZE_INCHES = (7, 4.5)


def check_picture(path: Path | None) -> None:
    """Raises UsageError if the file's suffix is not a supported format."""
    if path is not None and path.suffix.lower() not in FORMATS:
        raise UsageError(f"--picture must end in {', '.join(FORMATS)}, not {path.suffix or 'nothing'}")


def lines(named: Mapping[str, Line], x: str, y: str, title: str = "", dashed: Sequence[str] = (), log: str = "") -> Any:
    """A plotly figure. `log` names the logarithmic axes: "x", "y", "xy"."""
    import plotly.graph_objects as go

    figure = go.Figure()
    for name, points in named.items():
        dash = "dash" if name in dashed else "solid"
        xs, ys = zip(*points, strict=True)
        mode = "lines" if name in dashed else "lines+markers"
        figure.add_trace(go.Scatter(x=xs, y=ys, name=name, mode=mode, line={"dash": dash}))
    figure.update_layout(title=title, xaxis_title=x, yaxis_title=y)
    for axis in log:
        figure.update_layout({f"{axis}axis_type": "log"})
    return figure


def bars(parts: Mapping[str, Sequence[float]], names: Sequence[str], y: str, title: str = "") -> Any:
    """Stacked bars of parts that add up, one bar for each name."""
    import plotly.graph_objects as go

    figure = go.Figure([go.Bar(name=part, x=list(names), y=list(values)) for part, values in parts.items()])
    figure.update_layout(barmode="stack", title=title, yaxis_title=y)
    return figure


def draw_lines(
    panels: Mapping[str, Mapping[str, Line]],
    x: str,
    y: str,
    path: Path,
    dashed: Sequence[str] = (),
    log: str = "",
    marks: Mapping[str, Mapping[str, Line]] | None = None,
) -> None:
    """A file with one panel for each title, side by side. `marks`: published points of a panel, by what agreement with
    them proves. Raises OSError if it cannot be written."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot
    from matplotlib.ticker import MaxNLocator

    width, height = SIZE_INCHES
    figure, axes = pyplot.subplots(1, len(panels), figsize=(width * len(panels), height), squeeze=False)
    for axis, (title, named) in zip(axes[0], panels.items(), strict=True):
        for colour, (name, points) in zip(COLOURS * len(named), named.items(), strict=False):
            style = "k--" if name in dashed else "o-"
            more = {} if name in dashed else {"color": colour, "markersize": 4}
            axis.plot(*zip(*points, strict=True), style, label=name, **more)
        for name, points in (marks or {}).get(title, {}).items():
            filled = "k" if name == "predicted" else "none"
            axis.plot(*zip(*points, strict=True), "k*", label=f"published ({name} here)", mfc=filled, markersize=11)
        axis.set(xlabel=x, ylabel=y, title=title)
        if "x" in log:
            axis.set_xscale("log", base=2)
        elif all(float(point[0]).is_integer() for points in named.values() for point in points):
            axis.xaxis.set_major_locator(MaxNLocator(integer=True))  # numbers of workers and NICs are integers
        if "y" in log:
            axis.set_yscale("log")
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8)
    _write(figure, path)


def draw_points(named: Mapping[str, Line], x: str, y: str, path: Path, line: str) -> None:
    """A file of points, with one colour for each name; the one named `line` is drawn as a line. Raises OSError."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=SIZE_INCHES)
    for colour, (name, points) in zip(COLOURS * len(named), named.items(), strict=False):
        xs, ys = zip(*points, strict=True)
        if name == line:
            axes.step(xs, ys, "k-", where="post", label=name, linewidth=1)
        else:
            axes.scatter(xs, ys, s=18, color=colour, label=name, alpha=0.8)
    axes.set(xlabel=x, ylabel=y)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    _write(figure, path)


def draw_agreement(named: Mapping[str, Line], unit: str, title: str, path: Path) -> None:
    """A file with two panels: points (measured, predicted) beside the line where both are equal, and the error of each
    point. Raises OSError."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot
    from matplotlib.ticker import PercentFormatter

    width, height = SIZE_INCHES
    figure, (both, errors) = pyplot.subplots(1, 2, figsize=(2 * width, height))
    for colour, (name, points) in zip(COLOURS * len(named), named.items(), strict=False):
        xs, ys = zip(*points, strict=True)
        both.scatter(xs, ys, s=18, color=colour, label=name, alpha=0.8)
        errors.scatter(xs, [y / x - 1 for x, y in points], s=18, color=colour, label=name, alpha=0.8)
    largest = max(max(point) for points in named.values() for point in points)
    both.plot([0, largest], [0, largest], "k--", linewidth=1, label="predicted = measured")
    both.set(xlabel=f"measured, {unit}", ylabel=f"predicted, {unit}", title=title)
    both.legend(fontsize=8)
    errors.axhline(0, color="k", linestyle="--", linewidth=1)
    errors.set(xlabel=f"measured, {unit}", ylabel="predicted / measured - 1", title="error of each")
    errors.yaxis.set_major_formatter(PercentFormatter(1.0))
    for axis in (both, errors):
        axis.set_xlim(left=0)
        axis.grid(alpha=0.3)
    _write(figure, path)


def _write(figure: Any, path: Path) -> None:
    from matplotlib import pyplot

    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    pyplot.close(figure)
