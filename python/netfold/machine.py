"""The machine this runs on, as reports and tables name it."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Machine:
    """What timings depend on."""

    cpu: str
    cores: int


def this_machine() -> Machine:
    """The processor's name as the kernel gives it, and how many cores it shows."""
    cpu = platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            cpu = line.partition(":")[2].strip()
            break
    return Machine(cpu, os.cpu_count() or 1)
