"""A smart NIC that a worker starts for itself: a Verilated NIC in a process of its own, which ends with the worker."""

from __future__ import annotations

import os
import secrets
import socket

from netfold import helpers, native


class SimulatedNic:
    """A running NIC of this bfp shape. Its frames are UDP datagrams between the machines' addresses; `ip` is this one's
    (or its name). `address` is its socket. Call `release` later.

    Raises RuntimeError if it was not built or cannot start.
    """

    def __init__(self, block: int, mantissa: int, ip: str) -> None:
        self.address = f"@netfold-nic-{os.getpid()}-{secrets.token_hex(8)}"
        try:
            host = socket.gethostbyname(ip)
        except OSError as error:
            raise RuntimeError(f"netfold: a simulated NIC needs an IPv4 address, not {ip}: {error}") from None
        arguments = ["--socket", self.address, "--ip", host, "--log-level", "error"]
        self._process = helpers.start(native.simulated_nic(block, mantissa), arguments)

    def release(self) -> None:
        """End it. A second call does nothing."""
        helpers.end(self._process)
