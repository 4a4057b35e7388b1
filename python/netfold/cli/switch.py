"""`netfold switch`: hands over to the program netfold-switch, which folds; or to hardware, simulated."""

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
    if any(word.startswith("--engine") for word in context.args):
        from netfold.cli import rtl_engine

        rtl_engine.app(context.args, prog_name="netfold switch")
    native.become(native.SWITCH, context.args)
