"""Errors of the lab. The message says what happened and what to do."""

from __future__ import annotations


class LabError(RuntimeError):
    """The lab could not be built, run or removed (exit status 1)."""


class UsageError(ValueError):
    """The options are wrong, or contradict each other (exit status 2)."""
