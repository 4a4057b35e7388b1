"""Turns steps into reports: medians, reductions against the baseline, CPU seconds per gigabyte."""

from __future__ import annotations

import statistics
from typing import Any

from netfold_lab.bench.train.profile import Outcome, Series
from netfold_lab.bench.train.step_timer import BACKWARD, EXPOSED
from netfold_lab.bench.train.variants import ALONE, OVERLAPPED

GB = 1e9


def entries(outcome: Outcome, workers: int) -> list[dict[str, Any]]:
    """One entry of `results` for each variant, in the order of measurement."""
    found = [_entry(series, outcome, workers) for series in outcome.series]
    baseline = next((one for one in found if one["variant"] == OVERLAPPED), None)
    alone = {one["prefetches"]: one for one in found if one["variant"] == ALONE}
    told = []
    for one in found:
        beside = _beside_alone(one, alone[one["prefetches"]])
        told.append(one | beside | (_against(one, baseline) if baseline and one["variant"] != ALONE else {}))
    return told


def _entry(series: Series, outcome: Outcome, workers: int) -> dict[str, Any]:
    variant, group, steps = series.variant, series.variant.group, series.steps
    return {
        "name": variant.name,
        "variant": variant.kind,
        "system": variant.system or None,
        "algorithm": (group.algorithm or "ring") if group else None,
        "format": (group.format or "fp32") if group else None,
        "engine": (group.engine or None) if group else None,
        "engine_cores": list(group.cores) if group else [],
        "compute_cores": list(variant.compute_cores),
        "prefetches": variant.prefetches,
        "workers": workers,
        "size_bytes": outcome.gradient_bytes,
        "time_s": [step.time_s for step in steps],
        "time_s_median": series.median.time_s,
        "parts_s": series.median.parts,
        "parts_s_of_steps": [step.parts for step in steps],
        "cpu_s_per_step": {
            role: {mode: statistics.fmean(step.cpu[role][mode] for step in steps) for mode in modes}
            for role, modes in steps[0].cpu.items()
        },
        "switch_cpu_s_per_step": statistics.fmean(step.switch_cpu_s for step in steps),
        "same_bits": outcome.same_bits,
    }


def _down(value: float, before: float) -> float | None:
    return 1 - value / before if before > 0 else None


def _against(one: dict[str, Any], baseline: dict[str, Any]) -> dict[str, Any]:
    """Reductions against the overlapped baseline, as fractions of it."""
    return {
        "step_reduction": _down(one["time_s_median"], baseline["time_s_median"]),
        "exposed_reduction": _down(one["parts_s"][EXPOSED], baseline["parts_s"][EXPOSED]),
        "backward_reduction": _down(one["parts_s"][BACKWARD], baseline["parts_s"][BACKWARD]),
    }


def _beside_alone(one: dict[str, Any], alone: dict[str, Any]) -> dict[str, Any]:
    """Throughput relative to one worker, and the CPU time of communication: of the threads that communicate, and of all
    threads less computation. The second value also counts folding in the caller's thread and kernel time that is
    charged to other threads."""
    gigabytes = one["size_bytes"] / GB
    threads = sum(one["cpu_s_per_step"]["communication"].values())
    added = _all_cpu(one) - _all_cpu(alone)
    return {
        # Workers share the cores: this is what n workers lose against their own computation time.
        "speedup": one["workers"] * alone["time_s_median"] / one["time_s_median"],
        "backward_increase_s": one["parts_s"][BACKWARD] - alone["parts_s"][BACKWARD],
        "compute_system_s_added": one["cpu_s_per_step"]["compute"]["system_s"]
        - alone["cpu_s_per_step"]["compute"]["system_s"],
        "engine_cpu_s_per_gb": threads / gigabytes if one["variant"] != ALONE else 0.0,
        "added_cpu_s_per_gb": added / gigabytes,
        "switch_cpu_s_per_gb": one["switch_cpu_s_per_step"] / gigabytes / one["workers"],
    }


def _all_cpu(one: dict[str, Any]) -> float:
    return sum(sum(modes.values()) for modes in one["cpu_s_per_step"].values())
