"""The report of an answer: facts, tables, the page, JSON and CSV rows, the trace, the mapping file."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

from netfold.topology.file import Topology
from netfold.topology.file import write as write_topology
from netfold_lab.plan.report import charts, layout, network
from netfold_lab.plan.report.assumptions import ASSUMED, ASSUMPTION_HEADS, assumptions, error_rows
from netfold_lab.plan.report.page import Page, Section, Table, write_page
from netfold_lab.plan.report.trace import trace
from netfold_lab.plan.step.answer import COMPUTATION, Answer, Limit, Outcome, gain
from netfold_lab.plan.step.collectives import FP32_BYTES, Net, net_of

DRAWN_MAX = 300  # NICs or workers in one picture


def milliseconds(seconds: float, digits: int = 3) -> str:
    """Milliseconds as text: three digits to compare cells of one table, two for a time by itself."""
    value = 1e3 * seconds
    if not value:
        return "0"
    places = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{places}f}" if value < 10**digits else f"{float(f'{value:.{digits}g}'):,.0f}"


def expected(one: Outcome) -> str:
    """The range of a step's time in milliseconds."""
    return f"{milliseconds(one.low_s, 2)} to {milliseconds(one.high_s, 2)}"


def summary(told: Answer) -> list[str]:
    """The answers as sentences."""
    best, line = told.best, told.best.timeline
    found = [
        f"A step of {told.model.name}, batch {told.batch}, takes about {milliseconds(line.total_s, 2)} ms on the "
        f"{told.workers} workers of {told.cluster.name} (expected: {expected(best)} ms); about "
        f"{milliseconds(line.exposed_s, 2)} ms of it ({line.exposed_s / line.total_s:.0%}) are communication that "
        "computation does not hide."
    ]
    if line.bubble_s:
        training = told.job.training
        found.append(
            f"About {milliseconds(line.bubble_s, 2)} ms ({line.bubble_s / line.total_s:.0%}) are the bubble of the "
            f"pipeline: {training.pipeline} stages, {training.accumulate} micro-batches, {training.schedule}."
        )
    if told.model.tokens:
        tokens = told.groups * told.batch * told.model.tokens / line.total_s
        found.append(f"That is {tokens / told.workers:,.4g} tokens per second and GPU.")
    if assumed := [row[0] for row in assumptions(told) if row[2].startswith(ASSUMED)]:
        found.append(f"The cluster file does not state, so the plan assumes: {', '.join(assumed)}.")
    if len(told.outcomes) > 1:
        other = told.outcomes[1]
        faster = gain(other.timeline.total_s, line.total_s)
        found.append(
            f"{best.contender.name} is the fastest: its all-reduces take {milliseconds(line.reduce_s)} ms per step, "
            f"those of {other.contender.name} {milliseconds(other.timeline.reduce_s)} ms; the step gains "
            f"{'almost nothing' if faster == 'nothing' else faster}."
        )
    found.append(f"The next limit of the step is {_limit(told, told.bottleneck)}.")
    if told.bottleneck.role == COMPUTATION and len(told.limits) > 1:
        found.append(f"The limit of its communication is {_limit(told, told.limits[1])}.")
    if told.changes:
        change = told.changes[0]
        what = gain(line.total_s, change.timeline.total_s)
        if what != "nothing":
            found.append(f"Of the tested changes, this one gains most: {change.name}: {what}.")
    return found


def _limit(told: Answer, limit: Limit) -> str:
    busiest = "" if limit.name == limit.role else f" (busiest: {limit.name}, in use {limit.busy:.0%} of the time)"
    gained = gain(told.best.timeline.total_s, limit.step_s)
    return f"{limit.role}{busiest}: if it were twice as fast, the step would gain {gained}"


def outcome_row(one: Outcome, best: Outcome) -> list[str]:
    """A row of the table of algorithms."""
    line = one.timeline
    return [
        one.contender.name,
        milliseconds(line.total_s),
        expected(one),
        milliseconds(line.exposed_s),
        milliseconds(line.reduce_s),
        f"{line.total_s / best.timeline.total_s:.2f}",
    ]


