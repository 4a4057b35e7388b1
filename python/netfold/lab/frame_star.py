"""A star whose middle is no bridge of the kernel's but `netfold switch --dpdk`: it forwards all frames and folds."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from pyroute2 import IPRoute

from netfold import native
from netfold.lab import faults, names, processes, shaping
from netfold.lab.errors import LabError
from netfold.lab.netns import enter
from netfold.lab.spec import LabSpec
from netfold.lab.star import SWITCH_PORT, Star

CONTROL_PORT = 7171
START_TIMEOUT_S = 30.0
POLL_S = 0.05
READY = "listening on "


def device(number: int, interface: str) -> str:
    """An interface as DPDK's driver for packet sockets opens it. Left to itself, that goes round the interface's queue,
    and so round the link's rate."""
    return f"net_af_packet{number},iface={interface},qdisc_bypass=0"


def start_switch(namespace: str, devices: list[str], directory: Path, more: Sequence[str] = ()) -> subprocess.Popen:
    """A switch of frames in a namespace, once it listens at names.switch_address(); what it says goes to switch.log in
    `directory`. Raises LabError with that, where it does not start."""
    program = native.find(native.SWITCH)
    if program is None:
        raise LabError(native.not_built(native.SWITCH))
    ports = [word for name in devices for word in ("--port", name)]
    where = ["--bind", names.switch_address(), "--port", str(CONTROL_PORT), "--metrics", names.switch_metrics()]
    words = [*enter(namespace), str(program), "--dpdk", *ports, *where, *more]
    log = directory / "switch.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, process_group=0
        )
    deadline = time.monotonic() + START_TIMEOUT_S
    while READY not in (said := log.read_text()):
        if process.poll() is not None or time.monotonic() > deadline:
            processes.end_children([process])
            raise LabError(f"the switch of the lab did not start: {said.strip() or 'it said nothing'}")
        time.sleep(POLL_S)
    return process


class FrameStar(Star):
    """The namespaces and links of one star. All ports are in the switch's namespace, the last of them the way to that
    host's own interface, where control connections end."""

    def __init__(self, spec: LabSpec, lab_id: str) -> None:
        super().__init__(spec, lab_id)
        self.fabric = self.switch  # where the workers' links end
        self._process: subprocess.Popen | None = None

    def nodes(self) -> list[str]:
        """The namespaces besides the workers'."""
        return [self.switch]

    def running_switch(self) -> str:
        """The address of the switch that is the fabric."""
        return f"{names.switch_address()}:{CONTROL_PORT}"

    def build(self, sockets: dict[str, IPRoute]) -> None:
        """Make the links in the namespaces, which are there."""
        spec, here = self._spec, self.switch
        for rank, worker in enumerate(self._workers):
            near, far = (here, f"p{rank}"), (worker, names.INTERFACE)
            shaping.connect(sockets, near, far, spec, spec.rate_mbit_s)
            self._address(sockets[worker], self.address(rank))
        shaping.connect(sockets, (here, SWITCH_PORT), (here, names.INTERFACE), spec, spec.switch_rate_mbit_s)
        self._address(sockets[here], names.switch_address())
        # Frames cross the ports as they would cross a wire: cut to the MTU, with their checksums.
        for namespace in (*self._workers, here):
            faults.offloads(enter(namespace), names.INTERFACE, False, checksums=True)

    def _address(self, ipr: IPRoute, address: str) -> None:
        ipr.addr("add", index=shaping.index_of(ipr, names.INTERFACE), address=address, prefixlen=24)

    def start(self, directory: Path) -> None:
        """Start the switch in its namespace, whose end is also its end, and wait until it listens."""
        devices = [device(number, port) for number, port in enumerate(self.ports())]
        self._process = start_switch(self.switch, devices, directory)

    def stop(self) -> None:
        """End the switch, where it is this process's."""
        if self._process is not None:
            processes.end_children([self._process])
            self._process = None
