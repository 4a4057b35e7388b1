"""A figure or table of a paper: published and computed numbers, and the assumptions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Row:
    """One published number. `fitted`: a constant was fitted to it, so agreement proves little."""

    what: str
    theirs: float
    ours: float
    unit: str = ""
    fitted: bool = False

    @property
    def off(self) -> float:
        """The computed number over the published one, less 1."""
        return self.ours / self.theirs - 1


@dataclass(frozen=True)
class Figure:
    """`panels`: lines to draw, by title of the panel and name of the line. `remarks`: statements of the text, and
    whether they hold."""

    number: str
    title: str
    assumptions: Sequence[str]
    rows: Sequence[Row] = ()
    remarks: Sequence[tuple[str, bool]] = ()
    panels: Mapping[str, Mapping[str, Sequence[tuple[float, float]]]] = field(default_factory=dict)
    axes: tuple[str, str] = ("", "")
    log: str = ""

    def entry(self, paper: str) -> dict[str, Any]:
        """The entry in reports."""
        return {
            "paper": paper,
            "figure": self.number,
            "title": self.title,
            "rows": [
                {"what": row.what, "published": row.theirs, "ours": row.ours, "unit": row.unit, "off": row.off}
                | {"fitted": row.fitted}
                for row in self.rows
            ],
            "statements": [{"statement": what, "holds": holds} for what, holds in self.remarks],
        }
