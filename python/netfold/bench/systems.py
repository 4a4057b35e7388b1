"""The systems that can be measured. Each only knows how to launch its ranks; the words they answer to are the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Protocol

import netfold
from netfold import native, preload
from netfold.algorithms import AUTO, HostPlan
from netfold.bench.c_ranks import mpi_rank, netfold_rank
from netfold.bench.control import MeasurementError, check_running, tail
from netfold.bench.sites import Site
from netfold.chooser.lookup import choices_for, named_table
from netfold.lab import processes
from netfold.placement import THREAD

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


def spawn(command: list[str], site: Site, log: Path, more: Mapping[str, str] | None = None) -> subprocess.Popen:
    """Start a program that writes to the log, in a process group of its own: Ctrl-C reaches only the coordinator. (Not
    in a session: kernels with autogroups share the cores out by session, and ranks of all systems are to be alike.)
    `more` is added to its environment."""
    words = {**environment(site), **(more or {})}
    with log.open("ab") as out:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=words, process_group=0)


def start_switch(
    name: str, site: Site, bind: str, ready: Path, log: Path, timeout_s: float
) -> tuple[subprocess.Popen, str]:
    """A switch on the switch box, once it listens; and where that is. `ready` is the file in which it says so.

    Raises MeasurementError in the name of the system it is for."""
    program = [sys.executable, "-m", "netfold.bench.workers.switch", bind, str(ready)]
    switch = spawn([*site.switch_command(), *program], site, log)
    deadline = time.monotonic() + timeout_s
    try:
        while not ready.exists():
            check_running(name, [switch], log)
            if time.monotonic() > deadline:
                raise MeasurementError(f"{name}: the switch did not start within {timeout_s:g} s. {tail(log)}")
            time.sleep(POLL_S)
    except BaseException:
        processes.end_children([switch])
        raise
    return switch, ready.read_text()


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
    """OpenMPI over TCP between namespaces and over shared memory within one, at its ring, its default choice and
    Rabenseifner's algorithm. Ranks that wait give their core away, or (`spins`) look on: faster where each has one."""

    name = key = "openmpi"
    algorithms: tuple[str, ...] = ("ring", "default", "rabenseifner")

    def __init__(self, spins: bool = False) -> None:
        self._spins = spins
        if spins:
            self.key = "openmpi-spinning"
            self.algorithms = tuple(f"{algorithm}-spinning" for algorithm in self.algorithms)

    def wire(self, wanted: str) -> str:
        """Its tensors travel as they are in memory."""
        return "int32" if wanted == "int32" else "fp32"

    def launch(self, site: Site, control: Path, log: Path, timeout_s: float) -> list[subprocess.Popen]:
        """One mpirun; in a lab it starts a daemon in every namespace through `agent`, under a host name of its own."""
        options = ["--mca", "coll_tuned_use_dynamic_rules", "1"]
        options = [*self._exports(), *options, "--mca", "mpi_yield_when_idle", "0" if self._spins else "1"]
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
        command = ["mpirun", *options, str(mpi_rank()), str(control)]
        if site.namespace(0) is not None:
            renamed = ["unshare", "-u", "sh", "-c", 'hostname "$0"; exec "$@"', site.address(0)]
            command = [*site.command(0), *renamed, *command]
        return [spawn(command, site, log)]

    def _exports(self) -> list[str]:
        """Options that give every rank variables of its environment."""
        return []

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
        """The switch first, unless it is there; the ranks once it says where it listens."""
        started: list[subprocess.Popen] = []
        address = site.running_switch()
        if address is None:
            ready = control.with_suffix(".switch")
            bind = f"{site.switch_address()}:{self._port}"
            switch, address = start_switch(self.name, site, bind, ready, log, timeout_s)
            started.append(switch)
        try:
            module = [sys.executable, "-m", "netfold.bench.workers.netfold", str(control), address, "bench"]
            for rank in range(site.world):
                arguments = [str(rank), str(site.world), str(timeout_s), self._faults]
                started.append(spawn([*site.command(rank), *module, *arguments], site, log))
        except BaseException:
            processes.end_children(started)
            raise
        return started


