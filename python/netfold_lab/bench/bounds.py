"""Lower bounds of collectives in seconds, from the link's rate and the headers.

The time of a collective that sends each gradient once and receives each sum once cannot be less than

    bound_s = 8 * wire_bytes / rate

where wire_bytes are the bytes that one worker sends: the packets' payloads, and in each packet 16 bytes of Netfold's
header, 8 of UDP, 20 of IPv4 and 14 of Ethernet. (The token bucket does not count preamble, checksum and gap.) Both
directions run at once. The token bucket passes the first `burst` bytes at once, so a start from rest can be burst * 8 /
rate faster: that is `bound_from_rest_s`. A ring sends 2 (n - 1) / n of the tensor, in TCP segments (66 bytes of headers
and 1448 of payload at an MTU of 1500). Halving-doubling sends as much. Ranks that sum among themselves cannot send
less, so this is the bound of all systems without a switch.
"""

from __future__ import annotations

ETHERNET = 14
IP_UDP = 28
NETFOLD = 16
IP_TCP = 52  # with timestamps
BITS = 8
PAYLOAD_MAX = 8192  # the most that the switch leases


def payload_bytes(count: int, wire: str, block: int, mantissa: int) -> int:
    """Bytes that `count` elements take in a format."""
    if wire == "bfp":
        return -(-count // block) * (1 + block * (mantissa + 1) // BITS)
    return count * {"fp32": 4, "int32": 4, "fp16": 2, "bf16": 2}[wire]


def elements_per_packet(mtu: int, wire: str, block: int, mantissa: int) -> int:
    """The number of elements in one packet. Elements, or whole blocks, fill the payload, which is a multiple of 32 bits
    and at most PAYLOAD_MAX."""
    room = min(mtu - IP_UDP - NETFOLD, PAYLOAD_MAX) // 4 * 4
    if wire == "bfp":
        return room // payload_bytes(block, wire, block, mantissa) * block
    return room // payload_bytes(1, wire, block, mantissa)


def in_network_wire_bytes(count: int, mtu: int, wire: str, block: int = 16, mantissa: int = 7) -> int:
    """The bytes that one worker sends, and the bytes that it receives."""
    each = elements_per_packet(mtu, wire, block, mantissa)
    packets, rest = divmod(count, each)
    headers = ETHERNET + IP_UDP + NETFOLD
    total = packets * (payload_bytes(each, wire, block, mantissa) + headers)
    return total + (payload_bytes(rest, wire, block, mantissa) + headers if rest else 0)


def ring_wire_bytes(gradient_bytes: int, mtu: int, world: int) -> int:
    """The bytes that one worker sends in a ring over TCP, without acknowledgements."""
    return tcp_wire_bytes(2 * (world - 1) * gradient_bytes // world, mtu)


def tcp_wire_bytes(data_bytes: int, mtu: int) -> int:
    """The bytes of full TCP segments, without acknowledgements."""
    segments = -(-data_bytes // (mtu - IP_TCP))
    return data_bytes + segments * (ETHERNET + IP_TCP)


def seconds(wire_bytes: int, rate_mbit_s: float) -> float:
    """The time that these bytes take on a link."""
    return wire_bytes * BITS / (rate_mbit_s * 1e6)
