"""A star with `netfold switch --dpdk` in the middle, in place of a kernel bridge: it forwards all frames and folds."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from netfold import native
from netfold_lab.errors import LabError
from netfold_lab.lab import faults, names, processes, shaping
from netfold_lab.lab.netns import enter
from netfold_lab.lab.spec import LabSpec
from netfold_lab.lab.star import SWITCH_PORT, Star

if TYPE_CHECKING:
    from pyroute2 import IPRoute

CONTROL_PORT = 7171
START_TIMEOUT_S = 30.0
POLL_S = 0.05
READY = "listening on "


def device(number: int, interface: str) -> str:
    """The device string for DPDK's packet-socket driver. By default the driver bypasses the interface's queue, and so
    the link's rate limit."""
    return f"net_af_packet{number},iface={interface},qdisc_bypass=0"


def start_switch(namespace: str, devices: list[str], directory: Path, more: Sequence[str] = ()) -> subprocess.Popen:
    """Start an Ethernet switch in a namespace, and wait until it listens at names.switch_address(). Its output goes to
    switch.log in `directory`. Raises LabError with that output if it does not start."""
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
            raise LabError(f"the switch of the lab did not start: {said.strip() or 'it printed nothing'}")
        time.sleep(POLL_S)
    return process


class FrameStar(Star):
    """The namespaces and links of one star. All ports are in the switch's namespace. The last port leads to that host's
    own interface, where control connections end."""

    def __init__(self, spec: LabSpec, lab_id: str) -> None:
        super().__init__(spec, lab_id)
        self.fabric = self.switches[0]  # the end of the workers' links
        self._process: subprocess.Popen | None = None

    def nodes(self) -> list[str]:
        """The namespaces other than the workers'."""
        return [self.fabric]

    def running_switch(self) -> str:
        """The address of the switch that is the fabric."""
        return f"{names.switch_address()}:{CONTROL_PORT}"

    def build(self, sockets: dict[str, IPRoute]) -> None:
        """Create the links in the existing namespaces."""
        spec, here = self._spec, self.fabric
        for rank, worker in enumerate(self._workers):
            near, far = (here, f"p{rank}"), (worker, names.INTERFACE)
            shaping.connect(sockets, near, far, spec, spec.rate_mbit_s)
            self._address(sockets[worker], self.address(rank))
        shaping.connect(sockets, (here, SWITCH_PORT), (here, names.INTERFACE), spec, spec.switch_rate_mbit_s)
        self._address(sockets[here], names.switch_address())
        # Frames cross the ports as on a wire: cut to the MTU, with their checksums.
        for namespace in (*self._workers, here):
            faults.offloads(enter(namespace), names.INTERFACE, False, checksums=True)

    def _address(self, ipr: IPRoute, address: str) -> None:
        ipr.addr("add", index=shaping.index_of(ipr, names.INTERFACE), address=address, prefixlen=24)

    def start(self, directory: Path) -> None:
        """Start the switch in its namespace and wait until it listens. It ends with the namespace."""
        devices = [device(number, port) for number, port in enumerate(self.ports())]
        self._process = start_switch(self.fabric, devices, directory)

    def stop(self) -> None:
        """End the switch, if this process started it."""
        if self._process is not None:
            processes.end_children([self._process])
            self._process = None
