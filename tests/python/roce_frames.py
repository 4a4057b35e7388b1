"""RoCE frames, v1 and v2, made and checked only by scapy and zlib. Tests compare the core with them; no line of the
core is used."""

from __future__ import annotations

import struct
import subprocess
import zlib
from dataclasses import dataclass
from pathlib import Path

from scapy.contrib.roce import AETH, BTH, GRH
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Raw

ETHERNET, GRH_BYTES, TRANSPORT, RETH = 14, 40, 12, 16
IP_UDP_BYTES, UDP_PORT = 28, 4791
ROCE, IPV4 = 0x8915, 0x0800  # EtherTypes of v1 and of v2
FIRST, MIDDLE, LAST, LAST_IMMEDIATE, ONLY, ACKNOWLEDGE = 6, 7, 8, 9, 10, 17
PATH_MTU, AGGREGATION, SHORT = 1024, 20, 4
ONE_WAY, GIVES, OTHER_SHIFT = 4, 0x8000, 8  # a flag of the aggregation header, and what its rank says then
SUMMED_LABEL, SUMMED_FLAG, SUMMED_IMMEDIATE = 0x04E46, 2, 0x80000000
SUMMED_RESERVED = 0x4E  # v2: the seven bits before the PSN


def mac(rank: int) -> str:
    """The MAC address of a worker."""
    return f"02:00:00:00:00:{rank + 1:02x}"


def network_bytes(packet: bytes) -> int:
    """The length of a packet's GRH, or of its IPv4 and UDP headers."""
    return GRH_BYTES if packet[0] >> 4 == 6 else IP_UDP_BYTES


def with_ipv4_checksum(packet: bytes) -> bytes:
    """An IPv4 packet without options, with its header's right checksum (RFC 1071)."""
    total = sum(int.from_bytes(packet[at : at + 2], "big") for at in range(0, 20, 2) if at != 10)
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return packet[:10] + (~total & 0xFFFF).to_bytes(2, "big") + packet[12:]


def icrc(packet: bytes) -> bytes:
    """The ICRC of a packet from its GRH or IPv4 header on, without its last four bytes: the InfiniBand specification,
    7.8.1 and A17.3.3, word by word."""
    network = network_bytes(packet)
    head = bytearray(packet[: network + TRANSPORT])
    if network == GRH_BYTES:
        head[0] |= 0x0F  # traffic class and flow label
        head[1:4] = b"\xff" * 3
        head[7] = 0xFF  # hop limit
    else:
        head[1] = head[8] = 0xFF  # type of service, time to live
        head[10:12] = head[26:28] = b"\xff" * 2  # checksums of IPv4 and UDP
    head[network + 4] = 0xFF  # FECN, BECN and what is reserved
    return struct.pack("<I", zlib.crc32(b"\xff" * 8 + bytes(head) + packet[network + TRANSPORT :]))


@dataclass(frozen=True)
class Connection:
    """The sender and the receiver of each write."""

    source: str
    destination: str
    queue_pair: int = 0x123
    source_gid: int = 0xFE80 << 112 | 1
    destination_gid: int = 0xFE80 << 112 | 2
    version: int = 1

    def frame(self, opcode: int, psn: int, body: bytes, ack_request: bool = False, ethernet: int = 0x8915) -> bytes:
        """A whole frame; `body` is all between BTH and ICRC."""
        padding = -len(body) % 4
        transport = bytes(BTH(opcode=opcode, migreq=1, padcount=padding, dqpn=self.queue_pair, ackreq=ack_request))
        transport = transport[:9] + psn.to_bytes(3, "big")  # scapy would add an ICRC of RoCE v2
        length = len(transport) + len(body) + padding + 4
        if self.version == 1:
            gids = {"sgid": self.source_gid, "dgid": self.destination_gid}
            network = bytes(GRH(flowlabel=0, paylen=length, nexthdr=0x1B, hoplmt=1, **gids))
        else:
            ethernet = IPV4
            ip = IP(src=ipv4(self.source_gid), dst=ipv4(self.destination_gid), flags="DF", id=0, len=28 + length)
            network = bytes(ip / UDP(sport=0xC000, dport=UDP_PORT, len=8 + length, chksum=0))
        packet = network + transport + body + bytes(padding)
        ether = Ether(dst=self.destination, src=self.source, type=ethernet)
        return bytes(ether / Raw(packet + icrc(packet)))

    def message(
        self, psn: int, header: bytes, elements: bytes, immediate: int | None = None, is_short: bool = False
    ) -> list[bytes]:
        """The frames of one message: a write of header and elements, cut at 1024 bytes; or its short packets."""
        whole = header + elements
        parts = [whole[at : at + PATH_MTU] for at in range(0, len(whole), PATH_MTU)]
        if is_short:
            parts = [(b"" if index else header) + bytes(SHORT) for index in range(len(parts))]
        frames = []
        for index, part in enumerate(parts):
            opcode = FIRST if index == 0 else MIDDLE
            before = struct.pack("!QII", 0x1000, 0x77, len(whole)) if index == 0 else b""
            if index == len(parts) - 1:
                opcode = LAST if immediate is None else LAST_IMMEDIATE
                before = b"" if immediate is None else struct.pack("!I", immediate)
            frames.append(self.frame(opcode, (psn + index) & 0xFFFFFF, before + part, opcode in (LAST, LAST_IMMEDIATE)))
        return frames


