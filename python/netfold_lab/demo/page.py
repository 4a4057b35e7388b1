"""The demo's result as one HTML file without scripts and without other files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from netfold_lab.demo.charts import Block, bar_chart, line_chart, timeline
from netfold_lab.demo.report import COUNTED, HEADS, Run, headline, rows

SMOOTH_STEPS = 5
LANES = (
    ("forward", "forward"),
    ("backward", "backward"),
    ("communication of a bucket", "bucket"),
    ("optimizer", "optimizer"),
    ("exposed communication", "exposed"),
)


def write_page(path: Path, runs: list[Run], machine: str) -> None:
    """Write the page for the finished runs; creates parent folders. Raises OSError if it cannot be written."""
    template = jinja2.Environment(autoescape=True).from_string((Path(__file__).parent / "page.html.j2").read_text())
    end_ms = 1.05 * max(step["time_s"] for run in runs for step in [run.typical_step]) * 1e3
    html = template.render(
        workers=runs[0].workers,
        parameters=f"{runs[0].parameter_bytes // 4:,}",
        steps=len(runs[0].losses),
        table={"heads": HEADS, "rows": rows(runs)},
        counted=COUNTED,
        headline=headline(runs),
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
    lines = {}
    for run in runs:
        windows = [run.losses[max(0, step - SMOOTH_STEPS) : step] for step in range(1, len(run.losses) + 1)]
        lines[run.name] = [sum(window) / len(window) for window in windows]
    return line_chart(lines, "training step", "cross-entropy loss (nats, log scale)")


def _bytes_chart(runs: list[Run]) -> str:
    bars = {}
    for i, run in enumerate(runs):
        for way, value in (("sent", run.sent_bytes_per_step), ("received", run.received_bytes_per_step)):
            bars[f"{run.name}, {way}"] = (value / 1024, f"s{i}")
    return bar_chart(bars, "KiB", "KiB per worker and step")


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
            "bucket" if span["lane"].startswith("bucket") else span["lane"],
        )
        for span in spans
    ]
    backward_end_ms = next(block.end_ms for block in blocks if block.lane == "backward")
    exposed_ms = (backward_end_ms - run.typical_step["exposed_s"] * 1e3, backward_end_ms)
    return timeline(run.name, blocks, end_ms, exposed_ms)
