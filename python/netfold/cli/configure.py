"""`netfold configure`: changes which gradients a running Ethernet switch sums."""

from __future__ import annotations

import argparse
import http.client
import sys
from urllib.parse import urlencode

from netfold.cli import arguments as cli_arguments

TIMEOUT_S = 5.0
FAILED, WRONG_USAGE = 1, 2


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = cli_arguments.parser(
        "configure",
        """Change which gradients an Ethernet switch sums, from the next frame on. Run it on the switch's own machine.

        Ports have numbers from 0, in the order of the --port options of `netfold switch --dpdk`. The switch forwards
        gradients that arrive at other ports like any frame. `netfold top` shows the ports and the registers AGG_MODE
        and AGG_PORT_CFG.

        For RoCE workers, switches form a tree: a switch with an uplink sends the sum of its workers there, and the
        switch above adds up what all of them send.""",
        (
            "netfold configure --ports 0,1,2",
            "netfold configure --ports all --adds int",
            "netfold configure --job 9 --ports 0,1,2 --adds float",
            "netfold configure --ports 0,1,2,3 --uplink 4",
        ),
    )
    made.add_argument(
        "--ports", default="", help="ports whose gradients the switch sums: a list such as 0,1,2, or all, or none"
    )
    made.add_argument(
        "--adds", default="", help="element type for protocols whose frames do not state one: float or int"
    )
    made.add_argument(
        "--uplink", default="", help="port that leads to the switch above, for RoCE workers: its number, or none"
    )
    made.add_argument(
        "--job",
        type=cli_arguments.integer_in(-1, 65535),
        default=-1,
        help="change only this job of RoCE workers, from its next epoch on (default: all jobs)",
    )
    cli_arguments.add_metrics(made)
    cli_arguments.add_json(made)
    return made


def run(arguments: list[str]) -> None:
    """Send the change to the switch. Exits with 1 if no switch answers, with 2 if the switch rejects the change."""
    reader = parser()
    given = reader.parse_args(arguments)
    named = (("ports", given.ports), ("adds", given.adds), ("uplink", given.uplink))
    wanted = {name: value for name, value in named if value}
    if not wanted:
        reader.error("give --ports, --adds, --uplink, or several of them")
    if given.job >= 0:
        wanted["job"] = str(given.job)
    status, said = _post(given.metrics, wanted)
    if status != http.client.OK:
        print(f"netfold configure: {said}", file=sys.stderr)
        sys.exit(WRONG_USAGE if status == http.client.BAD_REQUEST else FAILED)
    if given.as_json:
        from netfold.json_output import envelope, print_json

        print_json(envelope("configure", {"metrics": given.metrics, **wanted}, [{"said": said}]))
    else:
        print(said)


def _post(metrics: str, wanted: dict[str, str]) -> tuple[int, str]:
    """The switch's HTTP status and the text of its answer."""
    host, _, port = metrics.rpartition(":")
    connection = http.client.HTTPConnection(host.strip("[]"), int(port), timeout=TIMEOUT_S)
    try:
        connection.request("POST", f"/folding?{urlencode(wanted)}", headers={"Content-Length": "0"})
        answer = connection.getresponse()
        return answer.status, answer.read().decode(errors="replace").strip()
    except (OSError, http.client.HTTPException) as error:
        print(
            f"netfold configure: no switch answers at {metrics} ({error}): start it with --metrics {metrics}",
            file=sys.stderr,
        )
        sys.exit(FAILED)
    finally:
        connection.close()
