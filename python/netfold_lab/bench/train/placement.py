"""Cores for the engine and cores for computation: the balance that "AI Smart NICs" finds at 2 cores of 28 (section
III).

Places of the engine: the caller's thread (data moves only while the caller waits), a thread beside it, free or pinned,
and the agent, a process of its own. Pinned threads have the first k cores and computation has the rest; with all cores
they share them. The caller's thread cannot work with a switch, which needs answers also while no caller waits. If the
backend has no setting `engine`, its engine is a thread.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from netfold.algorithms import WITH_SWITCH
from netfold_lab.bench.train.variants import BASELINE, COMPUTE_ALONE, OFFLOADED, Variant, offloaded

CALLER, THREAD, AGENT = "caller", "thread", "agent"
PINNED_MAX = 8


def _knows_engines() -> bool:
    from netfold.torch.settings import TABLE

    return any(setting.name == "engine" for setting in TABLE)


def _pinned(algorithm: str, engine: str, cores: Sequence[int]) -> list[Variant]:
    found = []
    for count in range(1, min(len(cores), PINNED_MAX) + 1):
        rest = cores[count:] or cores
        words = ",".join(map(str, cores[:count]))
        found.append(
            offloaded(
                algorithm,
                "fp32",
                placement=f"{THREAD} on {words}",
                compute_cores=tuple(rest),
                engine=engine,
                cores=tuple(cores[:count]),
            )
        )
    return found


def best(entries: Sequence[dict[str, Any]]) -> str:
    """A sentence about the placement with the shortest step."""
    placed = [one for one in entries if one["variant"] == OFFLOADED]
    found = min(placed, key=lambda one: one["time_s_median"])
    cores = ", ".join(map(str, found["compute_cores"])) or "any"
    return (
        f"the best balance here: {found['name']}, computation on cores {cores}: {found['time_s_median']:.3f} s a step"
    )


def variants_of(algorithms: Sequence[str]) -> tuple[list[Variant], list[str]]:
    """Computation by itself, the baseline, then every placement with each algorithm; and remarks on variants that are
    left out."""
    cores = sorted(os.sched_getaffinity(0))
    knows = _knows_engines()
    found = [COMPUTE_ALONE, BASELINE]
    for algorithm in algorithms:
        engines = (CALLER, THREAD, AGENT) if knows else ("",)
        for engine in engines:
            if engine == CALLER and algorithm in WITH_SWITCH:
                continue
            found.append(offloaded(algorithm, "fp32", placement=engine or THREAD, engine=engine))
            if engine in ("", THREAD):
                found += _pinned(algorithm, engine, cores)
    remarks = (
        []
        if knows
        else [f"{CALLER} and {AGENT} are left out: the backend of this build always runs its engine in a thread"]
    )
    return found, remarks
