"""Values that no part has. A wrong unit makes a value a thousand times too large or too small; the error names the
unit that was probably meant."""

from __future__ import annotations

from dataclasses import dataclass

MBIT, BIT, MBYTE, GBIT = ("Mbit/s", 1e3), ("bit/s", 1e9), ("MB/s", 1e3), ("Gbit/s", 8.0)
NANOSECONDS = ("ns", 1e3)


@dataclass(frozen=True)
class Range:
    """The values that a name may have. `others`: other units, and by what a value in them is divided."""

    least: float
    most: float
    unit: str
    what: str
    others: tuple[tuple[str, float], ...] = ()

    def fault(self, value: float) -> str | None:
        """The fault of a value in words; None if it is within the range."""
        if self.least <= value <= self.most:
            return None
        side, bound = ("more", self.most) if value > self.most else ("less", self.least)
        meant = [(name, value / divisor) for name, divisor in self.others if self.least <= value / divisor <= self.most]
        hint = f"; if it is in {meant[0][0]}, write {meant[0][1]:g}" if meant else ""
        than = "at most" if side == "more" else "at least"
        return f"{value:g} {self.unit} is {side} than any {self.what} ({than} {bound:g} {self.unit}){hint}"


CABLE = Range(1e-3, 1600, "Gbit/s", "cable has", (MBIT, BIT))
BUS = Range(1e-3, 4096, "Gbit/s", "PCIe or UPI link has", (MBIT, BIT))
MEMORY = Range(1e-3, 100_000, "GB/s", "device has", (MBYTE, ("bytes/s", 1e9)))
DELAY = Range(0, 1e6, "us", "cable or message takes", (NANOSECONDS, ("ps", 1e6)))
NVLINK = Range(1e-3, 7200, "Gbit/s", "GPU's NVLink has in one direction", (MBIT, BIT))
RANGES = {  # by the name of the value, or by that of its part as well
    "nvlink.rate_gbit_s": NVLINK,
    "rate_gbit_s": CABLE,
    "uplink_gbit_s": CABLE,
    "link_gbit_s": CABLE,
    "latency_us": DELAY,
    "step_latency_us": DELAY,
    "pcie_gbit_s": BUS,
    "root_port_gbit_s": BUS,
    "upi_gbit_s": BUS,
    "tflop_s": Range(1e-6, 20_000, "TFLOP/s", "device has", (("GFLOP/s", 1e3), ("MFLOP/s", 1e6), ("FLOP/s", 1e12))),
    "memory_gb": Range(1e-3, 10_000, "GB", "device has", (("MB", 1e3), ("bytes", 1e9))),
    "memory_gbyte_s": MEMORY,
    "update_gbyte_s": MEMORY,
    "fold_gbyte_s": MEMORY,
    "encode_gbyte_s": MEMORY,
    "decode_gbyte_s": MEMORY,
    "stage_gbyte_s": MEMORY,
    "core_gbit_s": Range(1e-3, 10_000, "Gbit/s", "core folds", (MBIT, BIT)),
    "bucket_mib": Range(1e-6, 1 << 20, "MiB", "bucket has", (("KiB", 1024.0), ("bytes", float(1 << 20)))),
    "mtu": Range(256, 65_536, "bytes", "network carries"),
    "header_bytes": Range(0, 1024, "bytes", "packet spends on headers"),
}


def fault(name: str, value: float) -> str | None:
    """The fault of a value in words; None if it is possible, or if the name has no range. `name`: of the value, or of
    its part and the value, with a point between them."""
    found = RANGES.get(name) or RANGES.get(name.rpartition(".")[2])
    return found.fault(value) if found else None
