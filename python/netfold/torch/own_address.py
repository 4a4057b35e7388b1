"""The address of this machine at which the other ranks of a group reach this rank.

An embedded switch and ranks that reach each other listen there. The name of the machine does not
tell: Debian maps a machine's own name to 127.0.1.1. The route to the host of torch's store does, because all ranks
reach that host. On that host itself the route may be loopback. So every rank publishes its address, and a rank without
one takes its route to another machine's address.
"""

from __future__ import annotations

import ipaddress
import os
import socket
from typing import Any

from torch._C._distributed_c10d import Store

from netfold.torch import store_values

KEY = "netfold/address/"
LOOPBACK = "127.0.0.1"


def own_address(store: Store, rank: int, size: int, bind: str, timeout_s: float) -> str:
    """This rank's address, IPv4 if there is one: `bind` ("host:port", or "") if that names an address of this machine,
    else the address towards the other ranks, or loopback if all of them run here.

    May wait until all ranks have published theirs, at most `timeout_s` (seconds). Raises RuntimeError that names the
    ranks that did not.
    """
    if size == 1:
        return LOOPBACK
    bound = _bound(bind)
    mine = bound or _towards(_store_host(store))
    store.set(f"{KEY}{rank}", mine)
    if bound or (mine and _is_ipv4(mine)):
        return mine
    published = {value.decode() for value in store_values.of_all_ranks(store, KEY, size, timeout_s)}
    if len(published) == 1:
        return LOOPBACK
    for other in sorted(published - {"", mine}, key=lambda address: not _is_ipv4(address)):
        if found := _source_address(other):
            return found
    return mine or LOOPBACK


def need_ipv4(address: str) -> str:
    """The address itself. Raises RuntimeError if it is an IPv6 address: Netfold's own packets need IPv4."""
    if _is_ipv4(address):
        return address
    raise RuntimeError(
        f"netfold: other machines reach this one at {address}, and Netfold needs an IPv4 address; set NETFOLD_BIND to "
        "an IPv4 address of this machine"
    )


def _is_ipv4(address: str) -> bool:
    return ":" not in address


def _bound(bind: str) -> str:
    """The address that `bind` names. It is empty if this machine does not have it."""
    host = bind.rpartition(":")[0]
    if not host:
        return ""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((host, 0))
        except OSError:
            return ""
        address = str(probe.getsockname()[0])
    return "" if ipaddress.ip_address(address).is_unspecified else address


def _store_host(store: Any) -> str:
    """The host of the TCP store behind any number of prefixes. For other stores (files, hashes): the host that torch's
    environment names, or this one."""
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    return getattr(store, "host", "") or os.environ.get("MASTER_ADDR", "") or socket.gethostname()


def _towards(host: str) -> str:
    """This machine's address on the way to `host`. It is empty if the way is loopback, or if there is no way."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_DGRAM)
    except OSError:
        return ""
    families = {entry[0] for entry in found}
    family = socket.AF_INET if socket.AF_INET in families else socket.AF_INET6
    routes = (_source_address(str(entry[4][0])) for entry in found if entry[0] == family)
    return next((address for address in routes if address), "")


def _source_address(destination: str) -> str:
    """This machine's address on the way to `destination`; nothing is sent. It is empty if the way is loopback, or if
    there is no way."""
    with socket.socket(socket.AF_INET if _is_ipv4(destination) else socket.AF_INET6, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((destination, 9))
        except OSError:
            return ""
        address = str(probe.getsockname()[0])
    return "" if ipaddress.ip_address(address).is_loopback else address
