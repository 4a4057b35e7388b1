"""What `netfold doctor` looks at. Each check tries the thing itself where it can, and says what would mend it."""

from __future__ import annotations

from dataclasses import dataclass

OK, SLOW, MISSING = "ok", "slow", "missing"


@dataclass(frozen=True)
class Check:
    """One line of the doctor's: what was looked at, how it stands, what was found, the command that mends it."""

    name: str
    status: str
    found: str
    fix: str = ""
    required: bool = False
