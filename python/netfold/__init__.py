"""Netfold folds gradients on their way through the network."""

from __future__ import annotations

from typing import Any

# The extension is loaded at first use: `import netfold` works without it.
_COMPILED = ("decode", "encode", "fold", "rank_mapping", "schedule")


def __getattr__(name: str) -> Any:
    """Look up the version, or a function of the compiled extension."""
    if name == "__version__":
        return _version()
    if name not in _COMPILED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from netfold import _core

    return getattr(_core, name)


def _version() -> str:
    # The module is slow to load, and most commands do not need it.
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("netfold")
    except PackageNotFoundError:  # the package runs from a source tree that is not installed
        return "0.0.0"


def __dir__() -> list[str]:
    """Names of this module, with those of the compiled functions."""
    return sorted([*globals(), "__version__", *_COMPILED])