OUTCOME_HEADS = ("algorithm", "step, ms", "expected, ms", "exposed, ms", "all-reduces, ms", "relative to the best")
PLACEMENT_HEADS = ("algorithm", "as listed, ms", "shuffled, ms", "gain by placement")
LIMIT_HEADS = ("resource", "busiest", "in use", "step if twice as fast, ms", "gain")
CHANGE_HEADS = ("change", "best algorithm", "step, ms", "gain", "price", "samples per second per 1000 of price")


def placement_rows(told: Answer) -> list[list[str]]:
    """Rows: the effect of the placement of ranks."""
    return [
        [
            each.contender.name,
            milliseconds(each.as_listed_s),
            milliseconds(each.anywhere_s),
            gain(each.anywhere_s, each.as_listed_s),
        ]
        for each in told.placements
    ]


def limit_rows(told: Answer) -> list[list[str]]:
    """Rows: the limits."""
    total = told.best.timeline.total_s
    return [
        [
            each.role,
            each.name if each.name != each.role else "",
            f"{each.busy:.0%}" if each.busy else "",
            milliseconds(each.step_s),
            gain(total, each.step_s),
        ]
        for each in told.limits
    ]


def per_price(told: Answer, step_s: float, price: float | None) -> str:
    """Samples per second for a thousand of the currency."""
    return f"{told.groups * told.batch / step_s / price * 1000:.2f}" if price else ""


def change_rows(told: Answer) -> list[list[str]]:
    """Rows: the gain of each change, after the unchanged cluster."""
    best, currency = told.best, told.cluster.currency
    rows = [("unchanged", best.contender, best.timeline, told.price)]
    rows += [(each.name, each.contender, each.timeline, each.price) for each in told.changes]
    return [
        [
            name,
            contender.name,
            milliseconds(line.total_s),
            gain(best.timeline.total_s, line.total_s) if name != "unchanged" else "",
            f"{price:,.0f} {currency}" if price else "",
            per_price(told, line.total_s, price),
        ]
        for name, contender, line, price in rows
    ]


def entries(told: Answer) -> list[dict[str, Any]]:
    """Entries of reports, by kind: algorithm, bottleneck, change."""
    best = told.best.timeline

    def times(line: Any) -> dict[str, float]:
        return {
            "time_s_median": line.total_s,
            "forward_s": line.forward_s,
            "backward_s": line.backward_s,
            "update_s": line.update_s,
            "bubble_s": line.bubble_s,
            "exposed_s": line.exposed_s,
            "reduce_s": line.reduce_s,
        }

    size = 4 * told.model.parameters
    found: list[dict[str, Any]] = [
        {"kind": "algorithm", "system": "netfold", "algorithm": one.contender.algorithm, "format": one.contender.wire}
        | {"size_bytes": size, **times(one.timeline)}
        | {"time_s_low": one.low_s, "time_s_high": one.high_s}
        for one in told.outcomes
    ]
    found += [
        {"kind": "placement", "algorithm": each.contender.algorithm, "format": each.contender.wire, "size_bytes": size}
        | {"time_s_as_listed": each.as_listed_s, "time_s_anywhere": each.anywhere_s}
        for each in told.placements
    ]
    found += [
        {"kind": "bottleneck", "resource": each.role, "busiest": each.name, "busy": each.busy}
        | {"time_s_if_twice_as_fast": each.step_s}
        for each in told.limits
    ]
    found += [
        {"kind": "change", "change": each.name, "algorithm": each.contender.algorithm, "format": each.contender.wire}
        | {"speedup": best.total_s / each.timeline.total_s, "price": each.price, **times(each.timeline)}
        for each in told.changes
    ]
    return found


