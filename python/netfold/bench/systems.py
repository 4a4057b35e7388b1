"""The systems that can be measured. Each only knows how to launch its ranks; the words they answer to are the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Protocol

import netfold
from netfold.algorithms import HostPlan
from netfold.bench.control import MeasurementError, check_running, tail
from netfold.bench.mpi_build import rank_program
from netfold.bench.sites import Site
from netfold.lab import processes

SWITCH_PORT = 41000
POLL_S = 0.05


class System(Protocol):
    """A way to all-reduce. `formats` are those its gradients can travel in, `algorithms` those it is measured with."""

    name: str
    key: str  # its name among the systems of one run
    algorithms: tuple[str, ...]

    def wire(self, wanted: str) -> str:
        """The format it uses where the user wants `wanted`."""

    def launch(self, site: Site, control: Path, log: Path, timeout_s: float) -> list[subprocess.Popen]:
        """Start everything; the ranks will connect to `control`."""


def environment(site: Site) -> dict[str, str]:
    """The environment of Python ranks: this package, one thread of arithmetic each."""
    package = str(Path(netfold.__file__).parents[1])
    path = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH", ""))))
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": site.interface}


def spawn(command: list[str], site: Site, log: Path) -> subprocess.Popen:
    """Start a program that writes to the log, in a session of its own so that Ctrl-C reaches only the coordinator."""
    with log.open("ab") as out:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment(site), start_new_session=True
        )


class Gloo:
    """Gloo as PyTorch ships it; its all-reduce is a ring."""

    name = key = "gloo"
    algorithms: tuple[str, ...] = ("ring",)

    def wire(self, wanted: str) -> str:
        """Its tensors travel as they are in memory."""
        return "int32" if wanted == "int32" else "fp32"

    def launch(self, site: Site, control: Path, log: Path, timeout_s: float) -> list[subprocess.Popen]:
        """A rank a namespace; they meet through a file, so that no measured link carries the meeting."""
        module = [sys.executable, "-m", "netfold.bench.workers.gloo", str(control), str(site.directory / "gloo.store")]
        return [
            spawn([*site.command(rank), *module, str(rank), str(site.world), str(timeout_s)], site, log)
            for rank in range(site.world)
        ]


class OpenMpi:
    """OpenMPI over TCP, at its ring, its default choice and Rabenseifner's algorithm."""

    name = key = "openmpi"
    algorithms: tuple[str, ...] = ("ring", "default", "rabenseifner")

    def wire(self, wanted: str) -> str:
        """Its tensors travel as they are in memory."""
        return "int32" if wanted == "int32" else "fp32"

    def launch(self, site: Site, control: Path, log: Path, timeout_s: float) -> list[subprocess.Popen]:
        """One mpirun; in a lab it starts a daemon in every namespace through `agent`, under a host name of its own."""
        options = ["--mca", "coll_tuned_use_dynamic_rules", "1", "--mca", "mpi_yield_when_idle", "1"]
        options += ["--bind-to", "none", "--mca", "orte_tmpdir_base", str(site.directory)]
        if os.geteuid() == 0:
            options.append("--allow-run-as-root")
        if site.namespace(0) is None:
            options += ["-n", str(site.world), "--oversubscribe"]
        else:
            hosts = ",".join(f"{site.address(rank)}:1" for rank in range(site.world))
            options += ["-n", str(site.world), "-H", hosts, "--map-by", "node"]
            options += ["--mca", "plm_rsh_agent", str(self._agent(site)), "--mca", "plm_rsh_no_tree_spawn", "1"]
            options += ["--mca", "btl", "tcp,self", "--mca", "pml", "ob1"]
            options += ["--mca", "btl_tcp_if_include", site.interface, "--mca", "oob_tcp_if_include", site.interface]
        command = ["mpirun", *options, str(rank_program()), str(control)]
        if site.namespace(0) is not None:
            renamed = ["unshare", "-u", "sh", "-c", 'hostname "$0"; exec "$@"', site.address(0)]
            command = [*site.command(0), *renamed, *command]
        return [spawn(command, site, log)]

    @staticmethod
    def _agent(site: Site) -> Path:
        """The program mpirun calls in ssh's place: `agent HOST COMMAND...`."""
        cases = "\n".join(
            f"{site.address(rank)}) enter='{' '.join(site.command(rank))}';;" for rank in range(site.world)
        )
        agent = site.directory / "mpi-agent"
        agent.write_text(
            f'#!/bin/sh\nhost=$1; shift\ncase "$host" in\n{cases}\n'
            '*) echo "no namespace for $host" >&2; exit 1;;\nesac\n'
            'exec $enter unshare -u sh -c "hostname $host; $*"\n'
        )
        agent.chmod(0o700)
        return agent


