"""The workers of a training job: started at a site, given one command at a time, and always ended."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import psutil

from netfold_lab.bench.control import Ranks
from netfold_lab.bench.sites import Site
from netfold_lab.bench.systems import spawn, start_switch
from netfold_lab.bench.train.profiles import Profile
from netfold_lab.bench.train.variants import Group, Variant
from netfold_lab.lab import processes

START_DELAY_S = 0.05  # between command and start, so that every worker has read the command and its CPU times
# The C library keeps the memory of large tensors instead of returning it to the kernel after each step. Otherwise page
# faults would count as system time of the threads that compute.
KEEP_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40), "MALLOC_TOP_PAD_": str(16 << 20)}
# Separate machines have separate shared memory: in a lab no worker may find the shared memory of another.
OWN_SHARED_MEMORY = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs tmpfs /dev/shm && exec "$@"', "sh"]


class Workers:
    """The workers of one job, running `python -m MODULE CONTROL SETUP RANK` each."""

    def __init__(
        self,
        site: Site,
        module: str,
        setup: dict[str, Any],
        timeout_s: float,
        with_switch: bool,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`setup` is the content of the workers' setup file. Hosts, store and timeout are added, and the topology file
        and the switch's address if they exist. `environment`: added to theirs; `{switch}` in it is the switch's
        address."""
        self._site = site
        self._module = module
        self._setup = setup
        self._timeout_s = timeout_s
        self._with_switch = with_switch
        self._environment = dict(environment or {})
        self._switch: psutil.Process | None = None
        folder = site.directory
        self._ranks = Ranks("training", folder / "train.sock", folder / "train.log", site.world)

    def __enter__(self) -> Workers:
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
        store = site.directory / "train.store"
        store.unlink(missing_ok=True)  # it may hold the addresses of workers before these
        setup = {
            **self._setup,
            "hosts": [site.address(rank) for rank in range(site.world)],
            "store": str(store),
            "timeout_s": self._timeout_s,
        }
        if site.topology:
            setup["topology"] = str(site.topology)
        if self._with_switch:
            ready = site.directory / "train.switch"
            switch, setup["switch"] = start_switch("training", site, ready, ranks.log, self._timeout_s)
            ranks.processes.append(switch)
            self._switch = psutil.Process(switch.pid)
        path = site.directory / "train.json"
        path.write_text(json.dumps(setup))
        own_memory = OWN_SHARED_MEMORY if site.namespace(0) else []
        more = {name: text.format(switch=setup.get("switch", "")) for name, text in self._environment.items()}
        for rank in range(site.world):
            python = [sys.executable, "-m", self._module, str(ranks.path), str(path), str(rank)]
            command = [*site.command(rank), *own_memory, *python]
            ranks.processes.append(spawn(command, site, ranks.log, KEEP_MEMORY | more))

    @property
    def pids(self) -> list[int]:
        """The workers' process ids, by rank."""
        return [process.pid for process in self._ranks.processes[-self._site.world :]]

    def ask(self, line: str, timeout_s: float = 0.0) -> list[Any]:
        """Send a line to every worker; returns the answers by rank. Raises MeasurementError with a worker's message."""
        answers = self._ranks.ask([line] * self._site.world, timeout_s or self._timeout_s)
        return [json.loads(answer.partition(" ")[2]) for answer in answers]

    def step(self, variant: int) -> list[dict[str, Any]]:
        """One step of all workers, started at the same time."""
        return self.ask(f"step {variant} {time.monotonic_ns() + int(START_DELAY_S * 1e9)}")

    def switch_cpu_s(self) -> float:
        """CPU seconds of the switch so far; 0 without a switch."""
        if self._switch is None:
            return 0.0
        times = self._switch.cpu_times()
        return times.user + times.system

    def close(self) -> None:
        """Ask the workers to quit; then end them."""
        self._ranks.close()
        workers = self._ranks.processes[-self._site.world :]
        deadline = time.monotonic() + processes.GRACE_S
        while time.monotonic() < deadline and any(process.poll() is None for process in workers):
            time.sleep(processes.POLL_S)
        processes.end_children(self._ranks.processes)


def index_of(items: list[Any], item: Any) -> int:
    """The index of an item in a list; a missing item is appended."""
    if item not in items:
        items.append(item)
    return items.index(item)


def setup_of(profile: Profile, variants: Sequence[Variant]) -> dict[str, Any]:
    """The part of a setup that follows from the settings: profile, groups, and variants that name their group by its
    index."""
    groups: list[Group | None] = []
    told = [asdict(one) | {"group": index_of(groups, one.group)} for one in variants]
    as_words = [one and {"backend": one.backend, "options": one.options()} for one in groups]
    return {"profile": asdict(profile), "variants": told, "groups": as_words}
