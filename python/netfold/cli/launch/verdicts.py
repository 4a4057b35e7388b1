"""The checks of several machines together: versions, clocks, MTUs, firewalls and rates, each a line of the doctor's."""

from __future__ import annotations

from statistics import median
from typing import Any

from netfold.cli.checks import MISSING, OK, SLOW, Check
from netfold.cli.launch.machines import Machine

CLOCKS_S = 1.0
SLOW_LINK = 0.7  # of the median rate


def of_facts(machines: list[Machine], needs_torch: bool) -> list[Check]:
    """Compare the machines' facts; `clock_s` among them is how far the clock is ahead of the launcher's."""
    checks = [
        _same(machines, "netfold", "Netfold", required=True, fix="install the same wheel on all machines"),
        _same(machines, "torch", "PyTorch", required=False, fix="install the same version on all machines"),
        _same(machines, "python", "Python", required=False, fix="use the same version on all machines"),
        _clocks(machines),
        _mtus(machines),
    ]
    without = [machine.name for machine in machines if not machine.facts["torch"]]
    if needs_torch and without:
        checks.append(
            Check("PyTorch", MISSING, f"not on {', '.join(without)}", "pip install 'netfold[torch]'", required=True)
        )
    for machine in machines:
        for found in machine.facts["checks"]:
            check = Check(**found)
            if check.status != OK:
                checks.append(
                    Check(f"{machine.name}: {check.name}", check.status, check.found, check.fix, check.required)
                )
    return checks


def _same(machines: list[Machine], fact: str, title: str, required: bool, fix: str) -> Check:
    by_value: dict[str, list[str]] = {}
    for machine in machines:
        by_value.setdefault(machine.facts[fact] or "none", []).append(machine.name)
    if len(by_value) == 1:
        return Check(title, OK, next(iter(by_value)))
    said = "; ".join(f"{value} on {', '.join(names)}" for value, names in by_value.items())
    return Check(title, MISSING if required else SLOW, said, fix, required)


def _clocks(machines: list[Machine]) -> Check:
    ahead = [machine.facts["clock_s"] for machine in machines]
    apart_s = max(ahead) - min(ahead)
    if apart_s < CLOCKS_S:
        return Check("clocks", OK, "the same within a second")
    worst = max(machines, key=lambda machine: abs(machine.facts["clock_s"] - median(ahead)))
    return Check(
        "clocks",
        SLOW,
        f"they differ by {apart_s:.1f} s; {worst.name} most",
        "run an NTP client: logs are hard to compare",
    )


def _mtus(machines: list[Machine]) -> Check:
    mtus = {machine.name: interface["mtu"] for machine in machines if (interface := serving(machine)) is not None}
    if len(set(mtus.values())) <= 1:
        return Check("MTU", OK, f"{next(iter(mtus.values()), 0)} bytes on all" if mtus else "loopback")
    said = ", ".join(f"{mtu} on {name}" for name, mtu in mtus.items())
    return Check(
        "MTU", SLOW, said, "ip link set dev NAME mtu 9000   # on all machines, if all ports carry jumbo frames"
    )


def serving(machine: Machine) -> dict[str, Any] | None:
    """The interface with the address at which the others reach the machine."""
    listed: list[dict[str, Any]] = machine.facts["interfaces"]
    return next((each for each in listed if each["address"] == machine.address), None)


def of_reach(machines: list[Machine], reached: list[dict[str, str]]) -> list[Check]:
    """Which machines cannot reach which: `reached` has each machine's failures by the name of the other."""
    checks = [
        Check(
            f"{machine.name} to {other}",
            MISSING,
            failure,
            "open the firewalls between the machines of a job for TCP and UDP: the kernel chooses the ports",
            required=True,
        )
        for machine, failures in zip(machines, reached, strict=True)
        for other, failure in failures.items()
        if failure
    ]
    return checks or [Check("network", OK, "all machines reach each other over TCP and UDP")]


def of_rates(machines: list[Machine], bytes_s: list[float]) -> list[Check]:
    """The rate at which each machine sent, all at the same time."""
    usual = median(bytes_s)
    told = f"{usual / 1e6:,.0f} MB/s in the median, all machines at the same time"
    checks = [Check("links", OK, told)]
    for machine, rate in zip(machines, bytes_s, strict=True):
        if rate < SLOW_LINK * usual:
            interface = serving(machine)
            negotiated = (
                f" (its NIC: {interface['rate_mbit_s']} Mbit/s)" if interface and interface["rate_mbit_s"] else ""
            )
            checks.append(
                Check(
                    f"link of {machine.name}", SLOW, f"{rate / 1e6:,.0f} MB/s{negotiated}", "look at its cable and port"
                )
            )
    return checks
