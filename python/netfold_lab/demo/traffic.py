"""Bytes that this process sent and received over the network, counted at the sockets.

TCP (Gloo): the kernel's own counters of every TCP socket of the process, read with getsockopt(TCP_INFO):
`tcpi_bytes_sent` (with retransmissions) and `tcpi_bytes_received`. UDP (Netfold): the client's counters. Both count
payloads of the transport: with Netfold's 16-byte packet headers, without the headers of TCP, UDP and IP.
"""

from __future__ import annotations

import os
import socket
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Offsets in struct tcp_info of linux/tcp.h (they are stable, because the kernel only appends fields).
_BYTES_RECEIVED_AT = 128
_BYTES_SENT_AT = 200
_TCP_INFO_BYTES = 232


@dataclass(frozen=True)
class Traffic:
    """Bytes of transport payload."""

    sent_bytes: int = 0
    received_bytes: int = 0

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(self.sent_bytes + other.sent_bytes, self.received_bytes + other.received_bytes)

    def __sub__(self, other: Traffic) -> Traffic:
        return Traffic(self.sent_bytes - other.sent_bytes, self.received_bytes - other.received_bytes)


def tcp_traffic() -> Traffic:
    """The traffic of all open TCP connections of this process so far."""
    total = Traffic()
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            if not str(descriptor.readlink()).startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(descriptor.name))) as connection:
                total += _of_connection(connection)
        except OSError:  # it was closed meanwhile, or is not a TCP socket
            continue
    return total


def _of_connection(connection: socket.socket) -> Traffic:
    if connection.type != socket.SOCK_STREAM or connection.family not in (socket.AF_INET, socket.AF_INET6):
        return Traffic()
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
    if len(info) < _BYTES_SENT_AT + 8:  # a kernel before 4.19 has no bytes_sent
        raise OSError("this kernel does not count bytes sent per connection")
    (received,) = struct.unpack_from("<Q", info, _BYTES_RECEIVED_AT)
    (sent,) = struct.unpack_from("<Q", info, _BYTES_SENT_AT)
    return Traffic(sent, received)


def client_traffic(stats: dict[str, Any]) -> Traffic:
    """The traffic of a Netfold client so far."""
    return Traffic(stats["sent_bytes"], stats["received_bytes"])
