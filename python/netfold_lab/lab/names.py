"""The names of a lab's parts. Every name starts with the lab's ID, so that remains are recognized by name."""

from __future__ import annotations

import re
import secrets

LAB_ID = re.compile(r"^nf[0-9a-f]{6}$")
NAMESPACE = re.compile(r"^(nf[0-9a-f]{6})-(fabric|switch[1-9]?|[sw][0-9]+)$")
NETWORK = "10.77.0"  # only inside the lab's own namespaces, so it cannot conflict with the host's networks
INTERFACE = "eth0"  # the interface of every worker and of each switch, seen from inside
UPLINK = "up0"  # of a switch below another one: a link of its own to that
SWITCHES_MAX = 9  # workers have the addresses from 10 on


def new_lab_id() -> str:
    """A new ID, unique enough for one machine."""
    return f"nf{secrets.token_hex(3)}"


def fabric(lab_id: str) -> str:
    """The namespace of the bridge that connects all links."""
    return f"{lab_id}-fabric"


def switch_node(number: int = 0) -> str:
    """The name of a switch that folds: `switch`, `switch1`, ..."""
    return f"switch{number or ''}"


def switch(lab_id: str, number: int = 0) -> str:
    """The namespace of a switch that folds."""
    return f"{lab_id}-{switch_node(number)}"


def worker(lab_id: str, rank: int) -> str:
    """The namespace of one worker."""
    return f"{lab_id}-w{rank}"


def router(lab_id: str, number: int) -> str:
    """The namespace of one switch of a routed fabric."""
    return f"{lab_id}-s{number}"


def switch_address(number: int = 0) -> str:
    """A switch's address in the lab."""
    return f"{NETWORK}.{1 + number}"


def uplink_addresses(leaf: int) -> tuple[str, str]:
    """The addresses of a leaf's uplink: at the switch above, and at the leaf."""
    return f"10.78.0.{2 * leaf}", f"10.78.0.{2 * leaf + 1}"


def switch_metrics() -> str:
    """The address at which an Ethernet switch serves its counters and accepts `netfold configure`, seen from its own
    namespace."""
    return f"{switch_address()}:9171"


def worker_address(rank: int) -> str:
    """A worker's address in the lab."""
    return f"{NETWORK}.{10 + rank}"


def lab_of(namespace: str) -> str | None:
    """The ID of the lab that a namespace belongs to, from its name; None for other namespaces."""
    match = NAMESPACE.match(namespace)
    return match.group(1) if match else None
