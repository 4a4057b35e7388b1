"""Formats of gradients: fp32, or block floating point with a number of mantissa bits, with or without error
feedback."""

from __future__ import annotations

from dataclasses import dataclass

from netfold_lab.bench.train.variants import Group
from netfold_lab.errors import UsageError

BLOCK = 16
MANTISSAS = range(2, 8)


@dataclass(frozen=True)
class Run:
    """One format. `mantissa` 0: fp32."""

    mantissa: int = 0
    feedback: bool = False

    @property
    def name(self) -> str:
        """Its name in tables and pictures."""
        if not self.mantissa:
            return "fp32"
        return f"bfp{self.mantissa} with feedback" if self.feedback else f"bfp{self.mantissa}"

    def group(self, algorithm: str) -> Group:
        """The process group that uses this format."""
        if not self.mantissa:
            return Group("netfold", algorithm, "fp32")
        return Group("netfold", algorithm, "bfp", bfp=(BLOCK, self.mantissa))


def runs_of(text: str) -> list[Run]:
    """`7,5,3` as fp32 and each of these mantissas, without and with error feedback. Raises UsageError."""
    parts = text.split(",")
    if not all(part.isdigit() and int(part) in MANTISSAS for part in parts):
        raise UsageError(f"--mantissas takes bits from {MANTISSAS[0]} to {MANTISSAS[-1]} with commas, not {text!r}")
    mantissas = dict.fromkeys(int(part) for part in parts)
    return [Run(), *(Run(each, feedback) for each in mantissas for feedback in (False, True))]
