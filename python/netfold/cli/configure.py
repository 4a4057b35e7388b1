"""`netfold configure`: what a switch of frames folds, changed while it runs."""

from __future__ import annotations

import http.client
import sys
from typing import Annotated
from urllib.parse import urlencode

import typer

TIMEOUT_S = 5.0
FAILED, WRONG_USAGE = 1, 2


def register(app: typer.Typer) -> None:
    """Add `configure` to the program."""
    app.command("configure")(configure)


def configure(
    ports: Annotated[str, typer.Option(help="Ports whose gradients are folded: 0,1,2 or all or none.")] = "",
    adds: Annotated[str, typer.Option(help="float or int: for dialects whose frames do not say what they carry.")] = "",
    job: Annotated[
        int, typer.Option(min=-1, max=65535, help="Only this job of RoCE workers, from its next epoch on; -1: all.")
    ] = -1,
    metrics: Annotated[
        str, typer.Option(help="HOST:PORT that the switch serves its counters at.", metavar="HOST:PORT")
    ] = "127.0.0.1:9171",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """Change what a switch of frames folds, from the next frame on. Run it on the switch's own machine.

    Ports are numbered from 0 as `netfold switch --dpdk` was given them. Gradients that come in elsewhere are forwarded
    like all other frames. `netfold top` shows the ports, and the registers AGG_MODE and AGG_PORT_CFG.
    """
    wanted = {name: value for name, value in (("ports", ports), ("adds", adds)) if value}
    if not wanted:
        raise typer.BadParameter("give --ports, --adds, or both")
    if job >= 0:
        wanted["job"] = str(job)
    host, colon, port = metrics.rpartition(":")
    if not (colon and host and port.isascii() and port.isdecimal() and 0 < int(port) < 65536):
        raise typer.BadParameter(f"write HOST:PORT, not {metrics}", param_hint="--metrics")
    connection = http.client.HTTPConnection(host, int(port), timeout=TIMEOUT_S)
    try:
        connection.request("POST", f"/folding?{urlencode(wanted)}", headers={"Content-Length": "0"})
        answer = connection.getresponse()
        said = answer.read().decode(errors="replace").strip()
    except (OSError, http.client.HTTPException) as error:
        print(
            f"netfold configure: no switch at {metrics} ({error}): start it with --metrics {metrics}", file=sys.stderr
        )
        raise typer.Exit(FAILED) from None
    finally:
        connection.close()
    if answer.status != http.client.OK:
        print(f"netfold configure: {said}", file=sys.stderr)
        raise typer.Exit(WRONG_USAGE if answer.status == http.client.BAD_REQUEST else FAILED)
    if as_json:
        from netfold.bench.report import envelope, print_json

        print_json(envelope("configure", {"metrics": metrics, **wanted}, [{"said": said}]))
    else:
        print(said)
