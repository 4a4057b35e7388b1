"""What the link's rate and the headers allow, in seconds.

The time of a collective that sends each gradient once and receives each sum once cannot be less than

    bound_s = 8 * wire_bytes / rate

where wire_bytes is what one worker sends: the packets' payloads, and in each packet 16 bytes of Netfold's header, 8 of
UDP, 20 of IPv4 and 14 of Ethernet (preamble, checksum and gap are not charged by the token bucket, for anybody). Up and
down run at once. The token bucket's first `burst` bytes go at once, so a start from rest can be burst * 8 / rate
faster: that is `bound_from_rest_s`. A ring's bound is 2 (n - 1) / n of the tensor, in TCP segments (66 bytes of headers
to 1448 of payload at an MTU of 1500). Halving-doubling sends as much, and ranks that sum among themselves cannot do
with less: it is the bound of everything but the switch.
"""

from __future__ import annotations

ETHERNET = 14
IP_UDP = 28
NETFOLD = 16
IP_TCP = 52  # with timestamps
BITS = 8
PAYLOAD_MAX = 8192  # what the switch leases at most


def payload_bytes(count: int, wire: str, block: int, mantissa: int) -> int:
    """Bytes that `count` elements take in a format."""
    if wire == "bfp":
        return -(-count // block) * (1 + block * (mantissa + 1) // BITS)
    return count * {"fp32": 4, "int32": 4, "fp16": 2, "bf16": 2}[wire]


def elements_per_packet(mtu: int, wire: str, block: int, mantissa: int) -> int:
    """How many elements one packet carries: those, or the whole blocks, that fit in its payload, which is of whole
    32-bit words and at most PAYLOAD_MAX."""
    room = min(mtu - IP_UDP - NETFOLD, PAYLOAD_MAX) // 4 * 4
    if wire == "bfp":
        return room // payload_bytes(block, wire, block, mantissa) * block
    return room // payload_bytes(1, wire, block, mantissa)


def in_network_wire_bytes(count: int, mtu: int, wire: str, block: int = 16, mantissa: int = 7) -> int:
    """Bytes one worker sends, and bytes it receives."""
    each = elements_per_packet(mtu, wire, block, mantissa)
    packets, rest = divmod(count, each)
    headers = ETHERNET + IP_UDP + NETFOLD
    total = packets * (payload_bytes(each, wire, block, mantissa) + headers)
    return total + (payload_bytes(rest, wire, block, mantissa) + headers if rest else 0)


def ring_wire_bytes(gradient_bytes: int, mtu: int, world: int) -> int:
    """Bytes one worker sends in a ring over TCP, acknowledgements left out."""
    return tcp_wire_bytes(2 * (world - 1) * gradient_bytes // world, mtu)


def tcp_wire_bytes(data_bytes: int, mtu: int) -> int:
    """Bytes of full TCP segments, acknowledgements left out."""
    segments = -(-data_bytes // (mtu - IP_TCP))
    return data_bytes + segments * (ETHERNET + IP_TCP)


def seconds(wire_bytes: int, rate_mbit_s: float) -> float:
    """The time these bytes take on a link."""
    return wire_bytes * BITS / (rate_mbit_s * 1e6)
