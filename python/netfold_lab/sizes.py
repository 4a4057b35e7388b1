"""Sizes of tensors as a person types and reads them: `4096`, `16MiB`; and lists of numbers and of
words."""

from __future__ import annotations

from collections.abc import Iterable

from netfold.sizes import size_name, size_of
from netfold_lab.errors import UsageError

__all__ = ["by_name", "numbers_in", "size_name", "sizes_of", "words_in"]


def sizes_of(text: str) -> list[int]:
    """`1KiB,16MiB,4096` in bytes. Raises UsageError."""
    sizes = []
    for part in text.split(","):
        size_bytes = size_of(part)
        if size_bytes is None:
            raise UsageError(
                f"--size-bytes takes numbers of bytes with commas, each with or without KiB, MiB or GiB, not {part!r}"
            )
        sizes.append(size_bytes)
    return sizes


def numbers_in(text: str, option: str, most: int) -> list[int]:
    """A comma-separated list of whole numbers."""
    try:
        values = [int(word) for word in text.split(",")]
    except ValueError:
        raise UsageError(f"{option} takes whole numbers with commas, not {text}") from None
    for value in values:
        if not 1 <= value <= most:
            raise UsageError(f"{option} must be from 1 to {most}, not {value}")
    return values


def words_in(text: str) -> tuple[str, ...]:
    """A comma-separated list of words, without repetitions and empty words."""
    return tuple(dict.fromkeys(filter(None, text.split(","))))


def by_name(sizes: Iterable[int]) -> dict[str, int]:
    """The sizes with their names, as reports show them."""
    return {size_name(size): size for size in sizes}
