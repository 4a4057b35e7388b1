"""The network interfaces of this machine, as the kernel names them, and their addresses."""

from __future__ import annotations

import fcntl
import ipaddress
import socket
import struct
from pathlib import Path

SIOCGIFADDR = 0x8915
IPV4_AT = slice(20, 24)  # in the answer, a struct ifreq
IPV6_ADDRESSES = Path("/proc/net/if_inet6")


def addresses() -> list[tuple[str, str]]:
    """Each interface's name with each of its addresses, IPv4 before IPv6."""
    return [*_ipv4(), *_ipv6()]


def _ipv4() -> list[tuple[str, str]]:
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(asked, SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except OSError:  # it has no IPv4 address
                continue
            found.append((name, socket.inet_ntoa(answer[IPV4_AT])))
    return found


def _ipv6() -> list[tuple[str, str]]:
    if not IPV6_ADDRESSES.exists():  # a kernel without IPv6
        return []
    rows = [line.split() for line in IPV6_ADDRESSES.read_text().splitlines()]
    return [(row[-1], str(ipaddress.IPv6Address(bytes.fromhex(row[0])))) for row in rows]


def interface_of(address: str) -> str:
    """The name of the interface that has this IPv4 or IPv6 address; empty where none has it."""
    wanted = ipaddress.ip_address(address)
    return next((name for name, its_own in addresses() if ipaddress.ip_address(its_own) == wanted), "")


def reaches_far(address: str) -> bool:
    """Whether other machines can reach this address. They cannot reach one of loopback, nor one that needs the name of
    an interface beside it (link-local)."""
    if "%" in address:
        return False
    parsed = ipaddress.ip_address(address)
    return not (parsed.is_loopback or parsed.is_link_local)


def family_of(address: str) -> socket.AddressFamily:
    """The family of an address, for a socket."""
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def in_address(host: str) -> str:
    """A host as it stands before a port: an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host
