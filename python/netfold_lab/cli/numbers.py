"""Checks numbers on a command line: rejects NaN, infinity and values out of range."""

from __future__ import annotations

import math
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from netfold_lab.cli.help import FlagsWithoutType, commands

LARGEST = 10**15  # of bytes, elements, seconds: the core's integers have 64 bits


class _Checked:
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse as usual, then check."""
        left = super().parse_args(ctx, args)  # type: ignore[misc]
        check(self, ctx)
        return left


class Command(_Checked, FlagsWithoutType, TyperCommand):
    """A command that rejects NaN, infinity and values out of range."""


class Group(_Checked, FlagsWithoutType, TyperGroup):
    """Like Command, for a group."""


def check(command: Any, ctx: Any) -> None:
    """Raises typer.BadParameter for a number that is not finite or is too large."""
    for param in command.params:
        value = ctx.params.get(param.name)
        if isinstance(value, int | float) and not (math.isfinite(value) and abs(value) <= LARGEST):
            raise typer.BadParameter(f"{value} is not a number from {-LARGEST:.0e} to {LARGEST:.0e}", ctx, param)


def guard(app: typer.Typer) -> None:
    """Make every command of `app` check its numbers."""
    for _, record in commands(app):
        is_group = hasattr(record, "typer_instance")
        if is_group and not record.typer_instance.info.cls:
            record.cls = Group
        elif not is_group and record.cls in (None, TyperCommand):
            record.cls = Command