def show(console: Any, told: Answer) -> None:
    """Print the answers on a terminal."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table as Shown

    for sentence in summary(told):
        console.print(sentence, highlight=False)
    tables = (
        ("Algorithms", OUTCOME_HEADS, [outcome_row(one, told.best) for one in told.outcomes]),
        ("Placement of ranks: all gradients in one all-reduce", PLACEMENT_HEADS, placement_rows(told)),
        ("Limits of the step", LIMIT_HEADS, limit_rows(told)),
        ("Gains of changes", CHANGE_HEADS, change_rows(told)),
    )
    for title, heads, rows in tables:
        shown = Shown(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
        for number, head in enumerate(heads):
            is_text = number == 0 or head in ("busiest", "best algorithm")
            shown.add_column(head, justify="left" if is_text else "right", no_wrap=head.endswith("algorithm"))
        for row in rows:
            shown.add_row(*row)
        console.print(shown)


def write_csv(path: Path, told: Answer) -> None:
    """All entries, one column for each name."""
    rows = entries(told)
    names = list(dict.fromkeys(name for row in rows for name in row))
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def write_trace(path: Path, told: Answer) -> None:
    """The trace for Perfetto, with the messages of the last all-reduce."""
    sent = [span for span in told.best.timeline.spans if span.lane == "all-reduce"]
    if not sent:  # one worker has each part of the model
        path.write_text(json.dumps(trace(told.best.timeline)), encoding="utf-8")
        return
    last = sent[-1]
    run = net_of(told.cluster).simulate(told.best.contender, max(1, last.size_bytes // 4), transfers=True)
    path.write_text(json.dumps(trace(told.best.timeline, run.get("transfers"), last.start_s)), encoding="utf-8")


def write_mapping(path: Path, told: Answer) -> bool:
    """Write the file for NETFOLD_TOPOLOGY. Returns False, and writes nothing, if the cluster is not a BiGraph with a
    worker at every port.

    Hosts without a name in the cluster file get the names of their ports; replace them by addresses."""
    shape = told.cluster.shape
    if shape is None or shape[0] * shape[1] != told.workers:
        return False
    names = told.cluster.hosts or tuple(f"worker-{at}" for at in range(told.workers))
    write_topology(path, Topology.regular(*shape, names))
    return True


def busy_of(net: Net, told: Answer) -> dict[int, float]:
    """The use of each resource in one all-reduce of all gradients by the fastest algorithm."""
    run = net.simulate(told.best.contender, max(1, told.job.gradients_bytes // FP32_BYTES))
    capacity = net.topology.capacity_bit_s
    return {
        at: bits / (float(capacity[at]) * run["time_s"])
        for at, bits in enumerate(run["bits_by_resource"].tolist())
        if at < len(net.graph.resources) and bits > 0
    }


def _pictures(told: Answer) -> list[Any]:
    net = net_of(told.cluster)
    busy = busy_of(net, told)
    found = []
    ends = sum(node.role in ("NIC", "worker") for node in net.graph.nodes)
    if ends <= DRAWN_MAX:
        where = layout.places(net.graph, told.cluster.kind)
        title = f"Use of the fabric by {told.best.contender.name}"
        found.append(network.figure(net.graph, where, busy, title))
    if inside := layout.server_places(net.graph):
        found.append(network.figure(net.graph, inside, busy, "Inside server 0"))
    return found


def draw(path: Path, told: Answer) -> None:
    """The fabric as a picture file."""
    net = net_of(told.cluster)
    title = f"{told.cluster.name}, use of links by {told.best.contender.name}"
    network.draw(net.graph, layout.places(net.graph, told.cluster.kind), busy_of(net, told), title, path)


def _gantt(told: Answer) -> Any:
    import plotly.graph_objects as go

    drawn = go.Figure()
    for lane in ("forward", "backward", "all-reduce", "update"):
        spans = [span for span in told.best.timeline.spans if span.lane == lane]
        drawn.add_trace(
            go.Bar(
                name=lane,
                y=[lane] * len(spans),
                x=[1e3 * (span.end_s - span.start_s) for span in spans],
                base=[1e3 * span.start_s for span in spans],
                orientation="h",
                hovertext=[
                    f"{span.name}: {1e3 * (span.end_s - span.start_s):.3f} ms"
                    + (f", {span.size_bytes / 2**20:.1f} MiB" if span.size_bytes else "")
                    for span in spans
                ],
                hoverinfo="text",
                marker={"line": {"color": "white", "width": 0.5}},
            )
        )
    drawn.update_layout(barmode="overlay", xaxis_title="milliseconds", showlegend=False, height=320)
    drawn.update_yaxes(autorange="reversed")
    return drawn


def write_report(path: Path, told: Answer) -> None:
    """The page."""
    line = told.best.timeline
    facts = [
        ("a step", f"{milliseconds(line.total_s, 2)} ms"),
        ("expected", f"{expected(told.best)} ms"),
        ("exposed communication", f"{line.exposed_s / line.total_s:.0%}"),
        ("samples a second", f"{told.groups * told.batch / line.total_s:,.0f}"),
        ("fastest algorithm", told.best.contender.name),
        ("limit of communication", next(one.role for one in told.limits if one.role != COMPUTATION)),
    ]
    names = [one.contender.name for one in told.outcomes]
    parts = {
        "forward": [1e3 * one.timeline.forward_s for one in told.outcomes],
        "backward": [1e3 * one.timeline.backward_s for one in told.outcomes],
        "bubble": [1e3 * one.timeline.bubble_s for one in told.outcomes],
        "exposed communication": [1e3 * one.timeline.exposed_s for one in told.outcomes],
        "update": [1e3 * one.timeline.update_s for one in told.outcomes],
    }
    parts = {name: times for name, times in parts.items() if name != "bubble" or any(times)}
    changed = change_rows(told)
    gains = charts.bars(
        {"step": [1e3 * told.best.timeline.total_s, *(1e3 * each.timeline.total_s for each in told.changes)]},
        [row[0] for row in changed],
        "milliseconds",
    )
    sections = [
        Section(
            "Algorithms",
            ["The parts of a step by algorithm; all-reduces of buckets run beside the backward pass."],
            [charts.bars(parts, names, "milliseconds")],
            tables=[Table(OUTCOME_HEADS, [outcome_row(one, told.best) for one in told.outcomes])],
        ),
        Section(
            "The step",
            [
                f"{'The first stage' if line.bubble_s else 'Worker 0'} with {told.best.contender.name}. Hover for "
                "layers and buckets."
            ],
            [_gantt(told)],
        ),
        Section("Placement", _ABOUT_PLACEMENT, tables=[Table(PLACEMENT_HEADS, placement_rows(told))]),
        Section("Bottleneck", _ABOUT_LIMITS, tables=[Table(LIMIT_HEADS, limit_rows(told))]),
        Section("Changes", _ABOUT_CHANGES, [gains], tables=[Table(CHANGE_HEADS, changed)]),
        Section("Network", _ABOUT_NETWORK, _pictures(told)),
        Section(
            "Assumptions", _ABOUT_ASSUMPTIONS, tables=[Table(ASSUMPTION_HEADS, [*assumptions(told), *error_rows(told)])]
        ),
    ]
    write_page(path, Page(f"{told.cluster.name}: {told.model.name}", summary(told), facts, sections))


_ABOUT_PLACEMENT = [
    "All gradients in one all-reduce, with ranks as the file lists them (by default in order), and shuffled, "
    "as a scheduler may place them. HDRM follows the places of its partners (NETFOLD_TOPOLOGY)."
]
_ABOUT_LIMITS = [
    "Each kind of resource is made twice as fast, without other changes. If several in a row are equally fast, "
    "a faster single one gains nothing: see `every link`."
]
_ABOUT_CHANGES = ["The same servers and GPUs with one change, each with its fastest algorithm."]
_ABOUT_NETWORK = [
    "One all-reduce of all gradients. A link's colour is the fraction of the time that its busier direction is in use. "
    "Hover over a link's middle for its name and rate; drag to zoom."
]
_ABOUT_ASSUMPTIONS = ["Every constant of the plan, and whether the cluster file states it or the planner assumes it."]
