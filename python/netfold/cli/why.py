"""`netfold why`: says which rank of a job is late, and whether its computation or its network is the reason."""

from __future__ import annotations

import argparse
import http.client
import time
from pathlib import Path

from rich.console import Console

from netfold.cli import arguments as cli_arguments
from netfold.cli.top import fetch
from netfold.collective_record import SUFFIX, read_folder
from netfold.json_output import envelope, print_json
from netfold.why import records, switch, timeline
from netfold.why.verdict import Finding, screen


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = cli_arguments.parser(
        "why",
        """Say why a job is slow: which rank the others wait for, how often and how long, and whether that rank computes
        for longer or its network is slow.

        JOB is the name of a job at a switch, as `netfold top` shows it, or the value of NETFOLD_JOB. The command
        watches the switch's counters for some seconds; start the switch with `netfold switch --metrics 0.0.0.0:9171`.

        JOB may also be a folder. A job that runs with NETFOLD_TRACE=FOLDER writes a record of every rank's collectives
        there, with a switch or without one, and also when it fails. Copy the records of all machines into one folder.
        --timeline makes them one file for https://ui.perfetto.dev, with the profiles that torch wrote into the same
        folder (*.pt.trace.json).""",
        ("netfold why resnet --metrics 10.0.0.5:9171", "netfold why records/ --timeline job.json"),
    )
    made.add_argument("job", metavar="JOB|FOLDER", help="name of a job at the switch, or a folder with records")
    cli_arguments.add_metrics(made)
    made.add_argument(
        "--seconds",
        type=cli_arguments.number_in(0.1, 3600),
        default=10.0,
        help="how long to watch the switch (default: %(default)s)",
    )
    made.add_argument("--timeline", type=Path, metavar="FILE", help="of records: write one timeline of all ranks here")
    cli_arguments.add_json(made)
    return made


def run(arguments: list[str]) -> None:
    """Print the findings. Exits with 1 if the job or the records cannot be read, 2 for a wrong command line."""
    reader = parser()
    given = reader.parse_args(arguments)
    folder = Path(given.job)
    if given.timeline is not None and not folder.is_dir():
        reader.error(f"--timeline needs records, and {given.job} is not a folder: run the job with NETFOLD_TRACE")
    try:
        if given.timeline is not None:  # also of one rank
            timeline.write(folder, given.timeline)
        found = _of_folder(folder) if folder.is_dir() else _of_switch(given.job, given.metrics, given.seconds)
    except http.client.HTTPException as error:
        cli_arguments.end(reader.prog, f"cannot read the counters at {given.metrics}: {error!r}", 1)
    except (OSError, ValueError) as error:
        cli_arguments.end(reader.prog, str(error), 1)
    except KeyboardInterrupt:
        cli_arguments.end(reader.prog, "interrupted", 1)
    if given.as_json:
        parameters = {"job": given.job, "seconds": given.seconds}
        print_json(envelope("why", parameters, [finding.as_json() for finding in found]))
        return
    console = Console(highlight=False)
    for finding in found:
        console.print(screen(finding))
    if given.timeline is not None:
        console.print(f"\nThe timeline is in {given.timeline}: open it at https://ui.perfetto.dev")


def _of_switch(job: str, metrics: str, seconds: float) -> list[Finding]:
    try:
        before = fetch(metrics)
    except OSError as error:
        raise ValueError(
            f"cannot read the counters at {metrics} ({error}): start the switch with --metrics {metrics}. Records "
            f"cannot be read either: {job} is not a folder"
        ) from None
    switch.jobs_of(before, job)
    time.sleep(seconds)
    return switch.find(before, fetch(metrics), job)


def _of_folder(folder: Path) -> list[Finding]:
    """A finding for each group with records of several ranks. Raises ValueError if every group has one rank's only."""
    groups = read_folder(folder)
    found = [records.find(group, of_ranks) for group, of_ranks in groups.items() if len(of_ranks) > 1]
    if not found:
        record = next(iter(groups.values()))[0]
        raise ValueError(
            f"{folder} holds the record of only one rank (rank {record.rank} of {record.world}, on {record.host}), and "
            f"this command compares ranks: copy the files *{SUFFIX} of the other ranks into the folder"
            if record.world > 1
            else f"the job in {folder} has one rank, which waits for no other: there is nothing to compare"
        )
    return found
