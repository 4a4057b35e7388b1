"""Reports of training steps that were predicted and measured."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from netfold.algorithms import IN_NETWORK
from netfold_lab.plan.report import charts
from netfold_lab.plan.truth.other_load import DISTURBED
from netfold_lab.plan.truth.step_model import Computation
from netfold_lab.plan.truth.train_cases import CALIBRATION_WORKERS, CheckSettings
from netfold_lab.plan.truth.train_check import Case, Findings
from netfold_lab.plan.truth.train_model import Calibration

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

HEADS = ("workers", "batch", "algorithm", "format", "all-reduces", "switch's link", "predicted", "measured", "error")
TEXTS = ("algorithm", "format", "all-reduces", "cores")
MILLI = 1e3


def summary(findings: Findings, within: tuple[float, float] | None) -> dict[str, Any]:
    """The parameters of the report that follow from the measurement. `within`: the largest mean error and the largest
    error that the user allows."""
    cases = findings.cases
    told: dict[str, Any] = {
        "others_mean": statistics.fmean(findings.others) if findings.others else None,
        "steps_disturbed": disturbed(findings),
        "steps": len(findings.others),
        "cases": len(cases),
        "off_mean": findings.off_mean if cases else None,
        "off_worst": findings.off_worst if cases else None,
        "calibrated": calibrated(findings),
    }
    return told | ({"within": list(within), "is_within": is_within(findings, within)} if within else {})


def disturbed(findings: Findings) -> int:
    """The number of steps that other programs disturbed in all attempts."""
    return sum(share > DISTURBED for share in findings.others)


def is_within(findings: Findings, within: tuple[float, float]) -> bool:
    """Whether there are cases, and their errors are within these limits (mean, largest)."""
    return bool(findings.cases) and findings.off_mean <= within[0] and findings.off_worst <= within[1]


def calibrated(findings: Findings) -> dict[str, Any] | None:
    """All that was measured with two workers. None of it is a case."""
    if (found := findings.calibration) is None:
        return None
    return {
        "workers": CALIBRATION_WORKERS,
        "cores": found.cores,
        "computation": [
            {
                "batch": batch,
                "cores": where,
                "forward_s": one.forward_s,
                "backward_s": sum(one.bucket_s),
                "backward_s_of_buckets": list(one.bucket_s),
                "update_s": sum(one.update_s),
            }
            for where, batch, one in _computations(found)
        ],
        "links": [
            {
                "algorithm": algorithm,
                "format": wire,
                "switch_link": "narrow" if is_narrow else "wide",
                "efficiency": costs.efficiency,
                "engine_cpu_s": costs.engine_cpu_s,
                "switch_cpu_s_per_worker": costs.switch_cpu_s,
                "submit_cpu_s": costs.submit_cpu_s,
                "speed_beside_computation": costs.beside,
            }
            for (algorithm, wire, is_narrow), costs in found.links.items()
        ],
    }


def _computations(found: Calibration) -> list[tuple[str, int, Computation]]:
    """Which cores the two workers had, the batch, and their computation."""
    both = (("one each", found.computation), ("one for both", found.crowded))
    return [(where, batch, one) for where, by_batch in both for batch, one in by_batch.items()]


def entries(settings: CheckSettings, cases: Sequence[Case]) -> list[dict[str, Any]]:
    """The entries of reports, one for each case."""
    return [
        {
            "system": "netfold",
            "workers": case.workers,
            "batch": case.batch,
            "algorithm": case.way.algorithm,
            "format": case.way.format,
            "overlaps": case.way.overlaps,
            "rate_mbit_s": settings.rate_mbit_s,
            "switch_rate_mbit_s": settings.lab(case.workers, case.way.is_narrow).switch_rate_mbit_s
            if case.way.algorithm == IN_NETWORK
            else None,
            "time_s_predicted": case.predicted.time_s,
            "parts_s_predicted": case.predicted.parts_s,
            "time_s": [step.time_s for step in case.measured.steps],
            "time_s_median": case.measured_s,
            "parts_s": case.measured.median.parts,
            "off": case.off,
        }
        for case in cases
    ]


def show(
    console: Console, settings: CheckSettings, findings: Findings, within: tuple[float, float] | None = None
) -> None:
    """Print the results on a terminal."""
    if findings.calibration is not None:
        console.print(_computation(findings))
        console.print(_links(findings))
    if not findings.cases:
        console.print("no case was measured")
        return
    console.print(_cases(settings, findings))
    words = (
        f"{len(findings.cases)} cases that nothing was fitted to: mean error {findings.off_mean:.1%}, largest "
        f"{findings.off_worst:.1%}"
    )
    if within:
        verdict = "within" if is_within(findings, within) else "NOT within"
        words += f"; {verdict} the limits of --within ({within[0]:.1%} and {within[1]:.1%})"
    console.print(words, highlight=False, soft_wrap=True)
    others = statistics.fmean(findings.others) if findings.others else 0.0
    words = f"other programs used {others:.1%} of the cores"
    if count := disturbed(findings):
        words += f", and more than {DISTURBED:.0%} in {count} of {len(findings.others)} steps: the errors include that"
    console.print(words, highlight=False, soft_wrap=True)


def _cases(settings: CheckSettings, findings: Findings) -> Table:
    table = _table("Training steps, milliseconds", HEADS)
    for case in findings.cases:
        in_network = case.way.algorithm == IN_NETWORK
        switch_rate = settings.lab(case.workers, case.way.is_narrow).switch_rate_mbit_s
        table.add_row(
            str(case.workers),
            str(case.batch),
            case.way.algorithm,
            case.way.format,
            "overlapped" if case.way.overlaps else "after backward",
            f"{switch_rate:g} Mbit/s" if in_network else "",
            f"{case.predicted.time_s * MILLI:.0f}",
            f"{case.measured_s * MILLI:.0f}",
            f"{case.off:+.1%}",
        )
    return table


def _computation(findings: Findings) -> Table:
    assert findings.calibration is not None
    title = f"Calibrated: computation of one of {CALIBRATION_WORKERS} workers, milliseconds of a core"
    table = _table(title, ("cores", "batch", "forward", "backward", "update"))
    for where, batch, one in _computations(findings.calibration):
        parts = (one.forward_s, sum(one.bucket_s), sum(one.update_s))
        table.add_row(where, str(batch), *(f"{seconds * MILLI:.1f}" for seconds in parts))
    return table


def _links(findings: Findings) -> Table:
    assert findings.calibration is not None
    title = f"Calibrated: links of {CALIBRATION_WORKERS} workers, CPU milliseconds a step"
    rates = ("rate that arrives", "speed beside computation")
    heads = ("algorithm", "format", "switch's link", *rates, "engine", "switch, a worker", "to start")
    table = _table(title, heads)
    for (algorithm, wire, is_narrow), costs in findings.calibration.links.items():
        table.add_row(
            algorithm,
            wire,
            ("narrow" if is_narrow else "wide") if algorithm == IN_NETWORK else "",
            f"{costs.efficiency:.1%}",
            f"{costs.beside:.0%}",
            *(f"{each * MILLI:.0f}" for each in (costs.engine_cpu_s, costs.switch_cpu_s, costs.submit_cpu_s)),
        )
    return table


def _table(title: str, heads: Sequence[str]) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(title=title, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for head in heads:
        table.add_column(head, justify="left" if head in TEXTS else "right")
    return table


def draw(out: Path, findings: Findings) -> None:
    """Measured beside predicted times, and the error of each case. Raises OSError if the file cannot be written."""
    named: dict[str, list[tuple[float, float]]] = {}
    for case in findings.cases:
        link = f"{case.way.algorithm} {case.way.format}{', narrow' if case.way.is_narrow else ''}"
        named.setdefault(link, []).append((case.measured_s * MILLI, case.predicted.time_s * MILLI))
    title = f"{len(findings.cases)} steps: mean error {findings.off_mean:.1%}, largest {findings.off_worst:.1%}"
    charts.draw_agreement(named, "ms a step", title, out)
