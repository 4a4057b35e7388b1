"""`netfold switch`: hands over to the program netfold-switch, which folds."""

from __future__ import annotations

import typer

from netfold import native


def register(app: typer.Typer) -> None:
    """Add `switch` to the program. All of its arguments, --help too, are the switch's own."""
    app.command(
        "switch",
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
        add_help_option=False,
    )(switch)


def switch(context: typer.Context) -> None:
    """Fold the gradients of workers that connect: run this on the box in the middle. See `netfold switch --help`."""
    native.become(native.SWITCH, context.args)
