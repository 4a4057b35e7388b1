"""A rank of Netfold without a switch.

`python -m netfold.bench.workers.host CONTROL MEETING shm|tcp HOST RANK WORLD TIMEOUT_S PLANS TOPOLOGY`

MEETING is a folder where the ranks write where they listen, PLANS the algorithms (netfold.algorithms.HostPlan) as JSON,
TOPOLOGY the file that says where the ranks sit, or nothing.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np

from netfold import _core
from netfold.algorithms import HostPlan
from netfold.bench.workers.rank import serve
from netfold.topology.file import read

POLL_S = 0.01


def meet(folder: Path, address: str, rank: int, world: int, timeout_s: float) -> list[str]:
    """Every rank's address, by rank."""
    mine = folder / f"{rank}.new"
    mine.write_text(address)
    mine.replace(folder / str(rank))
    files = [folder / str(each) for each in range(world)]
    deadline = time.monotonic() + timeout_s
    while missing := [file.name for file in files if not file.exists()]:
        if time.monotonic() > deadline:
            raise SystemExit(f"ranks {', '.join(missing)} did not come within {timeout_s:g} s")
        time.sleep(POLL_S)
    return [file.read_text() for file in files]


def main() -> None:
    """Connect, then serve."""
    control, meeting, shared, host, rank_text, world_text, timeout_text, plans_text, topology = sys.argv[1:10]
    rank, world, timeout_s = int(rank_text), int(world_text), float(timeout_text)
    plans = {each["algorithm"]: HostPlan(**each) for each in json.loads(plans_text)}
    group = _core.HostGroup(rank, world, listen=f"{host}:0", timeout_s=timeout_s, shm=shared == "shm")

    def all_reduce(values: np.ndarray, result: np.ndarray, wire: str, algorithm: str) -> None:
        dtype = "int32" if values.dtype == np.int32 else "fp32"
        how = plans[algorithm].for_tensor(values.nbytes, world)
        group.wait(group.all_reduce(values.ctypes.data, result.ctypes.data, values.size, dtype, wire, **how))

    try:
        addresses = meet(Path(meeting), group.address, rank, world, timeout_s)
        if topology:
            group.set_physical_order(read(topology).order([[each.rpartition(":")[0]] for each in addresses]))
        group.connect(addresses)
        serve(control, rank, all_reduce)
    finally:
        group.close()


if __name__ == "__main__":
    main()
