"""Netfold folds gradients on their way through the network."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Any

try:
    __version__ = version("netfold")
except PackageNotFoundError:  # the package runs from a source tree that is not installed
    __version__ = "0.0.0"

# The extension is loaded at first use: `import netfold` works without it.
_COMPILED = ("decode", "encode", "fold", "rank_mapping", "schedule")


def __getattr__(name: str) -> Any:
    """Look up a function of the compiled extension."""
    if name not in _COMPILED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from netfold import _core

    return getattr(_core, name)


def __dir__() -> list[str]:
    """Names of this module, with those of the compiled functions."""
    return sorted([*globals(), *_COMPILED])
