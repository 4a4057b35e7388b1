"""`netfold agent`: becomes the program netfold-agent, which sums gradients for the workers of its machine."""

from __future__ import annotations

from netfold import native


def run(arguments: list[str]) -> None:
    """Become netfold-agent; it gets all arguments, also --help."""
    native.become(native.AGENT, arguments)
