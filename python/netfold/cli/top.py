"""`netfold top`: shows a running switch, from the counters that it serves with --metrics."""

from __future__ import annotations

import argparse
import http.client
import json
import sys
import time
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from netfold.cli import arguments as cli_arguments

TIMEOUT_S = 5.0
NAME_COLUMNS = 14  # the table fits 80 columns
# Rates of a job: the column of `netfold top`, and the switch's counters that it adds.
RATES = {
    "contributions_s": ("contributions",),
    "results_s": ("results_sent",),
    "packets_s": ("contributions", "probes", "duplicates", "stale", "results_sent", "results_resent", "missing_sent"),
    "retransmissions_s": ("results_resent", "missing_sent"),
    "probes_s": ("probes",),
}


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = cli_arguments.parser(
        "top",
        """Watch a switch: the rate of each job, the packets that are sent again, and the packets that are dropped, by
        reason.

        Start the switch with `netfold switch --metrics 0.0.0.0:9171`. Ctrl-C ends this command, not the switch.""",
        ("netfold top", "netfold top --metrics 10.0.0.5:9171 --interval-s 5", "netfold top --json"),
    )
    cli_arguments.add_metrics(made)
    made.add_argument(
        "--interval-s",
        type=cli_arguments.number_in(0.1, 3600),
        default=1.0,
        help="seconds between two updates (default: %(default)s)",
    )
    made.add_argument("--once", action="store_true", help="print one table after one interval, and end")
    cli_arguments.add_json(made)
    return made


def run(arguments: list[str]) -> None:
    """Watch until Ctrl-C, or print once. Exits with 1 if the counters cannot be read."""
    given = parser().parse_args(arguments)
    metrics, interval_s = given.metrics, given.interval_s
    console = Console(stderr=given.as_json)
    try:
        before = fetch(metrics)
        if given.as_json:
            time.sleep(interval_s)
            _print_json(metrics, interval_s, summary(before, fetch(metrics)))
        elif given.once:
            time.sleep(interval_s)
            console.print(screen(summary(before, fetch(metrics))))
        else:
            _watch(console, metrics, interval_s, before)
    except (OSError, ValueError, http.client.HTTPException) as error:
        print(
            f"netfold top: cannot read the counters at {metrics} ({error}): start the switch with "
            f"--metrics {metrics}, and check that no firewall blocks it",
            file=sys.stderr,
        )
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(0)


def fetch(metrics: str) -> dict[str, Any]:
    """The switch's counters as they are now."""
    host, _, port = metrics.rpartition(":")
    connection = http.client.HTTPConnection(host.strip("[]"), int(port), timeout=TIMEOUT_S)
    try:
        connection.request("GET", "/stats.json")
        answer = connection.getresponse()
        body = answer.read()
    finally:
        connection.close()
    if answer.status != http.client.OK:
        raise ValueError(f"it answers {answer.status} {answer.reason}")
    stats = json.loads(body)
    if not isinstance(stats, dict) or "uptime_s" not in stats:
        raise ValueError("it is not a Netfold switch")
    return stats


