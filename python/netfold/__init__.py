"""Netfold folds gradients on their way through the network."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Any

try:
    __version__ = version("netfold")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0.0.0"

# Loaded when first asked for: `import netfold` works without the extension.
_COMPILED = ("decode", "encode", "fold", "rank_mapping", "schedule")


def __getattr__(name: str) -> Any:
    """Functions of the compiled half."""
    if name not in _COMPILED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from netfold import _core

    return getattr(_core, name)


def __dir__() -> list[str]:
    """What this module holds, the compiled functions too."""
    return sorted([*globals(), *_COMPILED])
