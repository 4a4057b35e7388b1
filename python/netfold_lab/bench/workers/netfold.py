"""A rank of Netfold: `python -m netfold_lab.bench.workers.netfold CONTROL SWITCH JOB RANK WORLD TIMEOUT_S FAULTS`."""

from __future__ import annotations

import sys

import numpy as np

from netfold import _core
from netfold_lab.bench.workers.rank import serve


def main() -> None:
    """Join the job, then answer commands."""
    control, switch, job, rank, world, timeout_s, faults = sys.argv[1:8]
    client = _core.SwitchGroup(
        switch, job, int(world), int(rank), timeout_s=float(timeout_s), faults="" if faults == "none" else faults
    )

    def all_reduce(values: np.ndarray, result: np.ndarray, wire: str, algorithm: str) -> None:
        dtype = "int32" if values.dtype == np.int32 else "fp32"
        client.wait(client.all_reduce(values.ctypes.data, result.ctypes.data, values.size, dtype, wire))

    try:
        serve(control, int(rank), all_reduce)
    finally:
        client.close()


if __name__ == "__main__":
    main()
