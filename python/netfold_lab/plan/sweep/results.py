"""Results of a sweep: one line of JSON per design, appended at once; and the Pareto front.

A reader drops a line that a crash or a full disk cut off; its design is planned again."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from netfold_lab.errors import UsageError


class Notebook:
    """The file of results. Only one process may write it."""

    def __init__(self, path: Path) -> None:
        """Raises OSError if the file cannot be read, UsageError if it has another content; such a file is not
        changed."""
        self.path = path
        self.kept: dict[str, dict[str, Any]] = {}
        text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
        lines = text.splitlines(keepends=True)
        if any(_result(line) is None for line in lines[:-1]) or (lines and not lines[0].startswith("{")):
            raise UsageError(f"{path} does not hold results of a sweep: name another file with --out")
        whole = [line for line in lines if _result(line) is not None]
        for line in whole:
            result = _result(line)
            assert result is not None
            self.kept[result["key"]] = result
        if "".join(whole) != text:
            self._rewrite("".join(whole))

    def _rewrite(self, text: str) -> None:
        new = self.path.with_name(f"{self.path.name}.new")
        new.write_text(text, encoding="utf-8")
        new.replace(self.path)

    def add(self, result: dict[str, Any]) -> None:
        """Append a result and flush it to the disk. Raises OSError."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(result) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self.kept[result["key"]] = result


def _result(line: str) -> dict[str, Any] | None:
    if not line.endswith("\n"):
        return None
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) and "key" in found else None


def possible(results: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The results of possible designs."""
    return [one for one in results if "error" not in one]


def front(results: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of the results with a price, the Pareto front: no other result is both cheaper and faster. The cheapest first."""
    priced = [one for one in possible(results) if one["price"]]
    best: list[dict[str, Any]] = []
    for one in sorted(priced, key=lambda each: (each["price"], -each["samples_s"])):
        if not best or one["samples_s"] > best[-1]["samples_s"]:
            best.append(one)
    return best


def per_second(results: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Results by samples per second, the most first; of those that are equal in three digits, the cheapest first."""
    return sorted(possible(results), key=lambda one: (-float(f"{one['samples_s']:.3g}"), one["price"] or 0.0))


def per_price(results: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Results by samples per second per price, the most first."""
    return sorted((one for one in possible(results) if one["price"]), key=lambda one: -one["samples_s"] / one["price"])
