"""Small charts as SVG text: axes with round numbers, lines, bars and a timeline. No script: nothing can fail to load.

Colours are CSS classes (`series-0`, `lane-forward`, ...) that the page defines, for light and dark. All sizes are in
pixels of the SVG's own view box.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape

LEFT, RIGHT, TOP, BOTTOM = 64, 16, 14, 46


@dataclass(frozen=True)
class Series:
    """A named line: points are (x, y) in data units; `style` is a CSS class."""

    name: str
    style: str
    points: list[tuple[float, float]]


def round_ticks(low: float, high: float, count: int = 6) -> list[float]:
    """About `count` round numbers (1, 2 or 5 times a power of ten apart) that cover low..high."""
    span = max(high - low, 1e-12)
    step = 10 ** math.floor(math.log10(span / count))
    while span / step > count:
        step *= 2.5 if str(step).lstrip("0.").startswith("2") else 2
    first = math.ceil(low / step - 1e-9)
    return [round(i * step, 12) for i in range(first, math.floor(high / step + 1e-9) + 1)]


def line_chart(series: list[Series], x_label: str, y_label: str, width: int = 860, height: int = 340) -> str:
    """Lines over a common x axis from 0, the y axis logarithmic, both labelled; hovering a line names it.

    Values of y must be above 0.
    """
    x_high = max(x for line in series for x, _ in line.points)
    ys = [math.log10(y) for line in series for _, y in line.points]
    low, high = min(ys) - 0.05, max(ys) + 0.1
    plot_w, plot_h = width - LEFT - RIGHT, height - TOP - BOTTOM

    def at_y(exponent: float) -> float:
        return TOP + (high - exponent) / (high - low) * plot_h

    parts = [_open(width, height, f"{y_label} over {x_label}")]
    for y in (m * 10.0**e for e in range(math.floor(low), math.ceil(high) + 1) for m in (1, 2, 5)):
        if low <= math.log10(y) <= high:
            place = at_y(math.log10(y))
            parts.append(f'<line class="grid" x1="{LEFT}" x2="{width - RIGHT}" y1="{place:.1f}" y2="{place:.1f}"/>')
            parts.append(f'<text class="tick" x="{LEFT - 8}" y="{place + 4:.1f}" text-anchor="end">{y:g}</text>')
    parts.extend(_x_axis(round_ticks(0, x_high, 8), x_high, x_label, width, height))
    parts.append(_y_label(y_label, height))
    for line in series:
        path = " ".join(f"{LEFT + x / x_high * plot_w:.1f},{at_y(math.log10(y)):.1f}" for x, y in line.points)
        name = escape(line.name)
        parts.append(f'<polyline class="line {line.style}" points="{path}"><title>{name}</title></polyline>')
    return "".join([*parts, "</svg>"])


@dataclass(frozen=True)
class Bar:
    """One horizontal bar: what it is called, its value, the text behind it, its CSS class."""

    name: str
    value: float
    text: str
    style: str


def bar_chart(bars: list[Bar], x_label: str, width: int = 860, row: int = 30) -> str:
    """Horizontal bars from zero, each with its text behind it."""
    left, right = 190, 110
    height = TOP + row * len(bars) + BOTTOM
    high = max([bar.value for bar in bars] + [1e-12])
    plot_w = width - left - right
    parts = [_open(width, height, x_label)]
    for i, bar in enumerate(bars):
        y, w = TOP + i * row, bar.value / high * plot_w
        parts.append(f'<text class="name" x="{left - 8}" y="{y + 19}" text-anchor="end">{escape(bar.name)}</text>')
        parts.append(
            f'<rect class="bar {bar.style}" x="{left}" y="{y + 4}" width="{w:.1f}" height="{row - 8}" rx="2"/>'
        )
        parts.append(f'<text class="value" x="{left + w + 6:.1f}" y="{y + 19}">{escape(bar.text)}</text>')
    parts.extend(_x_axis(round_ticks(0, high), high, x_label, width, height, left, right))
    return "".join([*parts, "</svg>"])


@dataclass(frozen=True)
class Block:
    """One block of a timeline: its lane, its times in ms, what hovering says, its CSS class."""

    lane: str
    start_ms: float
    end_ms: float
    title: str
    style: str


def timeline(blocks: list[Block], end_ms: float, mark_ms: tuple[float, float] | None, width: int = 860) -> str:
    """Lanes from top to bottom in order of appearance; `mark_ms` shades a stretch of time (exposed communication)."""
    lanes = list(dict.fromkeys(block.lane for block in blocks))
    left, row = 110, 24
    height = TOP + row * len(lanes) + BOTTOM
    scale = (width - left - RIGHT) / end_ms
    parts = [_open(width, height, "timeline of one training step")]
    if mark_ms is not None and mark_ms[1] > mark_ms[0]:
        x, w = left + mark_ms[0] * scale, (mark_ms[1] - mark_ms[0]) * scale
        parts.append(f'<rect class="exposed" x="{x:.1f}" y="{TOP}" width="{w:.1f}" height="{row * len(lanes)}">')
        parts.append(f"<title>exposed communication: {mark_ms[1] - mark_ms[0]:.2f} ms</title></rect>")
    for i, lane in enumerate(lanes):
        y = TOP + i * row
        parts.append(f'<text class="name" x="{left - 8}" y="{y + 16}" text-anchor="end">{escape(lane)}</text>')
        parts.append(f'<line class="grid" x1="{left}" x2="{width - RIGHT}" y1="{y + row}" y2="{y + row}"/>')
    for block in blocks:
        y = TOP + lanes.index(block.lane) * row + 4
        x, w = left + block.start_ms * scale, max(1.0, (block.end_ms - block.start_ms) * scale)
        title = f"{block.title}: {block.start_ms:.2f} to {block.end_ms:.2f} ms ({block.end_ms - block.start_ms:.2f} ms)"
        parts.append(
            f'<rect class="block {block.style}" x="{x:.1f}" y="{y}" width="{w:.1f}" height="{row - 8}" rx="2">'
        )
        parts.append(f"<title>{escape(title)}</title></rect>")
    parts.extend(_x_axis(round_ticks(0, end_ms, 8), end_ms, "time since the step began (ms)", width, height, left))
    return "".join([*parts, "</svg>"])


def _open(width: int, height: int, label: str) -> str:
    return f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(label, quote=True)}">'


def _x_axis(
    ticks: list[float], high: float, label: str, width: int, height: int, left: int = LEFT, right: int = RIGHT
) -> list[str]:
    plot_w, base = width - left - right, height - BOTTOM
    parts = [f'<line class="axis" x1="{left}" x2="{width - right}" y1="{base}" y2="{base}"/>']
    for x in ticks:
        at_x = left + x / high * plot_w
        parts.append(f'<line class="axis" x1="{at_x:.1f}" x2="{at_x:.1f}" y1="{base}" y2="{base + 4}"/>')
        parts.append(f'<text class="tick" x="{at_x:.1f}" y="{base + 18}" text-anchor="middle">{x:g}</text>')
    parts.append(f'<text class="label" x="{left + plot_w / 2:.0f}" y="{height - 8}" text-anchor="middle">')
    parts.append(f"{escape(label)}</text>")
    return parts


def _y_label(label: str, height: int) -> str:
    middle = TOP + (height - TOP - BOTTOM) / 2
    place = f'transform="translate(16 {middle:.0f}) rotate(-90)" text-anchor="middle"'
    return f'<text class="label" {place}>{escape(label)}</text>'
