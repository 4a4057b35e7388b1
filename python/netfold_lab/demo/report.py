"""The measurements of one run of the demo over all workers, as rows of a table and as JSON."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any

HEADS = ("run", "test accuracy", "step time", "sent / step", "received / step", "exposed")
COUNTED = (
    "Step time and exposed communication (the part that computation does not hide) are medians over the steps of rank "
    "0. Sent and received are the transport payloads of one worker, counted at its own sockets: UDP, with Netfold's "
    "packet headers, by the client; TCP by the kernel (TCP_INFO)."
)


@dataclass(frozen=True)
class Run:
    """One training run. Losses are means over the workers, one per step; times are in seconds; traffic is the mean of
    the workers."""

    name: str
    system: str
    algorithm: str
    format: str
    workers: int
    losses: list[float]
    test_accuracy: float
    parameter_bytes: int
    step_time_s: list[float]
    exposed_s: float
    sent_bytes_per_step: float
    received_bytes_per_step: float
    typical_step: dict[str, Any]
    identical_ranks: bool


def make_run(name: str, system: str, algorithm: str, format: str, results: list[dict[str, Any]]) -> Run:
    """Combine the workers' results (by rank)."""
    return Run(
        name=name,
        system=system,
        algorithm=algorithm,
        format=format,
        workers=len(results),
        losses=[statistics.fmean(step) for step in zip(*(r["losses"] for r in results), strict=True)],
        test_accuracy=results[0]["test_accuracy"],
        parameter_bytes=results[0]["parameter_bytes"],
        step_time_s=results[0]["step_time_s"],
        exposed_s=results[0]["exposed_s_median"],
        sent_bytes_per_step=statistics.fmean(r["sent_bytes_per_step"] for r in results),
        received_bytes_per_step=statistics.fmean(r["received_bytes_per_step"] for r in results),
        typical_step=results[0]["typical_step"],
        identical_ranks=len({r["digest"] for r in results}) == 1,
    )


def headline(runs: list[Run]) -> str:
    """The result in a sentence: the bytes that a worker sends, which do not depend on how busy the machine is."""
    last = runs[-1]
    fewer = [(last.sent_bytes_per_step / run.sent_bytes_per_step, run.name) for run in runs[:-1]]
    parts = " and ".join(f"{times:.1f} times fewer bytes with {name}" for times, name in fewer)
    return f"Beside {last.name}, a worker sends {parts}."


def rows(runs: list[Run]) -> list[tuple[str, ...]]:
    """One row a run, as text with units, in the order of HEADS."""
    return [
        (
            run.name,
            f"{run.test_accuracy:.1%}",
            f"{statistics.median(run.step_time_s) * 1e3:.1f} ms",
            f"{run.sent_bytes_per_step / 1024:,.0f} KiB",
            f"{run.received_bytes_per_step / 1024:,.0f} KiB",
            f"{run.exposed_s * 1e3:.1f} ms",
        )
        for run in runs
    ]


def as_result(run: Run) -> dict[str, Any]:
    """The run as an entry of the JSON object's `results`."""
    return {
        "system": run.system,
        "algorithm": run.algorithm,
        "format": run.format,
        "size_bytes": run.parameter_bytes,
        "time_s": run.step_time_s,
        "time_s_median": statistics.median(run.step_time_s),
        "test_accuracy": run.test_accuracy,
        "exposed_s_median": run.exposed_s,
        "sent_bytes_per_step": run.sent_bytes_per_step,
        "received_bytes_per_step": run.received_bytes_per_step,
        "loss_last": run.losses[-1],
        "identical_ranks": run.identical_ranks,
    }
