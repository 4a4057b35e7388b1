"""The ranks of a process group find their switch, their job's name and their secret, and agree on the format.

The group's rank 0 decides and publishes one line of JSON through torch's store; the other ranks read it. If no switch
is named, rank 0 starts one in its own process, at an address that the other ranks can reach.
"""

from __future__ import annotations

import functools
import json
import re
import secrets
from dataclasses import dataclass, replace
from datetime import timedelta

import torch.distributed as dist
from torch._C._distributed_c10d import Store

from netfold.algorithms import IN_NETWORK, WITH_SWITCH
from netfold.interfaces import in_address
from netfold.topology import file as topology_file
from netfold.topology.file import Topology
from netfold.torch import roce
from netfold.torch.embedded_switch import EmbeddedSwitch
from netfold.torch.settings import Settings

KEY = "netfold/agreement"


@dataclass(frozen=True)
class Agreement:
    """The values that all ranks of a group share: the switch's address (several with commas), the job's name and
    secret, the algorithm and the format. With a host algorithm, switch and job are empty."""

    switch: str
    job: str
    secret: str
    format: str
    bfp: tuple[int, int]
    algorithm: str
    order: str
    bigraph: tuple[int, int]
    group: int
    engine: str
    topology: str = ""  # the digest of the topology file, which describes the BiGraph
    place: str = ""  # where the switch is, for errors, if it has no process of its own

    def switches(self) -> list[str]:
        """The addresses of the switches."""
        return self.switch.split(",") if self.switch else []


def agree(
    store: Store, rank: int, settings: Settings, group: str, host: str, timeout_s: float
) -> tuple[Agreement, EmbeddedSwitch | None]:
    """Decide (rank 0) or read (other ranks) the group's agreement. Only rank 0 may also get an embedded switch, at this
    machine's address `host`.

    Waits for rank 0 at most `timeout_s`. Raises RuntimeError if rank 0 publishes nothing or cannot start its switch,
    and ValueError if this rank's settings contradict rank 0's.
    """
    if rank == 0:
        try:
            agreement, embedded = _decide(settings, group, host)
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
            f"netfold: rank 0 of the group did not publish within {timeout_s:g} s which switch to use: see its output"
        ) from error
    published = json.loads(store.get(KEY))
    if "error" in published:
        raise RuntimeError(f"netfold: rank 0 of the group could not start: {published['error']}")
    pairs = {name: tuple(published[name]) for name in ("bfp", "bigraph")}
    agreement = Agreement(**{**published, **pairs})
    _compare(agreement, settings, rank)
    if agreement.switch and settings.switch and settings.switch != agreement.switch:
        agreement = Agreement(**{**agreement.__dict__, "switch": settings.switch})  # the same switches by other names
    return agreement, None


def _decide(settings: Settings, group: str, host: str) -> tuple[Agreement, EmbeddedSwitch | None]:
    topology = _topology(settings, 0)
    digest = topology.digest if topology else ""
    algorithm = settings.algorithm_to_take()
    alike = (
        settings.format,
        settings.bfp,
        algorithm,
        settings.order_to_take(),
        settings.bigraph,
        settings.group,
        settings.engine,
        digest,
    )
    secret = settings.secret or secrets.token_hex(16)
    if settings.roce:
        return Agreement("", str(roce.take_job(settings.roce)), secret, *alike), None
    if algorithm not in WITH_SWITCH:
        return Agreement("", "", secret, *alike), None
    embedded, place = None, ""
    switch = settings.switch
    if not switch:
        secret = settings.secret or own_secret()
        embedded = EmbeddedSwitch.hold(settings.bind or f"{in_address(host)}:0", host, secret, settings.require_auth)
        switch, place = embedded.address, "in rank 0's process"
    # Torch names its groups. Every group of one NETFOLD_JOB is a job of its own at the switch.
    suffix = re.sub(r"[^A-Za-z0-9_.-]", "-", group)[:24]
    name = f"{settings.job}/{suffix}" if settings.job else f"torch-{secrets.token_hex(8)}"
    return Agreement(switch, name, secret, *alike, place), embedded


@functools.cache
def own_secret() -> str:
    """The secret of this process's switches where NETFOLD_SECRET gives none. Strangers cannot use such a switch; groups
    with the same rank 0 share one."""
    return secrets.token_hex(16)


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
    if (
        not settings.algorithm and settings.algorithm_to_take() != IN_NETWORK
    ):  # this rank names no algorithm: rank 0's counts
        settings = replace(settings, algorithm=agreement.algorithm)
    settings = replace(settings, algorithm=settings.algorithm_to_take(), order=settings.order_to_take())
    for name in ("format", "bfp", "algorithm", "order", "bigraph", "group", "engine"):
        if getattr(settings, name) != getattr(agreement, name):
            raise ValueError(
                f"netfold: rank {rank} has {name}={getattr(settings, name)!r}, rank 0 has "
                f"{getattr(agreement, name)!r}; set the same NETFOLD_{name.upper()} on all ranks"
            )
    named, agreed = settings.switches(), agreement.switches()
    if (
        settings.algorithm in WITH_SWITCH
        and named
        and (len(named) != len(agreed) or (named != agreed and set(named) == set(agreed)))
    ):
        raise ValueError(
            f"netfold: rank {rank} names the switches {settings.switch}, rank 0 names {agreement.switch}; set "
            "NETFOLD_SWITCH to the same switches in the same order on all ranks"
        )
    if settings.secret and settings.secret != agreement.secret:
        raise ValueError(f"netfold: rank {rank} and rank 0 have different NETFOLD_SECRET; set the same on all ranks")
