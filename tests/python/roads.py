"""Machines that a router connects, as network namespaces: each with a subnet of its own, by IPv4, IPv6 or both.

A machine is a process that sleeps in its namespace. The namespaces go with their processes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TIMEOUT_S = 60.0
LIFE_S = 300


class Machine:
    """A network namespace."""

    def __init__(self, number: int) -> None:
        self.number = number
        words = ["unshare", "--net", "--fork", "--kill-child", "sh", "-c"]
        ready = "ip link set lo up && echo ready && exec sleep"
        self._holder = subprocess.Popen([*words, f"{ready} {LIFE_S}"], stdout=subprocess.PIPE, text=True)
        self._started: list[subprocess.Popen[str]] = []
        if self._holder.stdout is None or self._holder.stdout.readline() != "ready\n":
            self.end()
            raise AssertionError("a network namespace could not be made")
        children = Path(f"/proc/{self._holder.pid}/task/{self._holder.pid}/children").read_text().split()
        self.process_id = int(children[0])

    @property
    def v4(self) -> str:
        return f"10.9.{self.number}.2"

    @property
    def v6(self) -> str:
        return f"fd09:{self.number}::2"

    def inside(self, command: list[str]) -> list[str]:
        return ["nsenter", "--target", str(self.process_id), "--net", "--", *command]

    def shell(self, script: str) -> str:
        done = subprocess.run(
            self.inside(["sh", "-ec", script]), capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
        assert done.returncode == 0, f"{script}: {done.stderr}"
        return done.stdout

    def start(self, command: list[str], stdin: int | None = None, **settings: str) -> subprocess.Popen[str]:
        """Start a program; its output and errors are one pipe."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("GLOO_", "NETFOLD_"))}
        environment = {**kept, "OMP_NUM_THREADS": "1", **settings}
        run = subprocess.Popen(
            self.inside(command),
            env=environment,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._started.append(run)
        return run

    def python(self, script: str, *arguments: str, **settings: str) -> subprocess.Popen[str]:
        return self.start([sys.executable, "-c", script, *arguments], **settings)

    def end(self) -> None:
        for run in self._started:
            run.kill()
            run.wait()
            if run.stdout is not None:
                run.stdout.close()
        self._holder.kill()
        self._holder.wait()
        if self._holder.stdout is not None:
            self._holder.stdout.close()


@contextmanager
def machines(count: int, families: list[str], mtu: int = 1500) -> Iterator[tuple[Machine, list[Machine]]]:
    """A router and `count` machines; `families` gives each machine's kinds of address: "4", "6" or "46"."""
    made: list[Machine] = []
    try:
        made.extend(Machine(number) for number in range(count + 1))
        router, others = made[0], made[1:]
        router.shell("echo 1 >/proc/sys/net/ipv4/ip_forward; echo 1 >/proc/sys/net/ipv6/conf/all/forwarding")
        for machine, kinds in zip(others, families, strict=True):
            connect(router, machine, f"eth{machine.number}", "eth0", machine.number, kinds, mtu)
        yield router, others
    finally:
        for machine in made:
            machine.end()


def connect(
    router: Machine, machine: Machine, port: str, interface: str, subnet: int, kinds: str, mtu: int = 1500
) -> None:
    """A cable, and the addresses of both ends in this subnet."""
    router.shell(
        f"ip link add {port} mtu {mtu} type veth peer name {interface} mtu {mtu} netns {machine.process_id}\n"
        f"ip link set {port} up"
    )
    machine.shell(f"ip link set {interface} up")
    for kind, prefix, bits in (("4", f"10.9.{subnet}.", 24), ("6", f"fd09:{subnet}::", 64)):
        if kind not in kinds:
            continue
        nodad = "nodad" if kind == "6" else ""
        router.shell(f"ip -{kind} address add {prefix}1/{bits} dev {port} {nodad}")
        machine.shell(f"ip -{kind} address add {prefix}2/{bits} dev {interface} {nodad}")
        machine.shell(f"ip -{kind} route add default via {prefix}1 dev {interface} metric {subnet}")


def finish(runs: list[subprocess.Popen[str]], timeout_s: float = TIMEOUT_S) -> list[str]:
    """The output of programs that end without an error."""
    deadline = time.monotonic() + timeout_s
    said = [run.communicate(timeout=max(deadline - time.monotonic(), 0.1))[0] for run in runs]
    assert [run.returncode for run in runs] == [0] * len(runs), "\n".join(said)
    return said


def listening(run: subprocess.Popen[str]) -> str:
    """The port of a switch program, once it listens."""
    assert run.stdout is not None
    said = ""
    for line in run.stdout:
        said += line
        if line.startswith("listening on "):
            return line.strip().rpartition(":")[2]
    raise AssertionError(f"the switch ended: {said}")
