"""Packages that a command needs only in the processes that it starts."""

from __future__ import annotations

import importlib.util


def need(*names: str) -> None:
    """Raises ModuleNotFoundError for the first package that is not installed; `netfold` then names its extra."""
    for name in names:
        if importlib.util.find_spec(name) is None:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
