"""`netfold agent`: hands over to the program netfold-agent, which folds for the workers of its machine."""

from __future__ import annotations

import typer

from netfold import native


def register(app: typer.Typer) -> None:
    """Add `agent` to the program. All of its arguments, --help too, are the agent's own."""
    app.command(
        "agent",
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
        add_help_option=False,
    )(agent)


def agent(context: typer.Context) -> None:
    """Fold for this machine's workers in a process of its own, off their cores. See `netfold agent --help`."""
    native.become(native.AGENT, context.args)