def summary(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """The later of two samples, with rates added to each job and to each reason of a drop."""
    elapsed_s = after["uptime_s"] - before["uptime_s"]
    if elapsed_s <= 0:  # the switch was restarted in between: its counters began at 0
        before, elapsed_s = {"jobs": [], "drops": {}, "link": {}, "threads": []}, max(after["uptime_s"], 1e-9)
    known = {_identity(job): job for job in before["jobs"]}
    jobs = [_with_rates(job, known.get(_identity(job), {}), elapsed_s) for job in after["jobs"]]
    drops_s = {reason: (n - before["drops"].get(reason, 0)) / elapsed_s for reason, n in after["drops"].items()}
    link = {
        f"{name}_s": (count - before["link"].get(name, 0)) / elapsed_s
        for name, count in after["link"].items()
        if name.endswith(("_packets", "_bytes"))
    }
    used = {thread["name"]: thread for thread in before["threads"]}
    threads = [_with_load(thread, used.get(thread["name"], {}), elapsed_s) for thread in after["threads"]]
    return after | {"threads": threads, "jobs": jobs, "drops_s": drops_s, "interval_s": elapsed_s, "link_rates": link}


def _identity(job: dict[str, Any]) -> tuple[str, int, int, str]:
    return job["name"], job["id"], job["epoch"], job["state"]


def _with_rates(job: dict[str, Any], before: dict[str, Any], elapsed_s: float) -> dict[str, Any]:
    def grown(name: str) -> float:
        return float(job.get(name, 0) - before.get(name, 0)) / elapsed_s  # an older switch counts less

    known = before.get("came_last", [])
    last = [count - (known[rank] if rank < len(known) else 0) for rank, count in enumerate(job["came_last"])]
    rates: dict[str, Any] = {rate: sum(grown(name) for name in names) for rate, names in RATES.items()}
    # The folded bytes are the received bytes without headers. That is exact enough here, and saves a counter per
    # packet.
    rates["came_last"] = last
    rates["up_gbit_s"], rates["down_gbit_s"] = (grown(f"up_{way}_bytes") * 8e-9 for way in ("sent", "received"))
    return job | rates | {"folded_gbit_s": grown("received_bytes") * 8e-9, "sent_gbit_s": grown("sent_bytes") * 8e-9}


def _with_load(thread: dict[str, Any], before: dict[str, Any], elapsed_s: float) -> dict[str, Any]:
    """Adds the fraction of a core that a thread used, and, if it has a link, what a whole core would carry."""
    cpu_s = thread["cpu_s"] - before.get("cpu_s", 0.0)
    load: dict[str, Any] = {"cpu": cpu_s / elapsed_s}
    if "received_bytes" in thread and cpu_s > 0:
        names = ("received_bytes", "sent_bytes")
        load["gbit_s_core"] = sum(thread[name] - before.get(name, 0) for name in names) * 8e-9 / cpu_s
    return thread | load


def screen(stats: dict[str, Any]) -> Group:
    """One sample as text and tables."""
    mebibyte = 1 << 20
    link = stats["link_rates"]
    head = Text(
        f"switch {stats['address']}{_below(stats)}, up {_duration(stats['uptime_s'])}: "
        f"{len(stats['jobs'])} of {stats['jobs_max']} jobs, "
        f"{stats['memory_bytes'] / mebibyte:.1f} of {stats['memory_max_bytes'] / mebibyte:.0f} MiB, "
        f"{stats['connections']} connections; in {link['received_packets_s']:,.0f} packets/s, "
        f"out {link['sent_packets_s']:,.0f} packets/s; {stats['jobs_finished']} jobs finished, "
        f"{stats['jobs_failed']} failed, {stats['joins_refused']} joins refused"
    )
    frames = _frame_tables(stats["frames"]) if "frames" in stats else []
    shares = [_share(job) for job in stats["jobs"] if "of_switch" in job]
    shares += [_uplink(job) for job in stats["jobs"] if "above" in job and job["state"] == "running"]
    tables = (_job_table(stats["jobs"]), *shares, _thread_table(stats["threads"]), _drop_table(stats), *frames)
    return Group(head, *tables)


def _job_table(jobs: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("job", no_wrap=True)
    table.add_column("state", no_wrap=True)
    for column in (
        "ranks",
        "age",
        "Gbit/s\nin",
        "Gbit/s\nout",
        "packets\n/s",
        "resent\n/s",
        "probes\n/s",
        "last\nrank",
    ):
        table.add_column(column, justify="right", no_wrap=True)
    for job in jobs:
        table.add_row(
            Text(shortened(job["name"])),
            job["state"],
            f"{len(job['present'])}/{job['world']}",
            _age(job["age_s"]),
            f"{job['folded_gbit_s']:.3f}",
            f"{job['sent_gbit_s']:.3f}",
            f"{job['packets_s']:,.0f}",
            f"{job['retransmissions_s']:,.0f}",
            f"{job['probes_s']:,.0f}",
            _latest(job["came_last"], job.get("contributors", [])),
        )
    if not jobs:
        table.add_row("no job", "", *[""] * 8, style="dim")
    return table


def shortened(name: str) -> str:
    """A job's name in NAME_COLUMNS columns: jobs differ at their names' ends, so the middle is left out."""
    if len(name) <= NAME_COLUMNS:
        return name
    tail = (NAME_COLUMNS - 1) * 2 // 3
    return f"{name[: NAME_COLUMNS - 1 - tail]}…{name[-tail:]}"


def _latest(came_last: list[int], contributors: list[dict[str, Any]]) -> str:
    """The rank whose contribution was the last one of most chunks, and of how many: others wait for it. Ranks below
    another switch as 4-7."""
    if len(came_last) < 2 or not any(came_last):
        return ""
    place = max(range(len(came_last)), key=came_last.__getitem__)
    who = str(place)
    if contributors:
        first, ranks = contributors[place]["first_rank"], contributors[place]["ranks"]
        who = str(first) if ranks == 1 else f"{first}-{first + ranks - 1}"
    return f"{who}: {100 * came_last[place] / sum(came_last):.0f}%"


def _below(stats: dict[str, Any]) -> str:
    return f" below {stats['parent']}" if "parent" in stats else ""


def _uplink(job: dict[str, Any]) -> Text:
    """The traffic of a job to the switch above, and from it."""
    return Text(
        f"{job['name']}: to the switch above, {job['above']}: {job['up_gbit_s']:.3f} Gbit/s up, "
        f"{job['down_gbit_s']:.3f} Gbit/s down; {job['up_sums']:,} sums, {job['up_resent']:,} sent again"
    )


def _thread_table(threads: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("thread", "core used", "Gbit/s a core"):
        table.add_column(column, justify="left" if column == "thread" else "right")
    for thread in threads:
        carries = f"{thread['gbit_s_core']:.2f}" if "gbit_s_core" in thread else ""
        table.add_row(thread["name"], f"{100 * thread['cpu']:.0f}%", carries)
    return table


def _share(job: dict[str, Any]) -> Text:
    """The share of a job that divides its tensors, and the reason: what the switch takes of a worker's link."""
    return Text(
        f"{job['name']}: the switch folds {100 * job['of_switch']:.0f}% of each large tensor, the workers the rest: it "
        f"takes {job['switch_bytes_s'] / 1e6:,.1f} MB/s from each worker, whose link carries "
        f"{job['link_bytes_s'] / 1e6:,.1f} MB/s"
    )


def _drop_table(stats: dict[str, Any]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("dropped because")
    table.add_column("packets", justify="right")
    table.add_column("packets/s", justify="right")
    counted = [(reason, count) for reason, count in stats["drops"].items() if count > 0]
    for reason, count in sorted(counted, key=lambda one: -one[1]):
        table.add_row(reason.replace("_", " "), f"{count:,}", f"{stats['drops_s'][reason]:,.0f}")
    if not counted:
        table.add_row("no packet was dropped", "", "", style="dim")
    return table


# Columns of a port, in this order. Other counters are drops; the table shows those that are not 0.
PORT_COLUMNS = ("received_frames", "sent_frames", "taken", "forwarded", "flooded", "filtered", "handed_over")
PORT_DROPS = (
    "missed_frames",
    "receive_errors",
    "dropped_by_protocol",
    "dropped_handover_full",
    "unread_handover_full",
    "dropped_port_full",
)


def _frame_tables(frames: dict[str, Any]) -> list[Table | Text]:
    ports = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("port", "", "folds", *(name.replace("_", "\n") for name in PORT_COLUMNS)):
        ports.add_column(column, justify="right" if column not in ("port", "") else "left")
    ports.add_column("dropped, and other faults")
    for number, port in enumerate(frames["ports"]):
        lost = [name for name in port if name.startswith("flaw_") or name in PORT_DROPS]
        told = ", ".join(
            f"{name.removeprefix('flaw_').replace('_', ' ')} {port[name]:,}" for name in lost if port[name]
        )
        folds = "uplink" if port["uplink"] else "yes" if port["folds"] else "no"
        state = ("" if port["up"] else "down", folds)
        ports.add_row(Text(f"{number} {port['name']}"), *state, *(f"{port[name]:,}" for name in PORT_COLUMNS), told)
    known = frames["addresses"]
    registers = Text(
        f"AGG_MODE {frames['AGG_MODE']}, AGG_PORT_CFG {frames['AGG_PORT_CFG']}; {known['known']:,} of "
        f"{known['capacity']:,} addresses known, {known['moved']:,} moved, {known['pushed_out']:,} pushed out"
    )
    protocols = Table(box=None, pad_edge=False, header_style="bold")
    protocols.add_column("protocol")
    protocols.add_column("counted")
    for protocol in frames["protocols"]:
        counted = ((name, count) for name, count in protocol.items() if name != "name" and count)
        protocols.add_row(
            protocol["name"], ", ".join(f"{name.replace('_', ' ')} {n:,}" for name, n in counted) or "nothing"
        )
    return [ports, registers, protocols]


def _age(seconds: float) -> str:
    """A duration in 6 columns."""
    minutes = int(seconds) // 60
    return _duration(seconds) if minutes < 60 else f"{minutes // 60}h{minutes % 60:02}"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _watch(console: Console, metrics: str, interval_s: float, before: dict[str, Any]) -> None:
    with Live(Text("first look ..."), console=console, screen=console.is_terminal, auto_refresh=False) as live:
        while True:
            time.sleep(interval_s)
            after = fetch(metrics)
            live.update(screen(summary(before, after)), refresh=True)
            before = after


def _print_json(metrics: str, interval_s: float, stats: dict[str, Any]) -> None:
    from netfold.json_output import envelope, print_json

    parameters = {"metrics": metrics, "interval_s": interval_s}
    print_json(envelope("top", parameters, [{"system": "netfold", **stats}]))
