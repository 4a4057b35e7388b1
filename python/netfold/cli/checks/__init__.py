"""The checks of `netfold doctor`. Each check tries the feature itself if it can, and names the command that repairs
it."""

from __future__ import annotations

from dataclasses import dataclass

OK, SLOW, MISSING = "ok", "slow", "missing"


@dataclass(frozen=True)
class Check:
    """One line of the doctor's table: the part, its state, the finding, and the command that repairs it."""

    name: str
    status: str
    found: str
    fix: str = ""
    required: bool = False