def ipv4(gid: int) -> str:
    """The address that the last four bytes of a GID are."""
    return f"10.0.{gid >> 8 & 0xFF}.{gid & 0xFF}"


def aggregation_header(
    rank: int, message: int, length: int, job: int = 1, epoch: int = 1, fmt: int = 0, flags: int = 0
) -> bytes:
    """The 20 bytes in a Write First."""
    return struct.pack("!HBBHHHBBII", 0x4E46, 1 << 4 | fmt, flags, job, epoch, rank, 0, 0, message, length)


@dataclass(frozen=True)
class Read:
    """A frame as scapy reads it."""

    destination: str
    opcode: int
    queue_pair: int
    psn: int
    flow_label: int
    reserved: int
    body: bytes

    @property
    def is_sum(self) -> bool:
        """Whether a switch marked it."""
        return self.flow_label == SUMMED_LABEL or self.reserved == SUMMED_RESERVED


def read(frame: bytes) -> Read:
    """Dissect a frame, and check all lengths and the ICRC on the way."""
    ether = Ether(frame[:ETHERNET])
    label = 0
    if ether.type == ROCE:
        grh = GRH(frame[ETHERNET:])
        label, size = grh.flowlabel, GRH_BYTES + grh.paylen
        assert grh.ipver == 6 and grh.nexthdr == 0x1B
    else:
        assert ether.type == IPV4
        ip = IP(frame[ETHERNET:])
        size = ip.len
        assert (ip.ihl, ip.proto, ip[UDP].dport, ip[UDP].len) == (5, 17, UDP_PORT, ip.len - 20)
        header = frame[ETHERNET : ETHERNET + 20]
        unsummed = IP(header)
        del unsummed.chksum
        assert bytes(unsummed)[:20] == header, "IPv4 checksum"
    packet = frame[ETHERNET : ETHERNET + size]
    assert packet[-4:] == icrc(packet[:-4]), "ICRC"
    network = network_bytes(packet)
    transport = BTH(packet[network:])
    assert transport.version == 0
    body = packet[network + TRANSPORT : len(packet) - 4 - transport.padcount]
    if transport.opcode == ACKNOWLEDGE:
        assert len(bytes(AETH(body))) >= len(body) == 4
    return Read(ether.dst, transport.opcode, transport.dqpn, transport.psn, label, transport.resv7, body)


def elements_of(frame: Read, index: int) -> bytes:
    """The gradients in packet `index` of a message."""
    if index == 0:
        return frame.body[RETH + AGGREGATION :]
    return frame.body[4:] if frame.opcode == LAST_IMMEDIATE else frame.body


def frames_marked_by_tshark(capture: Path) -> str:
    """Frames that tshark calls malformed or wrong."""
    marks = "_ws.malformed || _ws.expert.severity >= 0x600000"
    done = subprocess.run(
        ["tshark", "-r", str(capture), "-Y", marks], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def fields_by_tshark(capture: Path) -> list[tuple[int, int, int]]:
    """Opcode, queue pair and PSN of each RoCE frame, as tshark reads it."""
    fields = [word for name in ("opcode", "destqp", "psn") for word in ("-e", f"infiniband.bth.{name}")]
    words = ["tshark", "-r", str(capture), "-Y", "infiniband", "-T", "fields", *fields]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
    return [tuple(int(field, 0) for field in line.split("\t")) for line in done.stdout.splitlines()]
