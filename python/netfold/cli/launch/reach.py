"""Whether machines reach each other over TCP and UDP, and how fast: what firewalls and links between them do."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time

from netfold.interfaces import family_of, in_address

TIMEOUT_S = 3.0
UDP_TRIES = 3
BLOCK = bytes(1 << 18)
COUNT = struct.Struct("!Q")


class Listener:
    """One port, TCP and UDP: a datagram is sent back, a connection's bytes are counted, and the count is sent back when
    they end."""

    def __init__(self) -> None:
        # All interfaces, IPv4 and IPv6: which one serves is not known yet.
        both = socket.has_dualstack_ipv6()
        family, everywhere = (socket.AF_INET6, "::") if both else (socket.AF_INET, "0.0.0.0")
        while True:
            self._tcp = socket.create_server((everywhere, 0), family=family, dualstack_ipv6=both)
            self.port: int = self._tcp.getsockname()[1]
            self._udp = socket.socket(family, socket.SOCK_DGRAM)
            if both:
                self._udp.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            try:
                self._udp.bind((everywhere, self.port))
                break
            except OSError:
                self._tcp.close()
                self._udp.close()
        for serve in (self._serve_tcp, self._serve_udp):
            threading.Thread(target=serve, daemon=True).start()

    def close(self) -> None:
        """Close the ports."""
        for one in (self._tcp, self._udp):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits
            one.close()

    def _serve_tcp(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._tcp.accept()
                threading.Thread(target=_count, args=(connection,), daemon=True).start()

    def _serve_udp(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                datagram, sender = self._udp.recvfrom(2048)
                self._udp.sendto(datagram, sender)


def _count(connection: socket.socket) -> None:
    total = 0
    with connection, contextlib.suppress(OSError):
        connection.settimeout(TIMEOUT_S)
        while received := connection.recv(1 << 20):
            total += len(received)
        connection.sendall(COUNT.pack(total))


def failure(address: str, port: int) -> str:
    """Why a listener at another machine cannot be reached; "" if it can."""
    where = f"{in_address(address)}:{port}"
    try:
        socket.create_connection((address, port), TIMEOUT_S).close()
    except OSError as error:
        return f"TCP to {where}: {error.strerror or error}"
    with socket.socket(family_of(address), socket.SOCK_DGRAM) as probe:
        probe.settimeout(TIMEOUT_S / UDP_TRIES)
        for _ in range(UDP_TRIES):
            with contextlib.suppress(OSError):
                probe.sendto(b"netfold", (address, port))
                if probe.recv(64) == b"netfold":
                    return ""
    return f"UDP to {where}: no answer"


def rate(address: str, port: int, seconds: float) -> float:
    """The bytes/s that arrive at a listener. Raises OSError."""
    with socket.create_connection((address, port), TIMEOUT_S) as connection:
        connection.settimeout(TIMEOUT_S + seconds)
        begun = time.monotonic()
        while time.monotonic() - begun < seconds:
            connection.sendall(BLOCK)
        connection.shutdown(socket.SHUT_WR)
        answer = b""
        while len(answer) < COUNT.size:
            more = connection.recv(COUNT.size - len(answer))
            if not more:
                raise OSError("the listener closed the connection")
            answer += more
        return float(COUNT.unpack(answer)[0]) / (time.monotonic() - begun)
