"""The network interfaces of this machine, as the kernel names them."""

from __future__ import annotations

import fcntl
import socket
import struct

SIOCGIFADDR = 0x8915
IPV4_AT = slice(20, 24)  # in the answer, a struct ifreq


def with_ipv4() -> dict[str, str]:
    """The IPv4 address of each interface that has one, by the interface's name."""
    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(asked, SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except OSError:  # it has no IPv4 address
                continue
            found[name] = socket.inet_ntoa(answer[IPV4_AT])
    return found
