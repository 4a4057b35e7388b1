"""A step of training on a GPU: torch's trace of it, read and drawn."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BACKWARD = "backward"  # the name of that pass, as the rank that is traced calls it
PLOT_INCHES = (10.0, 2.2)  # of each trace
LAUNCHES = ("cuda_runtime", "cuda_driver")  # the kinds of events in which Python starts a kernel
WORD_BYTES = 4  # copied beside each piece, to know whether it is whole
TO_HOST, TO_DEVICE = "DtoH", "HtoD"  # in the names of copies


@dataclass(frozen=True)
class Span:
    """A time on the GPU or in Python, in seconds from the start of the backward pass."""

    begin_s: float
    end_s: float


@dataclass(frozen=True)
class Timeline:
    """`kernels`: those of the backward pass and the optimizer, on the stream that computes. `down` and `up`: copies of
    gradients to the host and back. `python`: the backward pass in Python. Without a GPU there is only that."""

    python: Span
    kernels: list[Span]
    down: list[Span]
    up: list[Span]

    def in_flight(self) -> Span | None:
        """From the first copy to the host, until the last copy back begins."""
        if not self.down or not self.up:
            return None
        return Span(self.down[0].end_s, self.up[-1].begin_s)

    def flights(self) -> list[Span]:
        """The times in which each piece of the gradients was in the network, or waited for it."""
        if len(self.down) != len(self.up):
            flight = self.in_flight()
            return [flight] if flight else []
        return [Span(down.end_s, up.begin_s) for down, up in zip(self.down, self.up, strict=True)]


def load(path: Path) -> Timeline:
    """Read a trace as torch writes it. Raises ValueError if it has no backward pass."""
    events = [event for event in json.loads(path.read_text())["traceEvents"] if event.get("ph") == "X"]
    passes = [event for event in events if event["name"] == BACKWARD and event.get("cat") == "user_annotation"]
    if not passes:
        raise ValueError(f"{path} has no backward pass")
    start_us = passes[-1]["ts"]

    def span(event: dict[str, Any]) -> Span:
        begin_s = (event["ts"] - start_us) / 1e6
        return Span(begin_s, begin_s + event["dur"] / 1e6)

    def spans(found: list[dict[str, Any]]) -> list[Span]:
        return sorted((span(event) for event in found if event["ts"] >= start_us), key=lambda one: one.begin_s)

    # Python is ahead of the GPU: kernels of the forward pass may run after the backward pass has begun in Python.
    launches = (event for event in events if event.get("cat") in LAUNCHES and event["ts"] >= start_us)
    launched = {event["args"].get("correlation") for event in launches}
    kernels = [event for event in events if event.get("cat") == "kernel" and event["args"]["correlation"] in launched]
    busy_us: dict[int, float] = {}
    for event in kernels:
        stream = event["args"]["stream"]
        busy_us[stream] = busy_us.get(stream, 0.0) + event["dur"]
    computing = max(busy_us, key=lambda stream: busy_us[stream], default=None)
    ours = [event for event in kernels if event["args"]["stream"] == computing]
    copies = [
        event
        for event in events
        if event.get("cat") == "gpu_memcpy"
        and event["args"]["stream"] != computing
        and event["args"].get("bytes", 0) > WORD_BYTES
    ]
    down, up = (spans([event for event in copies if way in event["name"]]) for way in (TO_HOST, TO_DEVICE))
    return Timeline(span(passes[-1]), spans(ours), down, up)


def read(path: Path) -> dict[str, Any] | None:
    """The figures of a trace; None if no copies are in it. Times in seconds."""
    timeline = load(path)
    flight = timeline.in_flight()
    if flight is None:
        return None
    within = [max(0.0, min(one.end_s, flight.end_s) - max(one.begin_s, flight.begin_s)) for one in timeline.kernels]
    kernels_s = sum(one.end_s - one.begin_s for one in timeline.kernels)
    return {
        "in_flight_s": flight.end_s - flight.begin_s,
        "kernels_s": kernels_s,
        "kernels_in_flight_s": sum(within),
        "in_flight_share": sum(within) / kernels_s,
        "kernels_begun_in_flight": sum(flight.begin_s <= one.begin_s <= flight.end_s for one in timeline.kernels),
        "python_backward_s": timeline.python.end_s,
    }


def draw(timelines: dict[str, Timeline], path: Path) -> None:
    """Draw rows of what ran when, for each trace."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    size = (PLOT_INCHES[0], PLOT_INCHES[1] * len(timelines))
    figure, places = pyplot.subplots(len(timelines), 1, figsize=size, squeeze=False)
    for axes, (name, timeline) in zip(places[:, 0], timelines.items(), strict=True):
        rows = {
            "backward in Python": [timeline.python],
            "kernels": timeline.kernels,
            "copies to the host": timeline.down,
            "in the network": timeline.flights(),
            "copies back": timeline.up,
        }
        for row, (label, spans) in enumerate(rows.items()):
            bars = [(one.begin_s * 1e3, (one.end_s - one.begin_s) * 1e3) for one in spans]
            axes.broken_barh(bars, (-row - 0.4, 0.8), label=label, color=f"C{row}", alpha=0.6)
        axes.set_yticks([-row for row in range(len(rows))], list(rows))
        axes.set_title(name, loc="left")
        axes.grid(axis="x", alpha=0.3)
    places[-1, 0].set_xlabel("ms from the start of the backward pass")
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
