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

from netfold.interfaces import family_of
from netfold.torch import store_values

KEY = "netfold/address/"
LOOPBACK = "127.0.0.1"


def own_address(store: Store, rank: int, size: int, bind: str, timeout_s: float) -> str:
    """This rank's address: `bind` ("host:port", or "") if that names an address of this machine, else the address
    towards the other ranks, or loopback if all of them run here. It is IPv4 unless another rank has only IPv6.

    May wait until all ranks have published theirs, at most `timeout_s` (seconds). Raises RuntimeError that names the
    ranks that did not.
    """
    if size == 1:
        return LOOPBACK
    bound = _bound(bind)
    mine = [bound] if bound else _towards(_store_host(store))
    store.set(f"{KEY}{rank}", ",".join(mine))
    if bound or (len(mine) == 1 and _is_ipv4(mine[0])):
        return mine[0]
    said = {value.decode() for value in store_values.of_all_ranks(store, KEY, size, timeout_s)}
    if len(said) == 1:
        return LOOPBACK
    others = [each.split(",") for each in said - {"", ",".join(mine)}]
    prefers_ipv4 = all(any(map(_is_ipv4, each)) for each in others)
    for family in (prefers_ipv4, not prefers_ipv4):
        ways = [address for each in others for address in each if _is_ipv4(address) == family]
        found = [address for address in mine if _is_ipv4(address) == family]
        found = found or [address for address in map(_source_address, sorted(ways)) if address]
        if found:
            return found[0]
    return LOOPBACK


def _is_ipv4(address: str) -> bool:
    return ":" not in address


def _bound(bind: str) -> str:
    """The address that `bind` names. It is empty if this machine does not have it."""
    host = bind.rpartition(":")[0]
    if not host:
        return ""
    host = host.removeprefix("[").removesuffix("]")
    with socket.socket(family_of(host), socket.SOCK_DGRAM) as probe:
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


def _towards(host: str) -> list[str]:
    """This machine's addresses on the ways to `host`, IPv4 before IPv6 and one of each. Ways over loopback do not
    count."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_DGRAM)
    except OSError:
        return []
    ways = [str(entry[4][0]) for entry in found]
    routes = [[_source_address(way) for way in ways if _is_ipv4(way) == family] for family in (True, False)]
    return [address for each in routes for address in [next(filter(None, each), "")] if address]


def _source_address(destination: str) -> str:
    """This machine's address on the way to `destination`; nothing is sent. It is empty if the way is loopback, or if
    there is no way."""
    with socket.socket(family_of(destination), socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((destination, 9))
        except OSError:
            return ""
        address = str(probe.getsockname()[0])
    return "" if ipaddress.ip_address(address).is_loopback else address
