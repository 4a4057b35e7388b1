"""Builds a lab and always removes it."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from netfold.topology import file as topology_file
from netfold_lab.errors import LabError
from netfold_lab.guard import undisturbed
from netfold_lab.lab import faults, names, netns, processes, shaping, state
from netfold_lab.lab.frame_star import FrameStar
from netfold_lab.lab.netns import enter
from netfold_lab.lab.routed import Routed
from netfold_lab.lab.spec import DPDK, Faults, LabSpec
from netfold_lab.lab.star import Star

if TYPE_CHECKING:
    from pyroute2 import IPRoute


class Lab:
    """An emulated cluster: one namespace per worker, and the namespaces of the fabric between them."""

    def __init__(self, spec: LabSpec, lab_id: str = "", keep: bool = False, held: bool = False) -> None:
        """`keep`: it stays after the command that builds it, or, with `held`, as long as that command waits."""
        self.spec = spec
        self.lab_id = lab_id or names.new_lab_id()
        self._keep = keep
        self._held = held
        wiring = spec.wiring()
        star = FrameStar if spec.switch == DPDK else Star
        self.fabric = Routed(spec, self.lab_id, wiring) if wiring else star(spec, self.lab_id)
        self._sockets: dict[str, IPRoute] = {}

    @property
    def directory(self) -> Path:
        """A folder that exists as long as the lab."""
        return state.directory(self.lab_id)

    @property
    def topology(self) -> Path | None:
        """The topology file of a routed fabric (NETFOLD_TOPOLOGY). A fat tree is described as a BiGraph, leaf by
        leaf."""
        return None if isinstance(self.fabric, Star) else self.directory / "topology.yaml"

    def worker(self, rank: int) -> str:
        """The namespace of a worker."""
        return names.worker(self.lab_id, rank)

    def namespaces(self) -> list[str]:
        """All namespaces of the lab."""
        return [*self.fabric.nodes(), *(self.worker(rank) for rank in range(self.spec.workers))]

    def addresses(self) -> dict[str, str]:
        """Addresses by node: w0, w1, ... and, in a star, switch."""
        nodes = {f"w{rank}": self.fabric.address(rank) for rank in range(self.spec.workers)}
        switches = self.spec.boxes if isinstance(self.fabric, Star) else 0
        return nodes | {names.switch_node(number): names.switch_address(number) for number in range(switches)}

    def __enter__(self) -> Lab:
        try:
            self.up()
        except BaseException:
            self.down()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.down()

    def up(self) -> None:
        """Build the lab. The state is on disk before the first namespace exists, so that a later command can clean up
        after a crash."""
        from pyroute2.netlink.exceptions import NetlinkError

        all_namespaces = self.namespaces()
        owner_pid, owner_start_ticks = state.owner()
        known = state.LabState(
            lab_id=self.lab_id,
            workers=self.spec.workers,
            keep=self._keep,
            held=self._held,
            owner_pid=owner_pid,
            owner_start_ticks=owner_start_ticks,
            namespaces=all_namespaces,
            parameters=asdict(self.spec),
            addresses=self.addresses(),
        )
        state.save(known)
        try:
            netns.create(all_namespaces)
            for name in all_namespaces:
                self._sockets[name] = netns.open_socket(name)
                self._link_up(name, "lo")
            self.fabric.build(self._sockets)
        except (NetlinkError, OSError) as error:
            raise LabError(f"the lab's network could not be built: {error}; run `netfold doctor`") from error
        if isinstance(self.fabric, FrameStar):
            self.fabric.start(self.directory)
        if self.spec.faults:
            self.set_offloads(False)
            self.set_faults(self.spec.faults)
        if self.topology is not None:
            hosts = tuple(self.fabric.address(rank) for rank in range(self.spec.workers))
            topology_file.write(self.topology, topology_file.Topology.regular(*self.spec.shape, hosts))
        known.ready = True
        state.save(known)

    def _link_up(self, namespace: str, interface: str) -> None:
        ipr = self._sockets[namespace]
        ipr.link("set", index=shaping.index_of(ipr, interface), state="up")

    def set_rate(self, rate_mbit_s: float) -> None:
        """Set another rate for every worker's link and every cable between switches."""
        self.spec = replace(self.spec, rate_mbit_s=rate_mbit_s)
        ends = [(self.worker(rank), names.INTERFACE) for rank in range(self.spec.workers)]
        ends += [self.fabric.downlink(rank) for rank in range(self.spec.workers)]
        if isinstance(self.fabric, Routed):
            ends += self.fabric.cable_ends()
        self._shape(ends, rate_mbit_s)

    def set_switch_rate(self, rate_mbit_s: float) -> None:
        """Set another rate above 0 for the links of a star's switches. They need a rate from the start."""
        assert isinstance(self.fabric, Star), "only the switches of a star have links of their own (LabSpec)"
        assert self.spec.switch_rate_mbit_s and rate_mbit_s, "a link without a token bucket has no rate"
        self.spec = replace(self.spec, switch_rate_mbit_s=rate_mbit_s)
        self._shape(self.fabric.switch_ends(), rate_mbit_s)

    def _shape(self, ends: Iterable[tuple[str, str]], rate_mbit_s: float) -> None:
        """Set the rate at these ends of links: namespaces and interfaces."""
        for namespace, interface in ends:
            ipr = self._sockets[namespace]
            shaping.shape(ipr, interface, rate_mbit_s, self.spec.burst_bytes, self.spec.latency_ms)

    def set_faults(self, wanted: Faults) -> None:
        """Switch faults on or off on every link of a star. They are fair only while offloads are off."""
        assert isinstance(self.fabric, Star), "only stars have faults (LabSpec)"
        for port in self.fabric.ports():
            if wanted.reorder:
                ipr, spec = self._sockets[self.fabric.fabric], self.spec
                faults.shape_detour(ipr, port, spec.rate_mbit_s, spec.mtu, wanted.reorder)
        faults.set_rules(enter(self.fabric.fabric), self.fabric.ports(), wanted)

    def set_offloads(self, on: bool) -> None:
        """Whether senders may hand their links packets longer than the MTU."""
        assert isinstance(self.fabric, Star), "only stars have faults (LabSpec)"
        for namespace in self.fabric.ends():
            faults.offloads(enter(namespace), names.INTERFACE, on)

    def spawn(self, namespace: str, command: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """Start a program in a namespace of this lab."""
        return subprocess.Popen([*enter(namespace), *command], **options)

    def sent_and_received(self, rank: int) -> tuple[shaping.Traffic, shaping.Traffic]:
        """The traffic of a worker's link so far: up from the worker, down to it."""
        up = shaping.traffic(self._sockets[self.worker(rank)], names.INTERFACE)
        namespace, interface = self.fabric.downlink(rank)
        return up, shaping.traffic(self._sockets[namespace], interface)

    def sent_up(self, leaf: int) -> shaping.Traffic:
        """The traffic that a leaf has sent to the switch above it so far."""
        assert isinstance(self.fabric, Star), "only stars have leaves (LabSpec)"
        namespace, interface = self.fabric.uplink(leaf)
        return shaping.traffic(self._sockets[namespace], interface)

    def down(self) -> None:
        """Remove the lab: processes, namespaces (with their links), files."""
        for ipr in self._sockets.values():
            with contextlib.suppress(Exception):
                ipr.close()
        self._sockets.clear()
        if isinstance(self.fabric, FrameStar):
            self.fabric.stop()
        remove(self.lab_id)


def remove(lab_id: str) -> None:
    """Remove the remains of a lab, of any process. A second Ctrl-C waits until it is removed."""
    with undisturbed():
        mine = [name for name in netns.existing() if names.lab_of(name) == lab_id]
        if mine:
            processes.end_all_in(mine, netns.DIRECTORY)
        netns.remove(mine)
        state.forget(lab_id)