def spawn_hosts(
    program: Sequence[str],
    site: Site,
    control: Path,
    log: Path,
    timeout_s: float,
    link: str,
    *more: str,
    engine: str = THREAD,
) -> list[subprocess.Popen]:
    """Ranks without a switch, one a namespace, that run a program of bench/workers; they tell each other through files
    where they listen. `more`: what it takes beside; `engine`: where it runs."""
    meeting = control.with_suffix(".meeting")
    meeting.mkdir()
    words = [*program, str(control), str(meeting), link]
    return [
        spawn(
            [*site.command(rank), *words, site.address(rank), str(rank), str(site.world), str(timeout_s), *more],
            site,
            log,
            {"NETFOLD_ENGINE": engine, "NETFOLD_TOPOLOGY": str(site.topology or "")},
        )
        for rank in range(site.world)
    ]


class NetfoldHosts:
    """Netfold without a switch: the ranks fold among themselves, by each of the algorithms in turn. `interface` python:
    the progress thread of the engine does the work; c: a C program, the engine in its own thread."""

    name = "netfold"
    key = "netfold-hosts"

    def __init__(self, plans: Sequence[HostPlan], wire: str, interface: str = "python", engine: str = THREAD) -> None:
        """`engine`: where it runs, one of netfold.placement.ENGINES."""
        self.algorithms = tuple(plan.algorithm for plan in plans)
        self._plans = plans
        self._wire = wire
        self._interface = interface
        self._engine = engine

    def wire(self, wanted: str) -> str:
        """Any of them."""
        return wanted

    def launch(self, site: Site, control: Path, log: Path, timeout_s: float) -> list[subprocess.Popen]:
        """Shared memory, and this machine's tuning table, only where all ranks are on one machine: the namespaces of a
        lab are separate machines."""
        is_local = site.namespace(0) is None
        link = "shm" if is_local else "tcp"
        if self._interface == "c":
            return spawn_hosts([str(netfold_rank())], site, control, log, timeout_s, link)
        choices = None
        if is_local and AUTO in self.algorithms:
            choices = choices_for(site.world, "shm", self._wire, named_table())
        plans = json.dumps([asdict(plan) for plan in self._plans])
        more = (plans, choices.to_json()) if choices is not None else (plans,)
        program = [sys.executable, "-m", "netfold.bench.workers.host"]
        return spawn_hosts(program, site, control, log, timeout_s, link, *more, engine=self._engine)


class NetfoldMpi(OpenMpi):
    """Netfold through MPI_Allreduce: OpenMPI's own rank with libnetfold-mpi.so before its library."""

    name = "netfold"
    key = "netfold-mpi"

    def __init__(self, plans: Sequence[HostPlan], wire: str) -> None:
        super().__init__()
        self.algorithms = tuple(plan.algorithm for plan in plans)
        self._wire = wire

    def wire(self, wanted: str) -> str:
        """Any of them."""
        return wanted

    def _exports(self) -> list[str]:
        library = native.find(native.MPI_LIBRARY)
        if library is None:
            raise MeasurementError("netfold: libnetfold-mpi.so is not built; `netfold doctor` says what it needs")
        settings = {"NETFOLD_MPI": "on", "NETFOLD_MPI_MIN_BYTES": "0", "NETFOLD_ALGORITHM": self.algorithms[0]}
        if self._wire != "int32":
            settings["NETFOLD_FORMAT"] = self._wire
        loaded = preload.launch(["mpirun"], str(library), {}, is_open_mpi=True)[0][1:]
        return [*loaded, *(word for name, value in settings.items() for word in ("-x", f"{name}={value}"))]


PEERS: dict[str, type[Gloo] | type[OpenMpi]] = {"gloo": Gloo, "openmpi": OpenMpi}


def host_system(plans: Sequence[HostPlan], interface: str, wire: str, engine: str) -> System:
    """Ours without a switch, called through python, c or mpi."""
    return NetfoldMpi(plans, wire) if interface == "mpi" else NetfoldHosts(plans, wire, interface, engine)


def peer_systems(name: str, site: Site) -> list[System]:
    """A peer in each of the ways in which it may be at its best there."""
    has_cores = site.namespace(0) is None and site.world <= len(os.sched_getaffinity(0))
    return [PEERS[name](), *([OpenMpi(spins=True)] if name == OpenMpi.name and has_cores else [])]
