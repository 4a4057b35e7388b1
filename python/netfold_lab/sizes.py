"""Sizes of tensors as a person types and reads them: `4096`, `16MiB`."""

from __future__ import annotations

import re
from collections.abc import Iterable

from netfold_lab.errors import UsageError

UNITS = {"GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10}


def sizes_of(text: str) -> list[int]:
    """`1KiB,16MiB,4096` in bytes. Raises UsageError."""
    sizes = []
    for part in text.split(","):
        found = re.fullmatch(r"\s*(-?\d+) ?(GiB|MiB|KiB|B)?\s*", part)
        if found is None:
            raise UsageError(
                f"--size-bytes takes numbers of bytes with commas, each with or without KiB, MiB or GiB, not {part!r}"
            )
        sizes.append(int(found[1]) * UNITS.get(found[2], 1))
    return sizes


def by_name(sizes: Iterable[int]) -> dict[str, int]:
    """The sizes with their names, as reports show them."""
    return {size_name(size): size for size in sizes}


def size_name(size_bytes: int) -> str:
    """`16 MiB` if the number is whole, else bytes."""
    for unit, factor in UNITS.items():
        if size_bytes >= factor and size_bytes % factor == 0:
            return f"{size_bytes // factor} {unit}"
    return f"{size_bytes} B"
