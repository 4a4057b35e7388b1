"""Measures how much faster a switch makes the workers: from this machine, or with all workers at the same time."""

from __future__ import annotations

import ctypes
import os
import secrets
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from netfold import capacity
from netfold.cli.checks import MISSING, OK, SLOW, Check

ELEMENTS_MIN, ELEMENTS_MAX = 1 << 16, 1 << 24
LONG_ENOUGH_S = 0.3  # an all-reduce whose time is believed
GROWTH = 4
CONNECT_TIMEOUT_S = 5.0
WAIT_S = 60.0  # for the other workers
LINKS = (1, 2, 4, 8)  # of a switch, in links of a worker


@dataclass(frozen=True)
class Found:
    """Bytes/s that the switch takes from each worker of a job, and through the link of this machine. 0: not
    measured."""

    link_bytes_s: float
    each_bytes_s: float = 0.0


def look(address: str, workers: int, rank: int | None) -> list[Check]:
    """Measure and judge. With a `rank`, all `workers` must call this at the same time."""
    try:
        found = measure(address, workers, rank)
    except RuntimeError as error:
        return [Check("switch", MISSING, str(error), "start `netfold switch` there, or see the message", required=True)]
    return verdict(address, workers, found)


def measure(address: str, workers: int, rank: int | None) -> Found:
    """Rank 0, or the only caller, measures with two workers of this machine. Then all measure together. Raises
    NetfoldError."""
    link = 0.0
    if not rank:
        name = f"netfold-doctor-{secrets.token_hex(4)}"
        with ThreadPoolExecutor(2) as pool:
            link = sum(pool.map(lambda each: _bytes_s(address, name, 2, each, CONNECT_TIMEOUT_S), range(2)))
    if rank is None:
        return Found(link)
    return Found(link, _bytes_s(address, "netfold-doctor", workers, rank, WAIT_S))


def _bytes_s(address: str, job: str, world: int, rank: int, timeout_s: float) -> float:
    """The bytes/s that the switch takes from this rank of a job."""
    from netfold import _core

    secret = os.environ.get("NETFOLD_SECRET", "")
    group = _core.SwitchGroup(
        address, job, world, rank, secret=secret, timeout_s=timeout_s, connect_timeout_s=CONNECT_TIMEOUT_S
    )
    try:
        return _grow(group)
    finally:
        group.close()


def _grow(group: object) -> float:
    """All-reduces of growing size, until one took long enough on every rank; one of 1 element tells them."""
    elements = ELEMENTS_MIN
    while True:
        buffer = (ctypes.c_float * elements)()
        begun = time.monotonic()
        _all_reduce(group, buffer)
        took_s = time.monotonic() - begun
        wants_more = (ctypes.c_float * 1)(float(took_s < LONG_ENOUGH_S and elements < ELEMENTS_MAX))
        _all_reduce(group, wants_more)
        if wants_more[0] == 0:
            return 4 * elements / took_s
        elements *= GROWTH


def _all_reduce(group: object, buffer: ctypes.Array[ctypes.c_float]) -> None:
    at = ctypes.addressof(buffer)
    group.wait(group.all_reduce(at, at, len(buffer), "fp32", "fp32"))  # type: ignore[attr-defined]


def verdict(address: str, workers: int, found: Found) -> list[Check]:
    """One line for what was found, and one for each link that a switch could have."""
    checks = []
    if found.link_bytes_s:
        told = f"{address} takes {found.link_bytes_s / 1e6:,.1f} MB/s from this machine"
        checks.append(Check("switch", OK, told, ""))
    if found.each_bytes_s:
        told = f"{address} takes {found.each_bytes_s / 1e6:,.1f} MB/s from each of {workers} workers at the same time"
        if not found.link_bytes_s:
            return [*checks, Check("switch, all", OK, f"{told}; the worker with --rank 0 says more", "")]
        times = capacity.times_as_fast(workers, found.link_bytes_s, found.each_bytes_s)
        share = capacity.best_share(workers, found.link_bytes_s, found.each_bytes_s)
        told += f": {_gain(times, share)}"
        most = capacity.times_as_fast(workers, found.link_bytes_s, found.link_bytes_s)
        fix = (
            f"a switch with a link of {workers * found.link_bytes_s / 1e6:,.0f} MB/s, or a port for each worker, makes "
            f"that {most:.2f} times"
        )
        return [*checks, Check("switch, all", OK if times > 0.9 * most else SLOW, told, fix)]
    for links in LINKS:
        at_switch = found.link_bytes_s * min(1.0, links / workers)
        times = capacity.times_as_fast(workers, found.link_bytes_s, at_switch)
        share = capacity.best_share(workers, found.link_bytes_s, at_switch)
        like = "like a worker's" if links == 1 else f"of {links} workers' links"
        checks.append(Check(f"{workers} workers", OK, f"if its link is {like}: {_gain(times, share)}", ""))
    return checks


def _gain(times: float, share: float) -> str:
    return f"large all-reduces are {times:.2f} times as fast as without it (it folds {100 * share:.0f}%)"
