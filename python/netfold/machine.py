"""This machine, as reports and tables name it."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Machine:
    """The facts that timings depend on."""

    cpu: str
    cores: int


def this_machine() -> Machine:
    """The processor's name as the kernel gives it, and the number of cores."""
    cpu = platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            cpu = line.partition(":")[2].strip()
            break
    return Machine(cpu, os.cpu_count() or 1)
