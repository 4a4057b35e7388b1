"""Timing diagrams as SVG, from the samples of a simulation: a value for each signal and cycle, just before the clock's
edge."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from xml.sax.saxutils import escape

CYCLE, ROW, HIGH, NAMES, MARGIN, TITLE = 26, 26, 16, 190, 12, 24
STYLE = """text{font:11px monospace;fill:#222}.title{font:bold 13px sans-serif}.value{font-size:10px}
.grid{stroke:#ddd}path{fill:none;stroke:#456;stroke-width:1.3}.bus{fill:#eef3fa}.none{stroke:#aaa}"""

Sample = dict[str, int]


@dataclass(frozen=True)
class Row:
    """A signal. A bus has `shows`: the text for a cycle, or None if its value is not valid."""

    name: str
    shows: Callable[[Sequence[Sample], int], str | None] | None = None


def address(name: str, valid: str) -> Callable[[Sequence[Sample], int], str | None]:
    """A bus that is valid while `valid` is 1; it shows the last four hexadecimal digits."""
    return lambda samples, cycle: f"{samples[cycle][name] & 0xFFFF:04x}" if samples[cycle][valid] else None


def beats(valid: str, ready: str, last: str = "") -> Callable[[Sequence[Sample], int], str | None]:
    """The data of a stream: shows the number of the beat; with `last`, h for a frame's header, then the number of its
    beats."""

    def shows(samples: Sequence[Sample], cycle: int) -> str | None:
        if not samples[cycle][valid]:
            return None
        moved = [sample for sample in samples[:cycle] if sample[valid] and sample[ready]]
        if not last:
            return str(len(moved))
        inside = next((at for at, sample in enumerate(reversed(moved)) if sample[last]), len(moved))
        return "h" if inside == 0 else str(inside - 1)

    return shows


def _clock(y: float, cycles: int) -> str:
    path, x = [], NAMES
    for _ in range(cycles):
        path.append(f"M{x},{y} v{-HIGH} h{CYCLE / 2:g} v{HIGH} h{CYCLE / 2:g}")
        x += CYCLE
    return f'<path d="{" ".join(path)}"/>'


def _bit(y: float, values: Sequence[int]) -> str:
    path = [f"M{NAMES},{y - HIGH * values[0]}"]
    for value in values:
        path.append(f"V{y - HIGH * value} h{CYCLE}")
    return f'<path d="{" ".join(path)}"/>'


def _bus(y: float, texts: Sequence[str | None]) -> str:
    parts, x = [], NAMES
    for text, group in groupby(texts):
        width = CYCLE * len(list(group))
        if text is None:
            parts.append(f'<path class="none" d="M{x},{y - HIGH / 2:g} h{width}"/>')
        else:
            slope, half = 3, HIGH / 2
            parts.append(
                f'<path class="bus" d="M{x},{y - half:g} l{slope},{-half:g} h{width - 2 * slope} l{slope},{half:g} '
                f'l{-slope},{half:g} h{2 * slope - width} z"/>'
                f'<text class="value" x="{x + width / 2:g}" y="{y - 4}" text-anchor="middle">{escape(text)}</text>'
            )
        x += width
    return "".join(parts)


def draw(title: str, samples: Sequence[Sample], rows: Sequence[Row]) -> str:
    """The picture of these cycles."""
    width = NAMES + CYCLE * len(samples) + MARGIN
    height = TITLE + ROW * (len(rows) + 1) + MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">',
        f"<style>{STYLE}</style>",
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text class="title" x="{MARGIN}" y="{TITLE - 6}">{escape(title)}</text>',
    ]
    for cycle in range(len(samples) + 1):
        x = NAMES + CYCLE * cycle
        parts.append(f'<line class="grid" x1="{x}" x2="{x}" y1="{TITLE}" y2="{height - MARGIN}"/>')
    for number, row in enumerate([Row("clk_i"), *rows]):
        y = TITLE + ROW * number + HIGH + 4
        parts.append(f'<text x="{MARGIN}" y="{y - 3}">{escape(row.name)}</text>')
        if number == 0:
            parts.append(_clock(y, len(samples)))
        elif row.shows is None:
            parts.append(_bit(y, [sample[row.name] for sample in samples]))
        else:
            parts.append(_bus(y, [row.shows(samples, cycle) for cycle in range(len(samples))]))
    return "\n".join([*parts, "</svg>"]) + "\n"
