"""Bytes on the cables of a routed fabric, by connection. The kernel counts them where switches forward.

An nftables set with a counter for every (cable, sender, receiver). Bytes are bytes of IP packets. Acknowledgements
count for the connection's other direction.
"""

from __future__ import annotations

import json
import subprocess

from netfold_lab.errors import LabError
from netfold_lab.lab.cluster import Lab
from netfold_lab.lab.faults import run_tool
from netfold_lab.lab.netns import enter
from netfold_lab.lab.routed import Routed

TABLE = "netfold_flows"
RULES = f"""table inet {TABLE} {{ }}
delete table inet {TABLE}
table inet {TABLE} {{
  set flows {{ type ifname . ipv4_addr . ipv4_addr; size 65535; flags dynamic; counter; }}
  chain forwarded {{
    type filter hook forward priority 0;
    update @flows {{ meta oifname . ip saddr . ip daddr }}
  }}
}}
"""

Flows = dict[tuple[int, int, str, str], int]
"""Bytes by (from switch, to switch, sender's address, receiver's address)."""


def start(lab: Lab) -> None:
    """Count from now on, from zero."""
    assert isinstance(lab.fabric, Routed)
    for namespace in lab.fabric.nodes():
        run_tool(enter(namespace), "nft", "-f", "-", stdin=RULES)


def read(lab: Lab) -> Flows:
    """The bytes on each cable since `start`, without the bytes from a switch to its own workers."""
    assert isinstance(lab.fabric, Routed)
    flows: Flows = {}
    for number, namespace in enumerate(lab.fabric.nodes()):
        command = [*enter(namespace), "nft", "-j", "list", "set", "inet", TABLE, "flows"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
        if done.returncode != 0:
            raise LabError(f"`{' '.join(command)}` failed: {done.stderr.strip()}")
        (found,) = [each["set"] for each in json.loads(done.stdout)["nftables"] if "set" in each]
        for element in found.get("elem", []):
            cable, sender, receiver = element["elem"]["val"]["concat"]
            if cable.startswith("c"):
                flows[number, int(cable[1:]), sender, receiver] = element["elem"]["counter"]["bytes"]
    return flows


def stop(lab: Lab) -> None:
    """Stop counting."""
    assert isinstance(lab.fabric, Routed)
    for namespace in lab.fabric.nodes():
        run_tool(enter(namespace), "nft", "delete", "table", "inet", TABLE)
