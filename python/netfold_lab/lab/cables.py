"""Namespaces connected only by cables: one per worker, and one in which all their links end, for an Ethernet switch.
There is no bridge and no forwarding by the kernel, and there are addresses only for workers that need them."""

from __future__ import annotations

import contextlib
from types import TracebackType
from typing import Any

from netfold_lab.lab import names, netns, processes, shaping
from netfold_lab.lab.spec import LabSpec


class Cables:
    """The namespaces of `workers` workers and of the switch between them. At the end they are removed with all
    processes in them. With several `leaves` that namespace is for a tree of switches: as many below another one."""

    def __init__(
        self, workers: int, rate_mbit_s: float = 0, mtu: int = 1500, has_addresses: bool = False, leaves: int = 1
    ) -> None:
        self._spec = LabSpec(workers=workers, rate_mbit_s=rate_mbit_s, mtu=mtu)
        self._has_addresses = has_addresses
        self.lab_id = names.new_lab_id()
        self.fabric = names.fabric(self.lab_id)
        self.ports = [f"p{rank}" for rank in range(workers)]
        self._leaves = leaves if leaves > 1 else 0

    def worker(self, rank: int) -> str:
        """The namespace of a worker; its link is names.INTERFACE."""
        return names.worker(self.lab_id, rank)

    def address(self, rank: int) -> str:
        """The IPv4 address of a worker, in one network of all."""
        return f"10.77.0.{rank + 1}"

    def switches(self) -> list[dict[str, Any]]:
        """The switches: `interfaces`, by their number, `ports` of those that fold, and the number of a leaf's `uplink`.
        All ranks of a leaf follow each other."""
        if not self._leaves:
            return [{"interfaces": self.ports, "ports": list(range(len(self.ports)))}]
        mates = len(self.ports) // self._leaves
        leaves = [
            {
                "interfaces": [*self.ports[leaf * mates : (leaf + 1) * mates], f"up{leaf}"],
                "ports": list(range(mates)),
                "uplink": mates,
            }
            for leaf in range(self._leaves)
        ]
        return [
            *leaves,
            {"interfaces": [f"leaf{leaf}" for leaf in range(self._leaves)], "ports": [*range(self._leaves)]},
        ]

    def namespaces(self) -> list[str]:
        """All namespaces."""
        return [self.fabric, *(self.worker(rank) for rank in range(self._spec.workers))]

    def __enter__(self) -> Cables:
        try:
            netns.create(self.namespaces())
            self._connect()
        except BaseException:
            self._remove()
            raise
        return self

    def _connect(self) -> None:
        with contextlib.ExitStack() as stack:
            sockets = {name: stack.enter_context(netns.open_socket(name)) for name in self.namespaces()}
            for name in self.namespaces():
                # The kernel's own IPv6 frames would disturb the counters.
                netns.configure(name, {"net/ipv6/conf/default/disable_ipv6": "1"})
            for leaf in range(self._leaves):
                ends = (self.fabric, f"up{leaf}"), (self.fabric, f"leaf{leaf}")
                shaping.connect(sockets, *ends, self._spec, self._spec.rate_mbit_s)
            for rank, port in enumerate(self.ports):
                far = (self.worker(rank), names.INTERFACE)
                shaping.connect(sockets, (self.fabric, port), far, self._spec, self._spec.rate_mbit_s)
                if self._has_addresses:
                    ipr = sockets[far[0]]
                    index = shaping.index_of(ipr, names.INTERFACE)
                    ipr.addr("add", index=index, address=self.address(rank), prefixlen=24)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove()

    def _remove(self) -> None:
        processes.end_all_in(self.namespaces(), netns.DIRECTORY)
        netns.remove(self.namespaces())
