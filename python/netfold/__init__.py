"""Netfold folds gradients on their way through the network."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("netfold")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0.0.0"
