"""UDP of this kernel: offloads and buffers, each tried on a loopback socket."""

from __future__ import annotations

import socket
from pathlib import Path

from netfold.cli.checks import OK, SLOW, Check

SOL_UDP, UDP_SEGMENT, UDP_GRO = 17, 103, 104
SEGMENT_BYTES, SEGMENTS = 1000, 8
BUFFER_BYTES = 16 << 20  # a link asks for this size
SO_SNDBUFFORCE, SO_RCVBUFFORCE = 32, 33  # privileged processes may exceed the limits below
TIMEOUT_S = 1.0
KERNEL = "a kernel of 5.0 or later"


def _pair() -> tuple[socket.socket, socket.socket]:
    receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    receiver.bind(("127.0.0.1", 0))
    receiver.settimeout(TIMEOUT_S)
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sender.connect(receiver.getsockname())
    return sender, receiver


def _lengths(receiver: socket.socket, total: int) -> list[int]:
    """The lengths of the datagrams that arrive, until `total` bytes arrived or nothing more arrives."""
    lengths: list[int] = []
    try:
        while sum(lengths) < total:
            lengths.append(len(receiver.recv(1 << 16)))
    except TimeoutError:
        pass
    return lengths


def offloads() -> list[Check]:
    """Segmentation: one send call makes many datagrams. Receive offload: one receive call gets many datagrams."""
    payload = bytes(SEGMENT_BYTES * SEGMENTS)
    checks = []
    for name, what, receive_offload, wanted in (
        ("UDP GSO", "one send call for many datagrams", False, [SEGMENT_BYTES] * SEGMENTS),
        ("UDP GRO", "one receive call for many datagrams", True, [len(payload)]),
    ):
        sender, receiver = _pair()
        with sender, receiver:
            try:
                sender.setsockopt(SOL_UDP, UDP_SEGMENT, SEGMENT_BYTES)
                if receive_offload:
                    receiver.setsockopt(SOL_UDP, UDP_GRO, 1)
                sender.send(payload)
                works = _lengths(receiver, len(payload)) == wanted
            except OSError:
                works = False
        checks.append(Check(name, OK, what) if works else Check(name, SLOW, f"not here: {what}", KERNEL))
    return checks


def buffers() -> list[Check]:
    """The bytes that a socket holds while its reader is busy. The check asks as a link does: beyond the limits if the
    process may. With small buffers, bursts are lost and sent again."""
    checks = []
    for name, by_force, option in (
        ("rmem_max", SO_RCVBUFFORCE, socket.SO_RCVBUF),
        ("wmem_max", SO_SNDBUFFORCE, socket.SO_SNDBUF),
    ):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.setsockopt(socket.SOL_SOCKET, by_force, BUFFER_BYTES)
            except PermissionError:
                probe.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)
            granted = probe.getsockopt(socket.SOL_SOCKET, option) // 2  # the kernel doubles the size for its own data
        words = f"{granted >> 10} KiB of {BUFFER_BYTES >> 10} KiB granted"
        if granted >= BUFFER_BYTES:
            checks.append(Check(f"net.core.{name}", OK, words))
        else:
            checks.append(Check(f"net.core.{name}", SLOW, words, f"sysctl -w net.core.{name}={BUFFER_BYTES}"))
    return checks


def mtus() -> list[Check]:
    """Jumbo frames: six times fewer packets for the same gradients."""
    checks = []
    for interface in sorted(Path("/sys/class/net").iterdir()):
        if not (interface / "device").exists():
            continue  # loopback, bridges, tunnels: only the NIC matters
        mtu = int((interface / "mtu").read_text())
        if mtu >= 9000:
            checks.append(Check(f"MTU of {interface.name}", OK, f"{mtu} bytes"))
        else:
            fix = f"ip link set dev {interface.name} mtu 9000   # if every port on the way carries jumbo frames"
            checks.append(Check(f"MTU of {interface.name}", SLOW, f"{mtu} bytes, more packets than needed", fix))
    return checks
