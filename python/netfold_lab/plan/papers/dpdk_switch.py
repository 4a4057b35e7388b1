"""Computed values of "An In-Network Parameter Aggregation using DPDK": wire efficiency, bounds, and parts of a step."""

from __future__ import annotations

from netfold_lab.plan.papers.figure import COMPUTED, Figure, Row

GAP_BYTES = 20  # preamble and gap between frames
RATE_GBIT_S = 40.0
HEADER_BYTES = 52  # of a packet, with addresses and checksum
GPUS = 3


def line_rate_gbit_s(packet_bytes: int) -> float:
    """The part of a link's rate that carries packets."""
    return RATE_GBIT_S * packet_bytes / (packet_bytes + GAP_BYTES)


def section_5_1() -> Figure:
    """The maximum rate of 40 GbE for packets of both sizes."""
    return Figure(
        "section 5.1",
        "The maximum rate of a 40 GbE link",
        ["20 bytes of preamble and gap per packet; 4 bytes per gradient."],
        [
            Row("packets of 1516 bytes", 39.48, line_rate_gbit_s(1516), "Gbit/s", COMPUTED),
            Row("packets of 192 bytes", 36.23, line_rate_gbit_s(192), "Gbit/s", COMPUTED),
            Row("gradients in 1516 bytes", 366, (1516 - HEADER_BYTES) // 4, "", COMPUTED),
            Row("packets of 32 gradients for 32,000", 1000, 32_000 / 32, "", COMPUTED),
        ],
    )


def section_3_2() -> Figure:
    """Least times: 2M/B at the switch, 2MN/B at a host."""
    size_bits, rate = 94e6 * 8, RATE_GBIT_S * 1e9
    switch, host = 2 * size_bits / rate, 2 * size_bits * GPUS / rate
    saved = 0.09 * (1 - 1 / 1.16)
    return Figure(
        "sections 3.2 and 5.2",
        "Folding in the switch in place of the host, 3 GPUs",
        ["ResNet-50's 94 MB at 40 Gbit/s. The gain is at most the number of GPUs; the paper measured 2.2 to 2.5."],
        [
            Row("least time with the host, relative to the switch", 3, host / switch, "x", COMPUTED),
            Row("part of a step saved if 9% of it run 1.16 times as fast", 0.0125, saved, "", COMPUTED),
        ],
        [("the measured 2.2 to 2.5 are below the bound", host / switch > 2.5)],
    )
