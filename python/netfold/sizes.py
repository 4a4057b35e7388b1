"""Sizes of tensors as a person types and reads them: `4096`, `16MiB`."""

from __future__ import annotations

import re

UNITS = {"GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10}


def size_of(text: str) -> int | None:
    """`16MiB` in bytes; None for something else. The number may be negative or 0: the caller says what it takes."""
    found = re.fullmatch(r"\s*(-?\d+) ?(GiB|MiB|KiB|B)?\s*", text)
    return int(found[1]) * UNITS.get(found[2], 1) if found is not None else None


def size_name(size_bytes: int) -> str:
    """`16 MiB` if the number is whole, else bytes."""
    for unit, factor in UNITS.items():
        if size_bytes >= factor and size_bytes % factor == 0:
            return f"{size_bytes // factor} {unit}"
    return f"{size_bytes} B"