class Netfold:
    """Folded in the network: a switch on the switch box, a client a rank."""

    name = "netfold"
    algorithms: tuple[str, ...] = ("in-network",)

    def __init__(self, faults: str = "", port: int = SWITCH_PORT) -> None:
        """`faults`: what the seeded link wrapper of every rank does (Client's argument of that name)."""
        self.key = "netfold-faults" if faults else "netfold"
        self._faults = faults or "none"
        self._port = port

    def wire(self, wanted: str) -> str:
        """Any of them."""
        return wanted

    def launch(self, site: Site, control: Path, log: Path, timeout_s: float) -> list[subprocess.Popen]:
        """The switch first; the ranks once it says where it listens."""
        ready = control.with_suffix(".switch")
        bind = f"{site.switch_address()}:{self._port}"
        python = [sys.executable, "-m"]
        switch = spawn([*site.switch_command(), *python, "netfold.bench.workers.switch", bind, str(ready)], site, log)
        started = [switch]
        try:
            address = self._wait_for_switch(ready, switch, log, timeout_s)
            module = [*python, "netfold.bench.workers.netfold", str(control), address, "bench"]
            for rank in range(site.world):
                arguments = [str(rank), str(site.world), str(timeout_s), self._faults]
                started.append(spawn([*site.command(rank), *module, *arguments], site, log))
        except BaseException:
            processes.end_children(started)
            raise
        return started

    def _wait_for_switch(self, ready: Path, switch: subprocess.Popen, log: Path, timeout_s: float) -> str:
        deadline = time.monotonic() + timeout_s
        while not ready.exists():
            check_running(self.name, [switch], log)
            if time.monotonic() > deadline:
                raise MeasurementError(f"{self.name}: the switch did not start within {timeout_s:g} s. {tail(log)}")
            time.sleep(POLL_S)
        return ready.read_text()


class NetfoldHosts:
    """Netfold without a switch: the ranks fold among themselves, by each of the algorithms in turn."""

    name = "netfold"
    key = "netfold-hosts"

    def __init__(self, plans: Sequence[HostPlan]) -> None:
        self.algorithms = tuple(plan.algorithm for plan in plans)
        self._plans = plans

    def wire(self, wanted: str) -> str:
        """Any of them."""
        return wanted

    def launch(self, site: Site, control: Path, log: Path, timeout_s: float) -> list[subprocess.Popen]:
        """A rank a namespace; they tell each other through files where they listen. Shared memory only where all
        ranks are on one machine: the namespaces of a lab are separate machines."""
        meeting = control.with_suffix(".meeting")
        meeting.mkdir()
        shared = "shm" if site.namespace(0) is None else "tcp"
        module = [sys.executable, "-m", "netfold.bench.workers.host", str(control), str(meeting), shared]
        plans = json.dumps([asdict(plan) for plan in self._plans])
        topology = str(site.topology or "")
        return [
            spawn(
                [
                    *site.command(rank),
                    *module,
                    site.address(rank),
                    str(rank),
                    str(site.world),
                    str(timeout_s),
                    plans,
                    topology,
                ],
                site,
                log,
            )
            for rank in range(site.world)
        ]


PEERS: dict[str, type[Gloo] | type[OpenMpi]] = {"gloo": Gloo, "openmpi": OpenMpi}
