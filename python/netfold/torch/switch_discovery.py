"""How the ranks of a process group find their switch, their job's name and their secret, and agree on what travels how.

The group's rank 0 decides and publishes one line of JSON through torch's store; the others read it. Where no switch is
named, rank 0 starts one in its own process, on an address that the other ranks reach.
"""

from __future__ import annotations

import ipaddress
import json
import os
import re
import secrets
import socket
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch._C._distributed_c10d import Store

from netfold.algorithms import IN_NETWORK
from netfold.topology import file as topology_file
from netfold.topology.file import Topology
from netfold.torch.embedded_switch import EmbeddedSwitch
from netfold.torch.settings import Settings

KEY = "netfold/agreement"


@dataclass(frozen=True)
class Agreement:
    """What all ranks of a group share: where the switch is, the job's name and secret, what travels. With a host
    algorithm switch and job are empty."""

    switch: str
    job: str
    secret: str
    format: str
    bfp: tuple[int, int]
    algorithm: str
    bigraph: tuple[int, int]
    group: int
    engine: str
    topology: str = ""  # the digest of the topology file, which says what the BiGraph is


def agree(
    store: Store, rank: int, settings: Settings, group: str, timeout_s: float
) -> tuple[Agreement, EmbeddedSwitch | None]:
    """Decide (rank 0) or learn (others) the group's agreement; only rank 0 may get an embedded switch to hold.

    Waits for rank 0 for `timeout_s` at most. Raises RuntimeError where rank 0 said nothing or could not start its
    switch, and ValueError where this rank's settings contradict rank 0's.
    """
    if rank == 0:
        try:
            agreement, embedded = _decide(store, settings, group)
        except Exception as error:
            store.set(KEY, json.dumps({"error": str(error)}))
            raise
        store.set(KEY, json.dumps(agreement.__dict__))
        return agreement, embedded
    try:
        store.wait([KEY], timedelta(seconds=timeout_s))
    except dist.DistNetworkError:
        raise
    except RuntimeError as error:  # DistStoreError, or the file store's RuntimeError
        raise RuntimeError(
            f"netfold: rank 0 of the group did not say within {timeout_s:g} s which switch to use: see its output"
        ) from error
    published = json.loads(store.get(KEY))
    if "error" in published:
        raise RuntimeError(f"netfold: rank 0 of the group could not start: {published['error']}")
    pairs = {name: tuple(published[name]) for name in ("bfp", "bigraph")}
    agreement = Agreement(**{**published, **pairs})
    _compare(agreement, settings, rank)
    if settings.switch and settings.switch != agreement.switch:
        agreement = Agreement(**{**agreement.__dict__, "switch": settings.switch})  # the same switch by another name
    return agreement, None


def _decide(store: Store, settings: Settings, group: str) -> tuple[Agreement, EmbeddedSwitch | None]:
    topology = _topology(settings, 0)
    bigraph, digest = (topology.shape, topology.digest) if topology else (settings.bigraph, "")
    algorithm = settings.algorithm_to_take()
    alike = (settings.format, settings.bfp, algorithm, bigraph, settings.group, settings.engine, digest)
    secret = settings.secret or secrets.token_hex(16)
    if algorithm != IN_NETWORK:
        return Agreement("", "", secret, *alike), None
    embedded = None
    switch = settings.switch
    if not switch:
        host = reachable_host(store)
        # Without NETFOLD_SECRET each job has a token of its own, and all share one switch; tags need a switch's secret.
        known = secret if settings.require_auth else settings.secret
        embedded = EmbeddedSwitch.hold(settings.bind or f"{host}:0", host, known, settings.require_auth)
        switch = embedded.address
    # torch names its groups; every group of one NETFOLD_JOB is a job of its own at the switch.
    suffix = re.sub(r"[^A-Za-z0-9_.-]", "-", group)[:24]
    name = f"{settings.job}/{suffix}" if settings.job else f"torch-{secrets.token_hex(8)}"
    return Agreement(switch, name, secret, *alike), embedded


def _topology(settings: Settings, rank: int) -> Topology | None:
    try:
        return topology_file.read(settings.topology) if settings.topology else None
    except ValueError as error:
        raise ValueError(f"netfold: rank {rank}: {error}") from None


def _compare(agreement: Agreement, settings: Settings, rank: int) -> None:
    topology = _topology(settings, rank)
    if (topology.digest if topology else "") != agreement.topology:
        mine, others = (settings.topology or "none"), ("another" if agreement.topology else "none")
        raise ValueError(
            f"netfold: rank {rank} has the topology file {mine}, rank 0 has {others}; give all ranks a "
            "NETFOLD_TOPOLOGY with the same content"
        )
    settings = replace(settings, bigraph=topology.shape) if topology else settings
    if not settings.algorithm and settings.algorithm_to_take() != IN_NETWORK:  # nothing is said here: as rank 0 says
        settings = replace(settings, algorithm=agreement.algorithm)
    settings = replace(settings, algorithm=settings.algorithm_to_take())
    for name in ("format", "bfp", "algorithm", "bigraph", "group", "engine"):
        if getattr(settings, name) != getattr(agreement, name):
            raise ValueError(
                f"netfold: rank {rank} has {name}={getattr(settings, name)!r}, rank 0 has "
                f"{getattr(agreement, name)!r}; set NETFOLD_{name.upper()} alike on all ranks"
            )
    if settings.secret and settings.secret != agreement.secret:
        raise ValueError(f"netfold: rank {rank} and rank 0 have different NETFOLD_SECRET; set it alike on all ranks")


def reachable_host(store: Store) -> str:
    """The address of this machine that the group's other ranks can reach.

    It is the address this machine uses towards the host of torch's store, which all ranks reach; loopback where that
    host is this machine under a loopback name, and all ranks of the job run on it. Raises RuntimeError where the ranks
    run on several machines and that host has no IPv4 address.
    """
    master = _store_host(store) or os.environ.get("MASTER_ADDR", "")
    if master in ("", "localhost"):
        return "127.0.0.1"
    one_machine = os.environ.get("LOCAL_WORLD_SIZE", "1") == os.environ.get("WORLD_SIZE", "1")
    literal = master.startswith("127.") or master == "::1"
    try:
        found = socket.getaddrinfo(master, None, family=socket.AF_INET)
        resolved = ipaddress.ip_address(found[0][4][0])
    except OSError as error:
        if one_machine or literal:
            return "127.0.0.1"
        raise RuntimeError(
            f"netfold: {master} has no IPv4 address ({error.strerror}), so rank 0 does not know where the other "
            "machines reach its switch; set NETFOLD_BIND to an address of rank 0's machine, or NETFOLD_SWITCH"
        ) from None
    if resolved.is_loopback:
        # Debian maps a machine's own name to 127.0.1.1: that says nothing about ranks on other machines.
        return "127.0.0.1" if one_machine or literal else (_source_address("192.0.2.1") or "127.0.0.1")
    return _source_address(str(resolved)) or str(resolved)


def _store_host(store: Any) -> str:
    """The TCP host below any number of prefixes; "" for stores without one (files, hashes)."""
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    return getattr(store, "host", "")


def _source_address(destination: str) -> str:
    """The address this machine would send from towards `destination`; nothing is sent. "" where there is no route."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((destination, 9))
        except OSError:
            return ""
        return probe.getsockname()[0]
