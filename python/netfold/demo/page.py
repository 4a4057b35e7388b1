"""The demo's result as one HTML file that needs nothing else: no script, no network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from netfold.demo.report import COUNTED, HEADS, Run, rows
from netfold.demo.svg import Bar, Block, Series, bar_chart, line_chart, timeline

SMOOTH_STEPS = 5
LANES = (
    ("forward", "lane-forward"),
    ("backward", "lane-backward"),
    ("communication of a bucket", "lane-bucket"),
    ("optimizer", "lane-optimizer"),
    ("exposed communication", "exposed"),
)


def write_page(path: Path, runs: list[Run], machine: str) -> None:
    """Write the page for the finished runs; parent folders are made. Raises OSError where it cannot be written."""
    template = jinja2.Environment(autoescape=True).from_string((Path(__file__).parent / "page.html.j2").read_text())
    end_ms = 1.05 * max(step["time_s"] for run in runs for step in [run.typical_step]) * 1e3
    html = template.render(
        workers=runs[0].workers,
        parameters=f"{runs[0].parameter_bytes // 4:,}",
        steps=len(runs[0].losses),
        table={"heads": HEADS, "rows": rows(runs)},
        counted=COUNTED,
        smooth_steps=SMOOTH_STEPS,
        loss_chart=Markup(_loss_chart(runs)),
        bytes_chart=Markup(_bytes_chart(runs)),
        runs=[
            {"name": run.name, "style": f"series-{i}", "timeline": Markup(_timeline(run, end_ms))}
            for i, run in enumerate(runs)
        ],
        lanes=LANES,
        footer=f"Measured on {machine}. All workers and the switch share this machine and its loopback link, so step "
        "times show the cost of the software, not the gain on a real network: netfold lab measures that.",
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(html)


def _loss_chart(runs: list[Run]) -> str:
    lines = []
    for i, run in enumerate(runs):
        means = []
        for step in range(len(run.losses)):
            window = run.losses[max(0, step - SMOOTH_STEPS + 1) : step + 1]
            means.append((float(step + 1), sum(window) / len(window)))
        lines.append(Series(run.name, f"series-{i}", means))
    return line_chart(lines, "training step", "cross-entropy loss (nats, log scale)")


def _bytes_chart(runs: list[Run]) -> str:
    bars = []
    for i, run in enumerate(runs):
        for way, value in (("sent", run.sent_bytes_per_step), ("received", run.received_bytes_per_step)):
            bars.append(Bar(f"{run.name}, {way}", value / 1024, f"{value / 1024:,.0f} KiB", f"series-{i}"))
    return bar_chart(bars, "KiB per worker and step")


def _timeline(run: Run, end_ms: float) -> str:
    order = {"forward": 0, "backward": 1, "optimizer": 3}
    spans: list[dict[str, Any]] = sorted(
        run.typical_step["spans"], key=lambda span: (order.get(span["lane"], 2), span["lane"])
    )
    blocks = [
        Block(
            span["lane"],
            span["start_s"] * 1e3,
            span["end_s"] * 1e3,
            span["label"],
            "lane-bucket" if span["lane"].startswith("bucket") else f"lane-{span['lane']}",
        )
        for span in spans
    ]
    backward_end_ms = next(block.end_ms for block in blocks if block.lane == "backward")
    return timeline(blocks, end_ms, (backward_end_ms - run.typical_step["exposed_s"] * 1e3, backward_end_ms))
