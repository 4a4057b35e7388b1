"""The systems that can be measured. Each launches its ranks in its own way; all ranks answer to the same commands."""

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
from netfold.algorithms import AUTO, SPLIT, HostPlan
from netfold.placement import THREAD
from netfold_lab.bench.c_ranks import mpi_rank, netfold_rank
from netfold_lab.bench.control import MeasurementError, check_running, tail
from netfold_lab.bench.sites import Site
from netfold_lab.lab import processes
from netfold_lab.packages import need

POLL_S = 0.05


class System(Protocol):
    """A system that all-reduces. `formats` are its wire formats; `algorithms` are the algorithms to measure."""

    name: str
    key: str  # its name, unique in one run
    algorithms: tuple[str, ...]

    def wire(self, wanted: str) -> str:
        """The format that it uses if the user asks for `wanted`."""

    def launch(self, site: Site, control: Path, log: Path, timeout_s: float) -> list[subprocess.Popen]:
        """Start all processes; the ranks will connect to `control`."""


def environment(site: Site) -> dict[str, str]:
    """The environment of Python ranks: this package, and one thread for arithmetic."""
    package = str(Path(netfold.__file__).parents[1])
    path = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH", ""))))
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": site.interface}


def spawn(command: list[str], site: Site, log: Path, more: Mapping[str, str] | None = None) -> subprocess.Popen:
    """Start a program that writes to the log, in a process group of its own, so that Ctrl-C reaches only the
    coordinator. (It has no session of its own: kernels with autogroups divide the cores by session, and the ranks of
    all systems must have equal shares.) `more` is added to its environment."""
    words = {**environment(site), **(more or {})}
    with log.open("ab") as out:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=words, process_group=0)


def start_switch(
    name: str, site: Site, ready: Path, log: Path, timeout_s: float, number: int = 0, parent: str = ""
) -> tuple[subprocess.Popen, str]:
    """Start a switch on a switch's machine, at any free port. Returns its process and its address when it listens. It
    writes the address to the file `ready`. `parent`: the switch above it, if it has one; then, and above others, it
    listens on all interfaces of its machine.

    Raises MeasurementError that names the system."""
    ready.unlink(missing_ok=True)  # it may hold the address of a switch before this one
    bind = "0.0.0.0:0" if site.leaves else f"{site.switch_address(number)}:0"
    program = [sys.executable, "-m", "netfold_lab.bench.workers.switch", bind, str(ready), parent]
    switch = spawn([*site.switch_command(number), *program], site, log)
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
    address = ready.read_text()
    return switch, f"{site.switch_address(number)}:{address.rpartition(':')[2]}" if site.leaves else address


