"""The workers of a training job: started at a site, asked one thing at a time, ended whatever happens."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import psutil

from netfold.bench.control import Ranks
from netfold.bench.sites import Site
from netfold.bench.systems import SWITCH_PORT, spawn, start_switch
from netfold.bench.train.profiles import Profile
from netfold.bench.train.variants import Group, Variant
from netfold.lab import processes

START_DELAY_S = 0.02  # between the word and the start: every worker has read it by then
# The C library keeps the memory of large tensors instead of giving it back to the kernel after each step: without that,
# page faults would be charged to the threads that compute as system time.
KEEP_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40), "MALLOC_TOP_PAD_": str(16 << 20)}
# Machines of their own have shared memory of their own: in a lab no two workers may find each other's.
OWN_SHARED_MEMORY = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs tmpfs /dev/shm && exec "$@"', "sh"]


class Crew:
    """The workers of one job, running `python -m MODULE CONTROL SETUP RANK` each."""

    def __init__(self, site: Site, module: str, setup: dict[str, Any], timeout_s: float, with_switch: bool) -> None:
        """`setup`: what the workers read, to which are added hosts, store, timeout and, where there is one, the
        topology file and the switch's address."""
        self._site = site
        self._module = module
        self._setup = setup
        self._timeout_s = timeout_s
        self._with_switch = with_switch
        self._switch: psutil.Process | None = None
        folder = site.directory
        self._ranks = Ranks("training", folder / "train.sock", folder / "train.log", site.world)

    def __enter__(self) -> Crew:
        try:
            self._launch()
            self._ranks.accept(self._timeout_s)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _launch(self) -> None:
        site, ranks = self._site, self._ranks
        setup = {
            **self._setup,
            "hosts": [site.address(rank) for rank in range(site.world)],
            "store": str(site.directory / "train.store"),
            "timeout_s": self._timeout_s,
        }
        if site.topology:
            setup["topology"] = str(site.topology)
        if self._with_switch:
            ready = site.directory / "train.switch"
            bind = f"{site.switch_address()}:{SWITCH_PORT if site.namespace(0) else 0}"
            switch, setup["switch"] = start_switch("training", site, bind, ready, ranks.log, self._timeout_s)
            ranks.processes.append(switch)
            self._switch = psutil.Process(switch.pid)
        path = site.directory / "train.json"
        path.write_text(json.dumps(setup))
        own_memory = OWN_SHARED_MEMORY if site.namespace(0) else []
        for rank in range(site.world):
            python = [sys.executable, "-m", self._module, str(ranks.path), str(path), str(rank)]
            command = [*site.command(rank), *own_memory, *python]
            ranks.processes.append(spawn(command, site, ranks.log, KEEP_MEMORY))

    @property
    def pids(self) -> list[int]:
        """The workers' process ids, by rank."""
        return [process.pid for process in self._ranks.processes[-self._site.world :]]

    def ask(self, line: str, timeout_s: float = 0.0) -> list[Any]:
        """Say a line to every worker; what each answers, by rank. Raises MeasurementError with a worker's words."""
        answers = self._ranks.ask([line] * self._site.world, timeout_s or self._timeout_s)
        return [json.loads(answer.partition(" ")[2]) for answer in answers]

    def step(self, variant: int) -> list[dict[str, Any]]:
        """One step of all workers, begun at the same time."""
        return self.ask(f"step {variant} {time.monotonic_ns() + int(START_DELAY_S * 1e9)}")

    def switch_cpu_s(self) -> float:
        """CPU seconds of the switch so far; 0 where there is none."""
        if self._switch is None:
            return 0.0
        times = self._switch.cpu_times()
        return times.user + times.system

    def close(self) -> None:
        """Let the workers quit; then make them."""
        self._ranks.close()
        workers = self._ranks.processes[-self._site.world :]
        deadline = time.monotonic() + processes.GRACE_S
        while time.monotonic() < deadline and any(process.poll() is None for process in workers):
            time.sleep(processes.POLL_S)
        processes.end_children(self._ranks.processes)


def index_of(items: list[Any], item: Any) -> int:
    """Where an item is in a list, to which it is added if need be."""
    if item not in items:
        items.append(item)
    return items.index(item)


def setup_of(profile: Profile, variants: Sequence[Variant]) -> dict[str, Any]:
    """The part of a setup that the plan knows: profile, groups, and variants that name their group by its index."""
    groups: list[Group | None] = []
    told = [asdict(one) | {"group": index_of(groups, one.group)} for one in variants]
    as_words = [one and {"backend": one.backend, "options": one.options()} for one in groups]
    return {"profile": asdict(profile), "variants": told, "groups": as_words}
