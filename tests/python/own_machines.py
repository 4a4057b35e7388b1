"""Machines for tests: sets of namespaces (network, mounts, host name, processes) with cables between them.

A machine ends with its first process.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from lab_commands import wait_for

TIMEOUT_S = 120.0
WORKERS = ("first", "second")
ADDRESSES = {"first": "10.0.0.1", "second": "10.0.0.2", "switch": "10.0.0.5"}
IPV6_ADDRESSES = {"first": "fd00::1", "second": "fd00::2", "switch": "fd00::5"}
NAMESPACES = ("--net", "--uts", "--mount", "--pid")


@dataclass
class Run:
    """A command that was started on a machine."""

    process: subprocess.Popen[bytes]
    log: Path

    def said(self) -> str:
        """The output of the command so far."""
        return self.log.read_text()


class Machine:
    """Namespaces of its own, with a host name that resolves to 127.0.1.1 here and to its address elsewhere."""

    def __init__(self, name: str, folder: Path, addresses: dict[str, str]) -> None:
        hosts = folder / f"hosts-{name}"
        others = "".join(f"{address}\t{other}\n" for other, address in addresses.items() if other != name)
        hosts.write_text(f"127.0.0.1\tlocalhost\n127.0.1.1\t{name}\n{others}")
        begin = f"echo {name} > /proc/sys/kernel/hostname; mount --bind {hosts} /etc/hosts; ip link set lo up"
        words = ["unshare", *NAMESPACES, "--fork", "--kill-child", "--mount-proc"]
        self._holder = subprocess.Popen([*words, "sh", "-c", f"set -e; {begin}; exec sleep {TIMEOUT_S * 5:.0f}"])
        self.name, self._folder = name, folder
        self.settings: dict[str, str] = {}  # variables of the commands' environment, beside this process's
        self._started: list[Run] = []
        try:
            wait_for(lambda: [child.name() for child in self._children()] == ["sleep"], f"machine {name}", 20.0)
        except BaseException:
            self.end()
            raise
        self.process_id = self._children()[0].pid

    def _children(self) -> list[psutil.Process]:
        assert self._holder.poll() is None, "a machine could not start: see its output"
        return psutil.Process(self._holder.pid).children()

    def start(self, command: str) -> Run:
        """Start a line of a shell."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("GLOO_", "NETFOLD_"))}
        programs = Path(sys.executable).parent
        environment |= {"PATH": f"{programs}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
        environment |= self.settings
        words = ["nsenter", "--target", str(self.process_id), *NAMESPACES, f"--wdns={self._folder}", "sh", "-c"]
        log = self._folder / f"{self.name}-{len(self._started)}.log"
        with log.open("w") as file:
            run = Run(subprocess.Popen([*words, command], env=environment, stdout=file, stderr=subprocess.STDOUT), log)
        self._started.append(run)
        return run

    def run(self, command: str) -> str:
        """Run a line to its end; returns its output."""
        run = self.start(command)
        assert run.process.wait(TIMEOUT_S) == 0, run.said()
        return run.said()

    def end(self) -> None:
        """End everything that runs on the machine: its processes end with the first one."""
        self._holder.kill()
        self._holder.wait()
        for run in self._started:
            run.process.wait()


def connect(switch: Machine, worker: Machine) -> None:
    """A cable from a worker's eth0 to a port of the switch's bridge."""
    port = f"to-{worker.name}"
    cable = ["ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", str(worker.process_id)]
    subprocess.run(["nsenter", "--target", str(switch.process_id), "--net", *cable], check=True, timeout=20.0)
    switch.run(f"ip link set {port} master eth0 up")


@contextmanager
def three_machines(folder: Path, addresses: dict[str, str] = ADDRESSES) -> Iterator[dict[str, Machine]]:
    """Two machines, each with a cable to the machine that the README calls the switch."""
    made: dict[str, Machine] = {}
    try:
        for name in addresses:
            made[name] = Machine(name, folder, addresses)
        made["switch"].run("ip link add eth0 type bridge")
        for name in WORKERS:
            connect(made["switch"], made[name])
        for name, address in addresses.items():
            how = "/64 nodad" if ":" in address else "/24"
            made[name].run(f"ip link set eth0 up && ip address add {address}{how} dev eth0")
        yield made
    finally:
        for machine in made.values():
            machine.end()
