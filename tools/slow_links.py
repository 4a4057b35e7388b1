"""Run a command on nodes that long and slow links join: network namespaces, and a process that delays every packet.

    tools/slow_links.py --nodes 4 --rate-mbit-s 100 --round-trip-ms 80 -- python examples/diloco.py --name {node} ...

The command runs once on each node; {node} is its number. Node i has the address 10.79.0.(10+i). Needs root. The delay
is this program's, so it works with a kernel that has no netem. A busy machine makes the delays longer, never shorter.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import select
import struct
import subprocess
import sys
import threading
import time
from collections import deque
from dataclasses import dataclass, field

TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
PACKET_BYTES = 65536
FIRST = 10  # the last number of node 0's address
QUEUED_S = 0.2  # a router's queue: packets that would wait longer are dropped
READ_AT_ONCE = 64


@dataclass
class Line:
    """One direction of a node's link: one packet at a time at a rate, then a time on the way. In order."""

    rate_bit_s: float
    delay_s: float
    free_at: float = 0.0
    on_the_way: deque[tuple[float, bytes]] = field(default_factory=deque)
    sent_bytes: int = 0
    dropped: int = 0

    def take(self, packet: bytes, now: float) -> None:
        """A packet comes at `now` (seconds), or is dropped."""
        begins = max(now, self.free_at)
        if begins - now > QUEUED_S:
            self.dropped += 1
            return
        self.free_at = begins + len(packet) * 8 / self.rate_bit_s
        self.sent_bytes += len(packet)
        self.on_the_way.append((self.free_at + self.delay_s, packet))

    def arrived(self, now: float) -> list[tuple[float, bytes]]:
        """The packets that are at the end of the line by `now`, with their times."""
        out = []
        while self.on_the_way and self.on_the_way[0][0] <= now:
            out.append(self.on_the_way.popleft())
        return out


class Network:
    """A router in the middle: each node has a line up to it, which takes all of the delay, and one down."""

    def __init__(self, ends: list[int], rate_bit_s: float, one_way_s: float) -> None:
        self._ends = ends
        self.up = [Line(rate_bit_s, one_way_s) for _ in ends]
        self.down = [Line(rate_bit_s, 0.0) for _ in ends]
        self.stopped = threading.Event()

    def run(self) -> None:
        """Carry packets until `stopped`."""
        poll = select.poll()
        for end in self._ends:
            poll.register(end, select.POLLIN)
        while not self.stopped.is_set():
            waiting = [line.on_the_way[0][0] for line in (*self.up, *self.down) if line.on_the_way]
            wait_s = max(0.0, min([0.05, *(at - time.monotonic() for at in waiting)]))
            for end, _ in poll.poll(wait_s * 1000):
                self._read(self._ends.index(end))
            now = time.monotonic()
            for line in self.up:
                for at, packet in line.arrived(now):
                    node = packet[19] - FIRST
                    if packet[0] >> 4 == 4 and 0 <= node < len(self.down):  # not the kernel's IPv6 greetings
                        self.down[node].take(packet, at)
            for end, line in zip(self._ends, self.down, strict=True):
                for _, packet in line.arrived(now):
                    os.write(end, packet)

    def _read(self, node: int) -> None:
        for _ in range(READ_AT_ONCE):
            try:
                packet = os.read(self._ends[node], PACKET_BYTES)
            except BlockingIOError:
                return
            self.up[node].take(packet, time.monotonic())


def ip(*words: str) -> None:
    """Raises CalledProcessError if ip does not do it."""
    subprocess.run(["ip", *words], check=True)


def end_of(interface: str, namespace: str, node: int) -> int:
    """A TUN interface in a namespace; returns the descriptor that is its other end."""
    end = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(end, TUNSETIFF, struct.pack("16sH22s", interface.encode(), IFF_TUN | IFF_NO_PI, b""))
    ip("link", "set", interface, "netns", namespace)
    ip("-n", namespace, "addr", "add", f"10.79.0.{FIRST + node}/24", "dev", interface)
    ip("-n", namespace, "link", "set", interface, "up")
    ip("-n", namespace, "link", "set", "lo", "up")
    return end


def main() -> int:
    """Returns the first exit status that is not 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--rate-mbit-s", type=float, default=100.0)
    parser.add_argument("--round-trip-ms", type=float, default=80.0)
    parser.add_argument("command", nargs="+")
    given = parser.parse_args()
    name = f"nf{os.urandom(3).hex()}"
    spaces = [f"{name}-n{node}" for node in range(given.nodes)]
    made: list[str] = []
    processes: list[subprocess.Popen[bytes]] = []
    network, carrier = None, None
    try:
        ends = []
        for node, space in enumerate(spaces):
            ip("netns", "add", space)
            made.append(space)
            ends.append(end_of(f"{name}t{node}", space, node))
        network = Network(ends, given.rate_mbit_s * 1e6, given.round_trip_ms / 2000)
        carrier = threading.Thread(target=network.run, daemon=True)
        carrier.start()
        for node, space in enumerate(spaces):
            words = [word.replace("{node}", str(node)) for word in given.command]
            processes.append(subprocess.Popen(["ip", "netns", "exec", space, *words]))
        statuses = [process.wait() for process in processes]
        for node, (up, down) in enumerate(zip(network.up, network.down, strict=True)):
            print(
                f"node {node}: {up.sent_bytes} bytes up, {up.dropped + down.dropped} packets dropped", file=sys.stderr
            )
        return next((status for status in statuses if status != 0), 0)
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.wait()
        if carrier is not None and network is not None:
            network.stopped.set()  # before the namespaces take the interfaces with them
            carrier.join()
        for space in made:
            ip("netns", "del", space)


if __name__ == "__main__":
    sys.exit(main())
