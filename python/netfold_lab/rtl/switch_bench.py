"""Measurements of the Verilated switch in simulated time: line rate, latencies, whole all-reduces, loss. A program of
rtl/sim/switch runs the hardware. This file has the runs, the limits, and the way from short runs to the times of
models.

The limits are from allreduce-switch, section V, or better.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from netfold_lab.rtl.simulation import SwitchShape, run

FORMATS = ("fp32", "int32", "bfp", "fp16", "bf16")
VERSIONS = (1, 2)  # of RoCE
MESSAGE_PACKETS = 128
# Table VIII: model size in MB (10^6 bytes); the paper's ms by ring and by switch, at 8 workers of 10 Gbit/s.
MODELS = {
    "AlexNet": (236, 322.9, 184.4),
    "GoogLeNet": (51, 70.0, 39.9),
    "ResNet-50": (98, 134.3, 76.6),
    "VGG-11": (507, 693.4, 396.1),
    "VGG-16": (528, 722.2, 412.5),
    "VGG-19": (548, 749.5, 428.1),
}
# Limits of latencies for frames of 1094 bytes (1082 of RoCE v2), and the paper's values (Fig. 17), in ns.
LATENCY_ASKED_NS = {"forward": 80.0, "int32 fold": 1000.0, "fp32 fold": 1000.0, "repeat": 1000.0}
LATENCY_PAPER_NS = {"forward": 250.0, "int32 fold": 2200.0, "fp32 fold": 2400.0, "repeat": 1500.0}
# One of this number of contributions of each port is repeated, as often as with 3% loss.
REPEAT_EVERY = 62
PAPER_WORKERS = 8
HOST_TICKS = 10_000  # of 100 ps

Progress = Callable[[str], None]


def mixtures(
    shape: SwitchShape, runs: int, frames: int, seed: int, wire: str = "", version: int | None = None
) -> dict[str, Any]:
    """Send random frames of every kind, one at a time, also to the software's switch. Returns `differences` of frames
    and counters, and the seeds of runs with differences. Gradients have one format or ("") a random format in each
    run, and the job has one version of RoCE or (None) a random version."""
    options = [f"--runs={runs}", f"--frames={frames}", f"--seed={seed}", *([f"--format={wire}"] if wire else [])]
    found = run(shape, "mixture", *options, *([f"--version={version}"] if version else []))
    return {"test": "mixture", "version": version or "random", **found}


def sums(shape: SwitchShape, wire: str, frames: int, is_wild: bool, seed: int, version: int = 1) -> dict[str, Any]:
    """Send a number of aggregated frames (of all ports together) at line rate, with plain and repeated frames between,
    and compare every sum with the software's."""
    messages = max(1, -(-frames // (MESSAGE_PACKETS * shape.ports)))
    options = [f"--format={wire}", f"--messages={messages}", f"--seed={seed}", "--plain-every=5"]
    options += [f"--repeat-every={REPEAT_EVERY}", f"--version={version}"]
    found = run(shape, "scene", *options, *(["--wild"] if is_wild else []), "--first-psn=16777000")
    counted = found["comparison"]
    return {
        "test": "sums",
        "version": version,
        "format": wire,
        "wild": is_wild,
        "frames": counted["compared"],
        "sums": counted["sums"],
        "differences": found["differences"],
        "underruns": found["underruns"],
        "reordered": found["reordered"],
        "examples": counted["examples"],
        "verdicts": found["verdicts"],
        "cycles": found["cycles"],
        "cycles_per_s": found["cycles_per_s"],
    }


def losses(
    shape: SwitchShape,
    wire: str,
    messages: int,
    loss: float,
    seed: int,
    stall: float | None = None,
    version: int = 1,
) -> dict[str, Any]:
    """Run the software's endpoints on cables that lose frames both ways: every message must arrive and be correct. With
    `stall`, neighbours accept no frames for up to 10 us after this number of their frames. Then the switch sends pause
    frames, and must not drop a frame by lack of buffer space."""
    options = [f"--format={wire}", f"--messages={messages}", f"--loss={loss}", f"--damage={loss / 10}"]
    options.append(f"--version={version}")
    options += [] if stall is None else [f"--stall={stall}", "--pause"]
    found = run(shape, "lossy", *options, f"--seed={seed}")
    differences = found["wrong"] + messages * shape.ports - found["messages"]
    if stall is not None:
        differences += found["verdicts"].get("room", 0) + found["sums_lost"]
    told = {"version": version, "format": wire, "loss": loss, "stall": stall}
    return {"test": "loss", **told, "differences": differences, **found}


def line_rate(
    shape: SwitchShape, wire: str, frames: int, plain_every: int, progress: Progress, version: int = 1
) -> dict[str, Any]:
    """Run every port at line rate both ways for a number of aggregated frames per port; with plain_every, a forwarded
    frame comes after this number of them. A bubble is a gap between frames at an output that exceeds preamble and
    inter-frame gap by at least a clock (6.4 ns). Bubbles count from the 17th sum until the workers have sent all
    frames. The cables carry no acknowledgements."""
    beside = ", with forwarded frames" if plain_every else ""
    progress(f"line rate, {frames} aggregated frames of {wire} per port{beside}")
    messages = -(-frames // MESSAGE_PACKETS)
    options = [f"--format={wire}", f"--messages={messages}", f"--plain-every={plain_every}", "--unacknowledged"]
    found = run(shape, "scene", *options, f"--version={version}")
    ports = found["ports"]
    return {
        "measured": "line rate" + (" with forwarding" if plain_every else ""),
        "version": version,
        "format": wire,
        "ports": shape.ports,
        "aggregated_frames_a_port": found["packets"],
        "frames": sum(port["frames"] for port in ports),
        "differences": found["differences"],
        "drops": found["comparison"]["differences"],
        "bubbles": sum(port["gaps"] for port in ports),
        "bubble_ns": sum(port["gap_ns"] for port in ports),
        "longest_bubble_ns": max(port["longest_gap_ns"] for port in ports),
        "share_of_line": min(port["share_of_line"] for port in ports),
        "reordered": found["reordered"],
        "pauses": found["pauses"],
        "underruns": found["underruns"],
        "simulated_cycles_per_s": found["cycles_per_s"],
    }


def latencies(
    shape: SwitchShape, messages: int, load: float, progress: Progress, version: int = 1
) -> list[dict[str, Any]]:
    """Histograms of latencies at a load: from the first beat in (for a fold: of the last contribution) to the first
    beat out. Forwarded frames have 1094 bytes, contributions too, or 1082 bytes of RoCE v2."""
    rows = []
    for wire in ("int32", "fp32"):
        progress(f"latency of {wire} at load {load:g}")
        options = [f"--format={wire}", f"--messages={messages}", f"--load={load}", "--plain-every=3"]
        options += [f"--repeat-every={REPEAT_EVERY}", f"--version={version}"]
        found = run(shape, "scene", *options, "--uncompared")
        kinds = {f"{wire} fold": found["folds"]}
        if wire == "fp32":
            kinds |= {"forward": found["forwards"], "repeat": found["repeats"]}
        for kind, latency in kinds.items():
            bounds = {"asked_ns": LATENCY_ASKED_NS[kind], "paper_ns": LATENCY_PAPER_NS[kind]}
            rows.append({"measured": "latency", "version": version, "kind": kind, "load": load, **latency, **bounds})
    return rows


def _line(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Start and slope of the line through the first and the last point."""
    (x0, y0), (x1, y1) = points[0], points[-1]
    slope = (y1 - y0) / (x1 - x0)
    return y0 - slope * x0, slope


def all_reduce_lines(
    shape: SwitchShape, world: int, progress: Progress, version: int = 1
) -> dict[str, tuple[float, float]]:
    """For each algorithm, (start-up in ns, ns per gradient byte) of an all-reduce of `world` workers, from
    cycle-accurate simulations of two lengths. Rings send frames of the same size and with the same number of
    acknowledgements as folding. In `switch` and `ring`, NIC and host take a microsecond between a message and the
    message that depends on it. A step of `ring` begins when the step before is complete (Fig. 3). `pipelined` is a
    bound: each message of 128 packets is added and forwarded at the instant of its arrival."""
    steps = 2 * (world - 1)
    host = f"--host-time={HOST_TICKS}"
    kinds = {"switch": ((4, 12), [host]), "ring": ((2, 4), ["--ring", "--stepwise", host])}
    kinds["pipelined"] = ((2, 4), ["--ring"])
    lines = {}
    for name, (lengths, options) in kinds.items():
        points = []
        for messages in lengths:
            progress(f"{world} workers, {name}, {messages} messages")
            told = [f"--world={world}", f"--messages={messages}", f"--version={version}", *options]
            found = run(shape, "scene", *told, "--uncompared")
            # A ring's worker sends its tensor's segments, one of `world`, in 2(n-1) steps.
            gradient_bytes = found["gradient_bytes"] * (1 if name == "switch" else world / steps)
            points.append((gradient_bytes, found["time_ns"]))
        lines[name] = _line(points)
    return lines


def ratios(shape: SwitchShape, worlds: Sequence[int], progress: Progress, version: int = 1) -> list[dict[str, Any]]:
    """Simulated times of whole models by folding and by a ring on the same ports (Table VIII, Fig. 18). `bound` is the
    ratio of the bytes on the cables."""
    rows = []
    for world in worlds:
        lines = all_reduce_lines(shape, world, progress, version)
        for model, (size_mb, paper_ring_ms, paper_switch_ms) in MODELS.items():
            times_ms = {name: (start + slope * size_mb * 1e6) / 1e6 for name, (start, slope) in lines.items()}
            row: dict[str, Any] = {
                "measured": "model",
                "version": version,
                "model": model,
                "workers": world,
                "size_bytes": size_mb * 1_000_000,
                "ring_ms": times_ms["ring"],
                "pipelined_ring_ms": times_ms["pipelined"],
                "switch_ms": times_ms["switch"],
                "ratio": times_ms["ring"] / times_ms["switch"],
                "pipelined_ratio": times_ms["pipelined"] / times_ms["switch"],
                "bound": 2 * (world - 1) / world,
                "start_ns": {name: start for name, (start, _) in lines.items()},
                "gbit_s": {name: 8 / slope for name, (_, slope) in lines.items()},
            }
            if world == PAPER_WORKERS:
                row |= {"paper_ring_ms": paper_ring_ms, "paper_switch_ms": paper_switch_ms}
            rows.append(row)
    return rows
