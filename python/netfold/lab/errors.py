"""What a lab can fail with: a sentence that says what happened and what to do."""

from __future__ import annotations


class LabError(RuntimeError):
    """The lab could not be built, run or removed (exit status 1)."""


class UsageError(ValueError):
    """The options make no sense together (exit status 2)."""
