"""Numbers of workers to try one after the other."""

from __future__ import annotations

from netfold_lab.errors import UsageError
from netfold_lab.lab.spec import WORKERS_MAX


def counts_of(text: str) -> list[int]:
    """`2..8` as 2, 3, ... 8; `2,4,8` as 2, 4, 8."""
    try:
        if ".." in text:
            first, last = (int(part) for part in text.split(".."))
            counts = list(range(first, last + 1))
        else:
            counts = [int(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(f"--sweep-workers takes 2..8 or 2,4,8, not {text!r}") from None
    if not counts or min(counts) < 1 or max(counts) > WORKERS_MAX:
        raise UsageError(f"--sweep-workers takes ascending numbers from 1 to {WORKERS_MAX}, not {text!r}")
    return counts
