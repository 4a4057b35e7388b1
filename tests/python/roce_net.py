"""A namespace in which every rank has an interface `w{rank}`, cabled to port `p{rank}` of a switch that folds RoCE. The
ranks find each other over its loopback interface."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from netfold_lab.bench.roce import Process
from netfold_lab.lab import names
from netfold_lab.lab.faults import run_tool

START_S = 30.0


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@contextmanager
def roce_net(world: int, ports: list[int] | None = None, engine: str = "software") -> Iterator[RoceNet]:
    """The namespace and its running switch; `ports` fold (default: all). Everything is removed at the end. Engine
    "rtl": the Verilated switch, which must be built for as many ports."""
    namespace = f"{names.new_lab_id()}-roce"
    _ip("netns", "add", namespace)
    net = RoceNet(namespace, world, engine)
    try:
        _ip("-n", namespace, "link", "set", "lo", "up")
        for rank in range(world):
            _ip("-n", namespace, "link", "add", f"w{rank}", "type", "veth", "peer", "name", f"p{rank}")
            _ip("-n", namespace, "address", "add", f"10.77.0.{rank + 1}/24", "dev", f"w{rank}")
            for end in ("w", "p"):
                _ip("-n", namespace, "link", "set", f"{end}{rank}", "up")
        net.start_switch(ports or [])
        yield net
    finally:
        net.stop_switch()
        _ip("netns", "delete", namespace)


class RoceNet:
    """The namespace's name, and its switch."""

    def __init__(self, namespace: str, world: int, engine: str) -> None:
        self.namespace = namespace
        self._world = world
        self._engine = engine
        self._switch: Process | None = None

    def start_switch(self, ports: list[int]) -> None:
        """Start the switch and wait until it folds at `ports` (empty: all)."""
        interfaces = [f"p{rank}" for rank in range(self._world)]
        served = {"interfaces": interfaces, "ports": ports, "engine": self._engine}
        self._switch = Process("switch", self.namespace, served, Path(os.devnull), START_S)
        self._switch.hear()

    def stop_switch(self) -> None:
        """End the switch, if it runs."""
        if self._switch is not None:
            self._switch.end()
            self._switch.wait()
            self._switch.child.kill()
            self._switch.child.wait()
            self._switch = None

    def counts(self) -> dict[str, Any]:
        """The switch's counters."""
        assert self._switch is not None
        self._switch.tell("counters")
        return self._switch.hear()

    def lose_percent(self, percent: int) -> None:
        """Drop so many of the IP packets that either end of a cable sends. The kernel's random numbers have no seed."""
        rule = f"ether type ip numgen random mod 100 < {percent} counter drop"
        ends = [f"{end}{rank}" for rank in range(self._world) for end in ("w", "p")]
        hooks = [f'chain {end} {{\ntype filter hook egress device "{end}" priority 0\n{rule}\n}}' for end in ends]
        rules = "\n".join(["table netdev loss {", *hooks, "}", ""])
        run_tool(self.enter(), "nft", "-f", "-", stdin=rules)

    def lost_frames(self) -> int:
        """The frames that lose_percent has dropped."""
        listed = subprocess.run([*self.enter(), "nft", "list", "ruleset"], check=True, capture_output=True, text=True)
        return sum(int(count) for count in re.findall(r"counter packets (\d+)", listed.stdout))

    def enter(self) -> list[str]:
        """The words before a command that runs in the namespace."""
        return ["ip", "netns", "exec", self.namespace]
