"""Block diagrams as SVG: boxes are instances, and arrows are flows with their number of bits."""

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import escape

from netfold_lab.rtl.drawings.flows import Flow, Node
from netfold_lab.rtl.drawings.layers import Bend, Place, arrange

BOX_WIDTH, BOX_HEIGHT, BEND_HEIGHT = 124, 44, 20
GAP_X, GAP_Y, MARGIN, TITLE, ARROW_STEP = 64, 18, 14, 24, 12
STYLE = """text{font:12px sans-serif;fill:#222}.kind{font-size:10px;fill:#666}.bits{font-size:9px;fill:#666}
.title{font-size:13px;font-weight:bold}.box{fill:#eef3fa;stroke:#456}.port{fill:#f7f3e8;stroke:#765}
path{fill:none;stroke:#456;stroke-width:1.3}"""


def _heights(order: list[list[Place]], ways: list[list[Place]]) -> dict[Place, int]:
    """The height of boxes that fits all arrows of a side."""
    found: dict[Place, int] = {}
    for place in (place for places in order for place in places):
        arrows = max(sum(way[0] == place for way in ways), sum(way[-1] == place for way in ways))
        found[place] = BEND_HEIGHT if isinstance(place, Bend) else max(BOX_HEIGHT, ARROW_STEP * arrows + 8)
    return found


def _places(order: list[list[Place]], heights: dict[Place, int]) -> tuple[dict[Place, tuple[float, float]], int, int]:
    """The left edge and the middle of each place, and the picture's size."""
    sums = [sum(heights[place] for place in places) + GAP_Y * (len(places) - 1) for places in order]
    found: dict[Place, tuple[float, float]] = {}
    for column, (places, height) in enumerate(zip(order, sums, strict=True)):
        y = TITLE + MARGIN + (max(sums) - height) / 2
        for place in places:
            found[place] = (MARGIN + column * (BOX_WIDTH + GAP_X), y + heights[place] / 2)
            y += heights[place] + GAP_Y
    width = 2 * MARGIN + len(order) * (BOX_WIDTH + GAP_X) - GAP_X
    return found, width, TITLE + 2 * MARGIN + max(sums)


def _box(node: Node, x: float, y: float, height: int) -> str:
    is_port = node.kind in ("input", "output")
    middle = f'x="{x + BOX_WIDTH / 2:g}" text-anchor="middle"'
    text = f'<text {middle} y="{y + (4 if is_port else -3):g}">{escape(node.name)}</text>'
    if not is_port:
        text += f'<text {middle} y="{y + 12:g}" class="kind">{escape(node.kind)}</text>'
    look = "port" if is_port else "box"
    top = y - height / 2
    return f'<rect class="{look}" x="{x:g}" y="{top:g}" width="{BOX_WIDTH}" height="{height}" rx="6"/>{text}'


def _arrow(way: list[Place], at: dict[Place, tuple[float, float]], flow: Flow, shift: tuple[float, float]) -> str:
    """An arrow from the source's right edge to the target's left edge. A flow back has its head at the left end."""
    x, y = at[way[0]][0] + BOX_WIDTH, at[way[0]][1] + shift[0]
    path = [f"M{x:g},{y:g}"]
    for number, place in enumerate(way[1:], 1):
        next_x, next_y = at[place]
        next_y += shift[1] if number == len(way) - 1 else 0
        bow = (next_x - x) / 2
        path.append(f"C{x + bow:g},{y:g} {next_x - bow:g},{next_y:g} {next_x:g},{next_y:g}")
        x, y = next_x, next_y
        if isinstance(place, Bend):
            x += BOX_WIDTH
            path.append(f"L{x:g},{y:g}")
    head = "marker-start" if way[0] == flow.target else "marker-end"
    label_x, label_y = at[way[0]][0] + BOX_WIDTH + 6, at[way[0]][1] + shift[0] - 3
    label = f'<text class="bits" x="{label_x:g}" y="{label_y:g}">{flow.bits}</text>'
    return f'<path d="{" ".join(path)}" {head}="url(#head)"/>{label}'


def _shifts(ways: list[list[Place]], at: dict[Place, tuple[float, float]]) -> list[tuple[float, float]]:
    """Arrows leave and enter a box at separate places, sorted by their other ends."""
    leaves: dict[Place, list[int]] = {}
    enters: dict[Place, list[int]] = {}
    for index, way in enumerate(ways):
        leaves.setdefault(way[0], []).append(index)
        enters.setdefault(way[-1], []).append(index)
    shifts = [[0.0, 0.0] for _ in ways]
    for end, groups, beside in ((0, leaves, 1), (1, enters, -2)):
        for indices in groups.values():
            heights = {index: at[ways[index][beside]][1] for index in indices}
            for number, index in enumerate(sorted(indices, key=heights.__getitem__)):
                shifts[index][end] = (number - (len(indices) - 1) / 2) * ARROW_STEP
    return [(first, last) for first, last in shifts]


def draw(title: str, flows: Sequence[Flow]) -> str:
    """The picture of a module."""
    ends = {node for flow in flows for node in (flow.source, flow.target)}
    nodes = sorted(ends, key=lambda node: (node.kind != "input", node.name, node.kind))
    order, ways = arrange(nodes, [(flow.source, flow.target) for flow in flows])
    heights = _heights(order, ways)
    at, width, height = _places(order, heights)
    shifts = _shifts(ways, at)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">',
        f"<style>{STYLE}</style>",
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
        'orient="auto-start-reverse"><path d="M0,0 L8,4 L0,8 z" style="fill:#456;stroke:none"/></marker></defs>',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text class="title" x="{MARGIN}" y="{TITLE - 4}">{escape(title)}</text>',
        *(_arrow(way, at, flow, shift) for way, flow, shift in zip(ways, flows, shifts, strict=True)),
        *(_box(node, *at[node], heights[node]) for node in nodes),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"
