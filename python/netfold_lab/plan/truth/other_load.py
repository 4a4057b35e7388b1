"""The cores that other programs use while a training step is measured.

No prediction knows other programs. A step that they disturb is measured again, and the least disturbed attempt counts.
Its time has no say in that.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import psutil

from netfold_lab.bench.train.profile import Step

DISTURBED = 0.08  # of all cores; the kernel's ticks by themselves show up to 2% on an idle machine


def busy_s() -> float:
    """CPU seconds of all programs so far, in user and in kernel mode. The kernel's own work on packets does not count:
    in a lab it belongs to the step."""
    times = psutil.cpu_times()
    return times.user + times.nice + times.system + times.steal


def own_s(step: Step, workers: int) -> float:
    """CPU seconds of the workers and the switch in a step."""
    return workers * sum(sum(modes.values()) for modes in step.cpu.values()) + step.switch_cpu_s


def least_disturbed(take: Callable[[], Step], workers: int, attempts: int) -> tuple[Step, float]:
    """A step, and the fraction of the machine's cores that other programs used meanwhile. `take` measures a step of
    some workers; it is called up to `attempts` times while other programs use more than DISTURBED."""
    found: tuple[Step, float] | None = None
    for _ in range(attempts):
        busy_before_s, began = busy_s(), time.monotonic()
        step = take()
        capacity_s = (time.monotonic() - began) * (psutil.cpu_count() or 1)
        others = max(0.0, busy_s() - busy_before_s - own_s(step, workers)) / capacity_s
        if found is None or others < found[1]:
            found = step, others
        if others <= DISTURBED:
            break
    assert found is not None, "at least one attempt"
    return found
