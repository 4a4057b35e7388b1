"""Loss, duplication and reordering in the kernel, for all senders: peers and Netfold.

Each packet meets each fault once on its way through the fabric, at the bridge port where it enters (loss, reordering)
or leaves (duplication):
- loss: `numgen random` and `drop`;
- duplication: `dup to` the port it leaves by;
- reordering: `fwd to` a detour. The detour is a veth pair whose far end is a bridge port too. Its rate is so low that
  the packet arrives after a few of the packets behind it. A single packet would find the detour's token bucket full and
  lose no time. So a copy goes ahead, takes the tokens, and is dropped at the far end. ARP has no faults: a lost request
  costs a second of silence, which would disturb the measurement. The kernel's random numbers cannot be seeded; the
  seeded link wrapper of the client is for runs that must be repeatable. A packet that segmentation offload has not cut
  yet would be dropped as a whole, 40 packets at once. So `offloads` switches the offloads off on every sender while
  faults are on.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from typing import TYPE_CHECKING

from netfold_lab.errors import LabError
from netfold_lab.lab.shaping import index_of
from netfold_lab.lab.spec import Faults

if TYPE_CHECKING:
    from pyroute2 import IPRoute

TABLE = "netfold_faults"
MILLION = 1_000_000
DETOUR_PACKETS = 12  # packets of a full link that pass while one packet takes the detour
DETOUR_LOAD_MAX = 2 / 3  # of the detour's rate: the packets sent there and the copies ahead of them
DETOUR_RATE_UNSHAPED_MBIT_S = 1000.0
AHEAD, BEHIND = 1, 2  # marks of the copy and of the packet


def build_detour(ipr: IPRoute, bridge: int, port: str, mtu: int) -> None:
    """The slow detour for packets that enter at `port`: `port`-d, and `port`-e on the bridge."""
    near, far = f"{port}-d", f"{port}-e"
    ipr.link("add", ifname=near, kind="veth", peer={"ifname": far}, mtu=mtu)
    for end in (near, far):
        ipr.link("set", index=index_of(ipr, end), mtu=mtu, state="up")
    ipr.link("set", index=index_of(ipr, far), master=bridge)
    # This port must not learn or flood: packets enter the bridge there, and never leave.
    ipr.brport("set", index=index_of(ipr, far), learning=0, unicast_flood=0, bcast_flood=0, mcast_flood=0)


def shape_detour(ipr: IPRoute, port: str, rate_mbit_s: float, mtu: int, share: float) -> None:
    """The detour's rate, which delays `share` of the link's packets."""
    rate = rate_mbit_s or DETOUR_RATE_UNSHAPED_MBIT_S
    rate = max(rate / DETOUR_PACKETS, 2 * share * rate / DETOUR_LOAD_MAX)
    ipr.tc(
        "replace",
        "tbf",
        index=index_of(ipr, f"{port}-d"),
        handle="1:",
        rate=int(rate * 1e6 / 8),
        burst=mtu + 64,  # one packet
        latency=200_000,  # microseconds
    )


def ruleset(ports: Sequence[str], faults: Faults) -> str:
    """The nftables rules of all ports."""

    def draw(share: float) -> str:
        return f"    ether type ip numgen random mod {MILLION} < {round(share * MILLION)}"

    lines = [f"table netdev {TABLE} {{"]
    for port in ports:
        lines.append(f'  chain in_{port} {{ type filter hook ingress device "{port}" priority 0;')
        if faults.loss:
            lines.append(f"{draw(faults.loss)} drop")
        if faults.reorder:
            detour = f'"{port}-d"'
            copy = f"meta mark set {AHEAD} dup to {detour}"
            lines.append(f"{draw(faults.reorder)} {copy} meta mark set {BEHIND} fwd to {detour}")
        lines.append("  }")
        lines.append(f'  chain back_{port} {{ type filter hook ingress device "{port}-e" priority 0;')
        lines.append(f"    meta mark {AHEAD} drop")
        lines.append("  }")
        lines.append(f'  chain out_{port} {{ type filter hook egress device "{port}" priority 0;')
        if faults.duplicate:
            lines.append(f'{draw(faults.duplicate)} dup to "{port}"')
        lines.append("  }")
    return "\n".join([*lines, "}", ""])


def run_tool(namespace_command: Sequence[str], *command: str, stdin: str = "") -> None:
    """Run nft or ethtool inside a namespace; raises LabError with its message."""
    try:
        done = subprocess.run(
            [*namespace_command, *command], input=stdin, capture_output=True, text=True, timeout=20, check=False
        )
    except FileNotFoundError as error:
        raise LabError(f"{error.filename} is not installed; apt-get install nftables ethtool util-linux") from error
    if done.returncode != 0:
        raise LabError(f"`{' '.join(command)}` failed: {done.stderr.strip()}")


def set_rules(fabric_command: Sequence[str], ports: Sequence[str], faults: Faults) -> None:
    """Install the rules in one transaction; without faults, remove them."""
    rules = f"table netdev {TABLE} {{ }}\ndelete table netdev {TABLE}\n"
    run_tool(fabric_command, "nft", "-f", "-", stdin=rules + (ruleset(ports, faults) if faults else ""))


def offloads(node_command: Sequence[str], interface: str, on: bool, checksums: bool = False) -> None:
    """Set whether a sender may pass packets to the link that are longer than its MTU, and with `checksums` also packets
    without a checksum."""
    word = "on" if on else "off"
    features = ("gso", word, "tso", word, "tx-udp-segmentation", word, *(("tx", word) if checksums else ()))
    run_tool(node_command, "ethtool", "-K", interface, *features)
