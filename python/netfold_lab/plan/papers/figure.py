"""A figure or table of a paper: published and computed numbers, and the assumptions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

# What agreement of a row proves.
PREDICTED = "predicted"  # nothing was fitted to this number, or to one that it follows from
FITTED = "fitted"  # a constant was fitted to this number, or chosen so that it comes out: agreement proves nothing
COMPUTED = "computed"  # the paper's own formula with the paper's own inputs: agreement proves the arithmetic
ASSUMED = "assumed"  # follows from numbers without a source


@dataclass(frozen=True)
class Row:
    """One published number, and what agreement with it proves."""

    what: str
    theirs: float
    ours: float
    unit: str = ""
    basis: str = PREDICTED

    @property
    def off(self) -> float:
        """The computed number over the published one, less 1."""
        return self.ours / self.theirs - 1


@dataclass(frozen=True)
class Constant:
    """A constant of a model. `source`: where the paper states it, "fitted to ...", or "assumed"."""

    name: str
    value: str
    source: str


@dataclass(frozen=True)
class Figure:
    """`panels`: lines to draw, by title of the panel and name of the line. `marks`: published points of a panel, by
    what agreement with them proves. `remarks`: statements of the text, and whether they hold. `constants`: of the
    model."""

    number: str
    title: str
    assumptions: Sequence[str]
    rows: Sequence[Row] = ()
    remarks: Sequence[tuple[str, bool]] = ()
    panels: Mapping[str, Mapping[str, Sequence[tuple[float, float]]]] = field(default_factory=dict)
    axes: tuple[str, str] = ("", "")
    log: str = ""
    constants: Sequence[Constant] = ()
    marks: Mapping[str, Mapping[str, Sequence[tuple[float, float]]]] = field(default_factory=dict)

    def entry(self, paper: str) -> dict[str, Any]:
        """The entry in reports."""
        return {
            "paper": paper,
            "figure": self.number,
            "title": self.title,
            "rows": [
                {"what": row.what, "published": row.theirs, "ours": row.ours, "unit": row.unit, "off": row.off}
                | {"basis": row.basis}
                for row in self.rows
            ],
            "constants": [asdict(each) for each in self.constants],
            "statements": [{"statement": what, "holds": holds} for what, holds in self.remarks],
        }
