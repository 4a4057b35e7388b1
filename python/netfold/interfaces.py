"""The network interfaces of this machine, as the kernel names them."""

from __future__ import annotations

import fcntl
import socket
import struct
from pathlib import Path

SIOCGIFADDR = 0x8915
IPV4_AT = slice(20, 24)  # in the answer, a struct ifreq
IPV6_ADDRESSES = Path("/proc/net/if_inet6")


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


def interface_of(address: str) -> str:
    """The name of the interface that has this IPv4 or IPv6 address; empty where none has it."""
    if ":" not in address:
        return next((name for name, its_own in with_ipv4().items() if its_own == address), "")
    wanted = socket.inet_pton(socket.AF_INET6, address).hex()
    rows = [line.split() for line in IPV6_ADDRESSES.read_text().splitlines()]
    return next((row[-1] for row in rows if row[0] == wanted), "")
