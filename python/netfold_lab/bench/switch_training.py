"""Trains the digits classifier twice with the same data and ranks, which use RoCE over veth links: once through the
simulated hardware, once through the software's switch. Both must end with the same parameters, bit for bit."""

from __future__ import annotations

from typing import Any

from netfold_lab.bench.roce import counters_of, switched
from netfold_lab.lab import names
from netfold_lab.lab.cables import Cables

TIMEOUT_S = 900.0
# Packets in flight. A simulated switch takes milliseconds for a frame, and a whole window must take less time than
# endpoints wait before they send again.
WINDOW = 32


def train(
    engine: str, wire: str, world: int, steps: int, batch: int, version: int
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The result of each rank's training, and the switch's counters. engine: "rtl" or "software"; version: RoCE's."""
    options = {"world": world, "format": wire, "steps": steps, "batch": batch, "interface": names.INTERFACE}
    options["client"] = {"timeout_s": TIMEOUT_S / 10, "window": WINDOW, "version": version}
    each = [{**options, "rank": rank} for rank in range(world)]
    with (
        Cables(world, has_addresses=version == 2) as cables,
        switched(cables, engine, "trainer", each, TIMEOUT_S) as (switches, ranks),
    ):
        for rank in ranks:
            rank.tell("go")
        said = [rank.hear() for rank in ranks]
        counts = counters_of(switches)
    return said, counts


def compare(wire: str, world: int, steps: int, batch: int, version: int = 1) -> dict[str, Any]:
    """Train both ways. `same`: whether all ranks of both ended with the same bits."""
    hardware, counts = train("rtl", wire, world, steps, batch, version)
    software, _ = train("software", wire, world, steps, batch, version)
    first = hardware[0]
    return {
        "system": "netfold",
        "algorithm": "in-network",
        "protocol": "roce",
        "version": version,
        "format": wire,
        "world": world,
        "steps": steps,
        "parameters": first["parameters"],
        "same": {rank["sha256"] for rank in [*hardware, *software]} == {first["sha256"]},
        "accuracy": first["accuracy"],
        "loss": first["loss"],
        "time_s": first["time_s"],
        "software_time_s": software[0]["time_s"],
        "folded": counts["roce_folded"],
        "answered_again": counts["roce_answered"],
        "switch_cycles": counts["cycles"],
        "switch_cycles_per_s": counts["cycles_per_s"],
    }