def start_tree(
    name: str, site: Site, ready: Path, log: Path, timeout_s: float
) -> tuple[list[subprocess.Popen], list[str]]:
    """Start the switches of a site: one, or one and its leaves. Returns their processes, and for each rank the address
    of its switch. Raises MeasurementError that names the system."""
    top, address = start_switch(name, site, ready, log, timeout_s)
    started = [top]
    if not site.leaves:
        return started, [address] * site.world
    leaves = []
    try:
        for leaf in range(site.leaves):
            parent = f"{site.parent_address(leaf)}:{address.rpartition(':')[2]}"
            listens = ready.with_suffix(f".leaf{leaf}")
            process, reached = start_switch(name, site, listens, log, timeout_s, leaf + 1, parent)
            started.append(process)
            leaves.append(reached)
    except BaseException:
        processes.end_children(started)
        raise
    return started, [leaves[rank * site.leaves // site.world] for rank in range(site.world)]


class Gloo:
    """Gloo as PyTorch ships it; its all-reduce is a ring."""

    name = key = "gloo"
    algorithms: tuple[str, ...] = ("ring",)

    def wire(self, wanted: str) -> str:
        """Sends tensors unchanged."""
        return "int32" if wanted == "int32" else "fp32"

    def launch(self, site: Site, control: Path, log: Path, timeout_s: float) -> list[subprocess.Popen]:
        """One rank in each namespace. They find each other through a file, so that no measured link carries that
        traffic."""
        need("torch")
        module = [
            sys.executable,
            "-m",
            "netfold_lab.bench.workers.gloo",
            str(control),
            str(site.directory / "gloo.store"),
        ]
        return [
            spawn([*site.command(rank), *module, str(rank), str(site.world), str(timeout_s)], site, log)
            for rank in range(site.world)
        ]


class OpenMpi:
    """OpenMPI over TCP between namespaces and over shared memory within one, with its ring, its default choice and
    Rabenseifner's algorithm. Ranks that wait yield their core, or (`spins`) poll, which is faster if each has a
    core."""

    name = key = "openmpi"
    algorithms: tuple[str, ...] = ("ring", "default", "rabenseifner")

    def __init__(self, spins: bool = False) -> None:
        self._spins = spins
        if spins:
            self.key = "openmpi-spinning"
            self.algorithms = tuple(f"{algorithm}-spinning" for algorithm in self.algorithms)

    def wire(self, wanted: str) -> str:
        """Sends tensors unchanged."""
        return "int32" if wanted == "int32" else "fp32"

    def launch(self, site: Site, control: Path, log: Path, timeout_s: float) -> list[subprocess.Popen]:
        """Start mpirun. In a lab it starts a daemon in every namespace through `agent`, under a host name of its
        own."""
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
        """Options that pass variables of the environment to every rank."""
        return []

    @staticmethod
    def _agent(site: Site) -> Path:
        """The program that mpirun calls instead of ssh: `agent HOST COMMAND...`."""
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
    """Netfold with a switch: the switch on its machine, and one client per rank."""

    name = "netfold"
    algorithms: tuple[str, ...] = ("in-network",)

    def __init__(self, faults: str = "") -> None:
        """`faults`: faults of the seeded link wrapper of every rank (the argument of SwitchGroup)."""
        self.key = "netfold-faults" if faults else "netfold"
        self._faults = faults or "none"

    def wire(self, wanted: str) -> str:
        """Supports every format."""
        return wanted

    def launch(self, site: Site, control: Path, log: Path, timeout_s: float) -> list[subprocess.Popen]:
        """Start the switch, unless it runs already, then the ranks with its address."""
        started: list[subprocess.Popen] = []
        running = site.running_switch()
        addresses = [running] * site.world if running else []
        if not addresses:
            ready = control.with_suffix(".switch")
            started, addresses = start_tree(self.name, site, ready, log, timeout_s)
        try:
            for rank, address in enumerate(addresses):
                module = [sys.executable, "-m", "netfold_lab.bench.workers.netfold", str(control), address, "bench"]
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
    switch: str = "",
) -> list[subprocess.Popen]:
    """Ranks without a switch, one in each namespace, that run a program of bench/workers. They exchange their addresses
    through files. `more`: further arguments; `engine`: the engine to use; `switch`: the addresses of the switches that
    share their tensors, with commas."""
    meeting = control.with_suffix(".meeting")
    meeting.mkdir()
    words = [*program, str(control), str(meeting), link]
    return [
        spawn(
            [*site.command(rank), *words, site.address(rank), str(rank), str(site.world), str(timeout_s), *more],
            site,
            log,
            {"NETFOLD_ENGINE": engine, "NETFOLD_TOPOLOGY": str(site.topology or ""), "NETFOLD_SWITCH": switch},
        )
        for rank in range(site.world)
    ]


class NetfoldHosts:
    """Netfold without a switch: the ranks fold among themselves, by each of the algorithms in turn. `interface` python:
    the progress thread does the work; c: a C program that drives the engine in its own thread."""

    name = "netfold"
    key = "netfold-hosts"

    def __init__(self, plans: Sequence[HostPlan], wire: str, interface: str = "python", engine: str = THREAD) -> None:
        """`engine`: one of netfold.placement.ENGINES."""
        self.algorithms = tuple(plan.algorithm for plan in plans)
        self._plans = plans
        self._wire = wire
        self._interface = interface
        self._engine = engine

    def wire(self, wanted: str) -> str:
        """Supports every format."""
        return wanted

    def launch(self, site: Site, control: Path, log: Path, timeout_s: float) -> list[subprocess.Popen]:
        """Ranks use shared memory and this machine's tuning table only if all are on one machine: the namespaces of a
        lab stand for separate machines."""
        is_local = site.namespace(0) is None
        link = "shm" if is_local else "tcp"
        if self._interface == "c":
            return spawn_hosts([str(netfold_rank())], site, control, log, timeout_s, link)
        choices = None
        if is_local and AUTO in self.algorithms:
            from netfold.chooser.lookup import choices_for, named_table

            choices = choices_for(site.world, "shm", self._wire, named_table())
        plans = json.dumps([asdict(plan) for plan in self._plans])
        more = (plans, choices.to_json()) if choices is not None else (plans,)
        program = [sys.executable, "-m", "netfold_lab.bench.workers.host"]
        return spawn_hosts(program, site, control, log, timeout_s, link, *more, engine=self._engine)


class NetfoldSplit:
    """Netfold with switches that fold a share of each tensor, while the ranks fold the rest."""

    name = "netfold"
    key = "netfold-split"
    algorithms: tuple[str, ...] = (SPLIT,)

    def wire(self, wanted: str) -> str:
        """Supports every format."""
        return wanted

    def launch(self, site: Site, control: Path, log: Path, timeout_s: float) -> list[subprocess.Popen]:
        """Start the switches, then the ranks with their addresses."""
        started: list[subprocess.Popen] = []
        link = "shm" if site.namespace(0) is None else "tcp"
        plans = json.dumps([asdict(HostPlan(SPLIT))])
        program = [sys.executable, "-m", "netfold_lab.bench.workers.host"]
        addresses = []
        try:
            for number in range(site.switches):
                ready = control.with_suffix(f".switch{number}")
                switch, address = start_switch(self.name, site, ready, log, timeout_s, number)
                started.append(switch)
                addresses.append(address)
            ranks = spawn_hosts(program, site, control, log, timeout_s, link, plans, switch=",".join(addresses))
        except BaseException:
            processes.end_children(started)
            raise
        return [*started, *ranks]


class NetfoldMpi(OpenMpi):
    """Netfold through MPI_Allreduce: OpenMPI's rank with libnetfold-mpi.so preloaded."""

    name = "netfold"
    key = "netfold-mpi"

    def __init__(self, plans: Sequence[HostPlan], wire: str) -> None:
        super().__init__()
        self.algorithms = tuple(plan.algorithm for plan in plans)
        self._wire = wire

    def wire(self, wanted: str) -> str:
        """Supports every format."""
        return wanted

    def _exports(self) -> list[str]:
        library = native.find(native.MPI_LIBRARY)
        if library is None:
            raise MeasurementError("netfold: libnetfold-mpi.so is not built; see `netfold doctor`")
        settings = {"NETFOLD_MPI": "on", "NETFOLD_MPI_MIN_BYTES": "0", "NETFOLD_ALGORITHM": self.algorithms[0]}
        if self._wire != "int32":
            settings["NETFOLD_FORMAT"] = self._wire
        loaded = preload.launch(["mpirun"], str(library), {}, is_open_mpi=True)[0][1:]
        return [*loaded, *(word for name, value in settings.items() for word in ("-x", f"{name}={value}"))]


PEERS: dict[str, type[Gloo] | type[OpenMpi]] = {"gloo": Gloo, "openmpi": OpenMpi}


def host_system(plans: Sequence[HostPlan], interface: str, wire: str, engine: str) -> System:
    """Netfold without a switch, called through python, c or mpi."""
    return NetfoldMpi(plans, wire) if interface == "mpi" else NetfoldHosts(plans, wire, interface, engine)


def peer_systems(name: str, site: Site) -> list[System]:
    """A peer with each set of options that may be its fastest there."""
    has_cores = site.namespace(0) is None and site.world <= len(os.sched_getaffinity(0))
    return [PEERS[name](), *([OpenMpi(spins=True)] if name == OpenMpi.name and has_cores else [])]
