"""`netfold rtl mutate`: a mutation campaign on the hardware's sources."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Annotated

import typer

from netfold_lab.cli.rtl_screen import errors, finish, progress
from netfold_lab.outputs import output


def mutate(
    module: Annotated[list[str] | None, typer.Option(help="Module to change; may be repeated. Default: all.")] = None,
    count: Annotated[int, typer.Option(min=1, help="Number of mutants.")] = 300,
    seed: Annotated[int, typer.Option(help="Chooses the mutants, and seeds their tests.")] = 1,
    jobs: Annotated[int, typer.Option(min=1, help="Mutants at a time, each in its own copy of the sources.")] = 1,
    files: Annotated[
        int, typer.Option("--files", "--folders", min=1, help="Files of tests per module, smallest design first.")
    ] = 2,
    out: Annotated[Path | None, output("JSON file of outcomes; a later run with it continues.")] = None,
    listed: Annotated[bool, typer.Option("--listed", help="The mutants of rtl/tests/mutants.toml instead.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Change single lines of the hardware, run the tests of each changed module, and print the changes that no test
    noticed. Fails if there is one."""
    from netfold_lab.rtl import mutants
    from netfold_lab.rtl import mutate as campaigns

    with errors(), progress() as say:
        chosen = mutants.listed() if listed else mutants.choose(module or [], count, seed)
        if listed and module:
            chosen = [mutant for mutant in chosen if mutant.module in module]
        if not chosen:
            raise RuntimeError(f"no line can be changed in {', '.join(module or [])}; name other modules")
        outcomes = campaigns.campaign(chosen, files, seed, jobs, out, say)
    missed = [one for one in outcomes if one.state in ("survived", "untested")]
    if not as_json:
        for one in missed:
            typer.echo(f"{one.name or one.key} ({one.operator}), {one.state}: {one.by}")
            before, after = one.before.split("\n"), one.after.split("\n")
            path = f"rtl/{one.file}"
            for line in difflib.unified_diff(before, after, path, f"line {one.line}", lineterm="", n=0):
                typer.echo(f"  {line}")
    parameters = {"modules": module or [], "count": count, "seed": seed, "files": files, "listed": listed}
    results = (
        [campaigns.totals(outcomes), *(vars(one) for one in outcomes)] if as_json else [campaigns.totals(outcomes)]
    )
    finish("mutate", parameters, results, as_json, bool(missed))
