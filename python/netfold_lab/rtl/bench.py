"""Measurements of the Verilated hardware: beats per cycle and latency of modules, cycles of whole all-reduces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from netfold_lab.rtl.simulation import Shape, run
from netfold_lab.rtl.timing import predict

CLOCK_HZ = 200e6
MODULES = ("fold", "encode", "decode")
LATENCY_MAX_CYCLES = {"fold": 12, "encode": 6, "decode": 4}  # limits for 16 lanes and blocks of 16

Progress = Callable[[str], None]


def modules(shape: Shape, values: int, seed: int, pauses: float, progress: Progress) -> list[dict[str, Any]]:
    """Run each module on a number of values: differences to the reference kernels, beats per cycle, latency. `pauses`
    is the probability that a cycle has no input, and that it accepts no output."""
    results = []
    for module in MODULES:
        progress(f"{module}: {values} numbers")
        options = [f"--values={values}", f"--seed={seed}", f"--idle={pauses}", f"--stall={pauses}"]
        found = run(shape, "module", module, *options)
        found["gbit_s_at_200_mhz"] = found["beats_per_cycle"] * 32 * shape.lanes * CLOCK_HZ / 1e9
        found["latency_max_cycles"] = LATENCY_MAX_CYCLES[module]
        results.append(found)
    return results


def all_reduce(
    shape: Shape, world: int, count: int, bfp: bool, bytes_per_cycle: float, progress: Progress
) -> dict[str, Any]:
    """Run one all-reduce of `count` elements; the result also has the model's prediction."""
    name = "bfp" if bfp else "fp32"
    progress(f"{world} devices, {count} elements, {name}")
    options = [f"--world={world}", f"--counts={count}", f"--bytes-per-cycle={bytes_per_cycle}"]
    found = run(shape, "ring", *options, *(["--bfp"] if bfp else []))
    model = predict(shape, world, count, bfp, bytes_per_cycle)
    return {
        "system": "netfold",
        "algorithm": "ring",
        "format": name,
        "world": world,
        "size_bytes": 4 * count,
        "link_bytes_per_cycle": bytes_per_cycle,
        "cycles": found["cycles"],
        "model_cycles": model.model,
        "fill_cycles": model.fill,
        "error": found["cycles"] / model.total - 1,
        "time_s_at_200_mhz": found["cycles"] / CLOCK_HZ,
        "differences": found["differences"],
        "failed": found["failed"],
        "simulated_cycles_per_s": found["cycles"] * world / found["wall_s"],
    }


def requests_in_flight(shape: Shape, world: int, count: int, requests: int, progress: Progress) -> dict[str, Any]:
    """Compare several requests at once with one request of all their elements: the ring's loss of time between
    requests."""
    progress(f"{requests} requests of {count} elements at once")
    together = run(shape, "ring", f"--world={world}", "--counts=" + ",".join([str(count)] * requests))
    alone = run(shape, "ring", f"--world={world}", f"--counts={count * requests}")
    return {
        "world": world,
        "requests": requests,
        "count": count,
        "cycles": together["cycles"],
        "one_request_cycles": alone["cycles"],
        "overhead": together["cycles"] / alone["cycles"] - 1,
        "differences": together["differences"] + alone["differences"],
    }
