"""The charts of the demo's page. Matplotlib draws them as SVG inside the page, which loads no other files.

Matplotlib gets placeholders for colours. In the text they become CSS variables of the page, for light and dark.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, StrMethodFormatter

COLOURS = ("ink", "soft", "rule", "s0", "s1", "s2", "forward", "backward", "bucket", "optimizer", "exposed")
STAND_INS = {name: f"#fe00{i:02x}" for i, name in enumerate(COLOURS)}
WIDTH_PX, PX_PER_INCH = 860, 72
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "font.size": 12,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.edgecolor": STAND_INS["soft"],
    "axes.labelcolor": STAND_INS["soft"],
    "axes.axisbelow": True,
    "grid.color": STAND_INS["rule"],
    "xtick.color": STAND_INS["soft"],
    "ytick.color": STAND_INS["soft"],
    "ytick.major.size": 0,
    "ytick.minor.size": 0,
}


@dataclass(frozen=True)
class Block:
    """One block of a timeline: its lane, its times in ms, its title, its colour."""

    lane: str
    start_ms: float
    end_ms: float
    title: str
    colour: str


class _Chart:
    """A figure, and its parts with a class and a title. A browser shows the title under the mouse."""

    def __init__(self, height_px: int) -> None:
        self.figure = Figure(figsize=(WIDTH_PX / PX_PER_INCH, height_px / PX_PER_INCH), layout="constrained")
        self.axes: Axes = self.figure.add_subplot()
        self.parts: list[tuple[str, str]] = []

    def part(self, css_class: str, title: str) -> str:
        """The ID that matplotlib gives to a part."""
        self.parts.append((css_class, title))
        return f"part-{len(self.parts) - 1}"

    def svg(self, label: str) -> str:
        """The chart; `label` must differ from that of the page's other charts."""
        text = io.StringIO()
        with rc_context({"svg.hashsalt": label}):
            self.figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
        svg = text.getvalue()[text.getvalue().index("<svg") :]
        svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
        head, rest = svg.split(">", 1)
        svg = re.sub(r' (xmlns(:\w+)?|version|width|height)="[^"]*"', "", head) + ">" + rest
        for i, (css_class, title) in enumerate(self.parts):
            named = f'<g class="{css_class}"><title>{escape(title)}</title>'
            svg = svg.replace(f'<g id="part-{i}">', named)
        svg = re.sub(r' id="[A-Za-z0-9.]+_\d+"', "", svg)  # IDs without references, which every chart has
        for name, stand_in in STAND_INS.items():
            svg = svg.replace(stand_in, f"var(--{name})")
        return svg.replace("<svg", f'<svg role="img" aria-label="{escape(label, quote=True)}"', 1)


@rc_context(STYLE)
def line_chart(lines: Mapping[str, Sequence[float]], x_label: str, y_label: str) -> str:
    """Positive values, one for each step from 1 on; the y axis is logarithmic. Each line is drawn over the one before,
    thinner."""
    chart = _Chart(340)
    axes = chart.axes
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.yaxis.set_minor_formatter("")
    looks = ((7, 0.55, "-"), (4, 1, "-"), (2, 1, (0, (3, 2.5))))
    for i, (name, values) in enumerate(lines.items()):
        width, opacity, dashes = looks[min(i, 2)]
        style: dict[str, Any] = {"color": STAND_INS[f"s{i}"], "linewidth": width, "alpha": opacity, "linestyle": dashes}
        (drawn,) = axes.plot(range(1, len(values) + 1), values, **style)
        drawn.set_gid(chart.part("line", name))
    axes.set(xlabel=x_label, ylabel=y_label)
    axes.set_xlim(left=0)
    axes.grid(axis="y")
    return chart.svg(f"{y_label} over {x_label}")


@rc_context(STYLE)
def bar_chart(bars: Mapping[str, tuple[float, str]], unit: str, x_label: str) -> str:
    """Horizontal bars from zero, by name. Each has a value, printed after it in whole units, and one of COLOURS."""
    chart = _Chart(60 + 30 * len(bars))
    axes = chart.axes
    for i, (name, (value, colour)) in enumerate(bars.items()):
        (drawn,) = axes.barh(i, value, 0.7, color=STAND_INS[colour])
        drawn.set_gid(chart.part("bar", name))
        text = f"{value:,.0f} {unit}"
        axes.annotate(text, (value, i), (6, 0), textcoords="offset points", va="center", color=STAND_INS["ink"])
    axes.set_yticks(range(len(bars)), list(bars), color=STAND_INS["ink"])
    axes.set_xlim(0, 1.12 * max(1e-12, *(value for value, _ in bars.values())))
    axes.set_xlabel(x_label)
    axes.invert_yaxis()
    return chart.svg(x_label)


@rc_context(STYLE)
def timeline(name: str, blocks: list[Block], end_ms: float, exposed_ms: tuple[float, float]) -> str:
    """Lanes from top to bottom in order of appearance; `exposed_ms` is a range of time to shade."""
    lanes = list(dict.fromkeys(block.lane for block in blocks))
    chart = _Chart(60 + 24 * len(lanes))
    axes = chart.axes
    start_ms, stop_ms = exposed_ms
    if stop_ms > start_ms:
        shade = axes.axvspan(start_ms, stop_ms, color=STAND_INS["exposed"], alpha=0.16, linewidth=0)
        shade.set_gid(chart.part("exposed", f"exposed communication: {stop_ms - start_ms:.2f} ms"))
    for block in blocks:
        length_ms = block.end_ms - block.start_ms
        width_ms = max(length_ms, end_ms / WIDTH_PX)  # at least a pixel
        row = lanes.index(block.lane)
        (drawn,) = axes.barh(row, width_ms, 0.7, block.start_ms, color=STAND_INS[block.colour])
        times = f"{block.start_ms:.2f} to {block.end_ms:.2f} ms ({length_ms:.2f} ms)"
        drawn.set_gid(chart.part(f"block {block.colour}", f"{block.title}: {times}"))
    axes.set_yticks(range(len(lanes)), lanes, color=STAND_INS["ink"])
    axes.set_xlim(0, end_ms)
    axes.set_xlabel("time since the step began (ms)")
    axes.invert_yaxis()
    return chart.svg(f"timeline of one training step, {name}")
