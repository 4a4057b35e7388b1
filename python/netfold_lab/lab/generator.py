"""A generator and the Ethernet switch under test, each in a namespace of its own. Only the workers' cables connect
them: veth pairs with af_packet at both ends, or memif's shared memory."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from netfold_lab.lab import faults, names, netns, processes, shaping
from netfold_lab.lab.frame_star import CONTROL_PORT, start_switch
from netfold_lab.lab.netns import enter
from netfold_lab.lab.spec import LabSpec
from netfold_lab.lab.star import SWITCH_PORT

VETH, MEMIF = "veth", "memif"
KINDS = (VETH, MEMIF)
MEMIF_FRAMES_LOG2 = 10  # frames of a ring; DPDK calls it rsize
DISABLE_IPV6 = {"net/ipv6/conf/default/disable_ipv6": "1"}  # the kernel's own IPv6 frames would disturb the counters


class GeneratorLab:
    """The two namespaces, their cables and the running switch. At the end they are removed with all processes in
    them."""

    def __init__(self, workers: int, kind: str, mtu: int = 1500, switch_words: Sequence[str] = ()) -> None:
        self._spec = LabSpec(workers=workers, rate_mbit_s=0, mtu=mtu)
        self._kind, self._switch_words = kind, switch_words
        lab_id = names.new_lab_id()
        self._generator, self._switch = names.worker(lab_id, 0), names.switch(lab_id)
        self._stack = contextlib.ExitStack()
        self.switch_address = f"{names.switch_address()}:{CONTROL_PORT}"
        self.first_address = names.worker_address(0)
        self.devices: list[str] = []  # of the generator, one per worker

    def enter(self) -> list[str]:
        """The words before the generator's command."""
        return enter(self._generator)

    def __enter__(self) -> GeneratorLab:
        try:
            self.directory = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="nf-")))
            self._stack.callback(self._remove)
            netns.create([self._generator, self._switch])
            self._connect()
            self.devices = [self._device(rank, far=True) for rank in range(self._spec.workers)]
            ports = [*(self._device(rank, far=False) for rank in range(self._spec.workers)), SWITCH_PORT]
            started = start_switch(self._switch, ports, self.directory, self._switch_words)
            self._stack.callback(processes.end_children, [started])
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _device(self, rank: int, *, far: bool) -> str:
        if self._kind == VETH:
            return f"w{rank}" if far else f"p{rank}"
        socket = self.directory / "memif"
        role = "client" if far else "server"
        return f"net_memif{rank},role={role},id={rank},socket={socket},socket-abstract=no,rsize={MEMIF_FRAMES_LOG2}"

    def _connect(self) -> None:
        both = (self._generator, self._switch)
        with contextlib.ExitStack() as stack:
            sockets = {name: stack.enter_context(netns.open_socket(name)) for name in both}
            for name in both:
                netns.configure(name, DISABLE_IPV6)
            if self._kind == VETH:
                for rank in range(self._spec.workers):
                    near, far = (self._switch, f"p{rank}"), (self._generator, f"w{rank}")
                    shaping.connect(sockets, near, far, self._spec, 0)
            # The link to the switch's own host, where control connections end.
            here = (self._switch, names.INTERFACE)
            shaping.connect(sockets, (self._switch, SWITCH_PORT), here, self._spec, 0)
            ipr = sockets[self._switch]
            index = shaping.index_of(ipr, names.INTERFACE)
            ipr.addr("add", index=index, address=names.switch_address(), prefixlen=24)
            faults.offloads(enter(self._switch), names.INTERFACE, False, checksums=True)

    def _remove(self) -> None:
        both = (self._generator, self._switch)
        processes.end_all_in(both, netns.DIRECTORY)
        netns.remove(both)
