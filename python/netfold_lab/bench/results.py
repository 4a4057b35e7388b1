"""Turns measurements into reports: medians, wire bytes, bounds, ratios."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

from netfold.algorithms import WITH_SWITCH
from netfold_lab.bench import bounds
from netfold_lab.bench.measure import Series
from netfold_lab.bench.sites import Site

BOUND_FORMULA = "8 * wire_bytes_bound / (rate_mbit_s * 1e6)"
MEMORY_BOUND_FORMULA = "workers * size_bytes / copy_bytes_s"  # every tensor is read once and written once


def _bound(series: Series, site: Site, block: int, mantissa: int) -> int:
    """The least number of bytes that one worker sends with this system's algorithm, with headers."""
    if series.algorithm in WITH_SWITCH:
        return bounds.in_network_wire_bytes(series.tensor.count, site.mtu, series.wire, block, mantissa)
    gradient_bytes = bounds.payload_bytes(series.tensor.count, series.wire, block, mantissa)
    return bounds.ring_wire_bytes(gradient_bytes, site.mtu, site.world)


def entry(series: Series, site: Site, burst_bytes: int, block: int, mantissa: int) -> dict[str, Any]:
    """One entry of `results`, without comparisons."""
    result: dict[str, Any] = {
        "system": series.system,
        "algorithm": series.algorithm,
        "format": series.wire,
        "tensor": series.tensor.name,
        "size_bytes": series.tensor.size_bytes,
        "workers": site.world,
        "faults": series.faults or None,
        "time_s": series.time_s,
        "time_s_median": series.time_s_median,
        "max_abs_error": series.max_abs_error if math.isfinite(series.max_abs_error) else None,
        "digests": sorted(series.digests),
        "same_bits": len(series.digests) == 1,
    }
    if series.sent:
        gradient_bytes = bounds.payload_bytes(series.tensor.count, series.wire, block, mantissa)
        sent = statistics.median(traffic.bytes for traffic in series.sent)
        received = statistics.median(traffic.bytes for traffic in series.received)
        result |= {
            "wire_bytes_sent": sent,
            "wire_packets_sent": statistics.median(traffic.packets for traffic in series.sent),
            "wire_bytes_received": received,
            "wire_packets_received": statistics.median(traffic.packets for traffic in series.received),
            "queue_drops": sum(traffic.dropped for traffic in (*series.sent, *series.received)),
            "goodput_sent": gradient_bytes / sent if sent else None,
            "goodput_received": gradient_bytes / received if received else None,
        }
    if series.sent_up:
        result["uplink_bytes_sent"] = statistics.median(traffic.bytes for traffic in series.sent_up)
        result["uplink_drops"] = sum(traffic.dropped for traffic in series.sent_up)
    if site.rate_mbit_s:
        wire_bytes = _bound(series, site, block, mantissa)
        bound_s = bounds.seconds(wire_bytes, site.rate_mbit_s)
        result |= {
            "wire_bytes_bound": wire_bytes,
            "bound_s": bound_s,
            "bound_from_rest_s": bounds.seconds(max(0, wire_bytes - burst_bytes), site.rate_mbit_s),
            "bound_formula": BOUND_FORMULA,
            "ratio_to_bound": series.time_s_median / bound_s,
        }
    elif series.copy_bytes_s:
        copy_bytes_s = statistics.median(series.copy_bytes_s)
        bound_s = site.world * series.tensor.size_bytes / copy_bytes_s
        result |= {
            "copy_bytes_s": copy_bytes_s,
            "bound_s": bound_s,
            "bound_formula": MEMORY_BOUND_FORMULA,
            "ratio_to_bound": series.time_s_median / bound_s,
        }
    return result


def compare(entries: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add to each entry the speed-up over the better peer with its best algorithm, and over each peer."""
    compared = []
    for one in entries:
        rivals = [
            other
            for other in entries
            if other["system"] != "netfold"
            and (other["tensor"], other["workers"]) == (one["tensor"], one["workers"])
            and (other["faults"] == one["faults"] or one["system"] == "netfold")
        ]
        best: dict[str, dict[str, Any]] = {}
        for rival in rivals:
            time_s = rival["time_s_median"]
            if rival["system"] not in best or time_s < best[rival["system"]]["time_s_median"]:
                best[rival["system"]] = rival
        added: dict[str, Any] = {}
        if best:
            winner = min(best.values(), key=lambda rival: rival["time_s_median"])
            added["best_peer"] = {"system": winner["system"], "algorithm": winner["algorithm"]}
            added["speedup_over_best_peer"] = winner["time_s_median"] / one["time_s_median"]
            added["speedup_over"] = {
                name: rival["time_s_median"] / one["time_s_median"] for name, rival in sorted(best.items())
            }
            added["best_of_its_system"] = best.get(one["system"], one) is one
        compared.append(one | added)
    return compared
