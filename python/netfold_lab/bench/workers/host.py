"""A rank of Netfold without a switch.

`python -m netfold_lab.bench.workers.host CONTROL MEETING shm|tcp HOST RANK WORLD TIMEOUT_S PLANS [CHOICES]`

MEETING is a folder in which the ranks write their addresses. PLANS are the algorithms (netfold.algorithms.HostPlan) as
JSON. CHOICES are the choices of `auto` (netfold.chooser.choices.Choices); without them it uses the built-in rule.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from netfold import algorithms
from netfold.algorithms import HostPlan
from netfold.chooser.choices import Choices, Chooser
from netfold.placement import THREAD, Placement
from netfold.topology.file import read
from netfold_lab.bench.workers.rank import serve

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
            raise SystemExit(f"ranks {', '.join(missing)} did not start within {timeout_s:g} s")
        time.sleep(POLL_S)
    return [file.read_text() for file in files]


@contextmanager
def joined(words: Sequence[str]) -> Iterator[tuple[Any, int, int]]:
    """A group connected to all ranks, its rank and the world. `words`: MEETING shm|tcp HOST RANK WORLD TIMEOUT_S.
    NETFOLD_ENGINE is the engine; NETFOLD_TOPOLOGY names the places of the ranks; the switches at NETFOLD_SWITCH take
    part in `split`."""
    meeting, link, host, rank_text, world_text, timeout_text = words
    rank, world, timeout_s = int(rank_text), int(world_text), float(timeout_text)
    placement = Placement(os.environ.get("NETFOLD_ENGINE", THREAD), os.environ.get("NETFOLD_AGENT", ""), (), rank)
    streams = int(os.environ.get("NETFOLD_TCP_STREAMS", "1"))
    settings = {"listen": f"{host}:0", "timeout_s": timeout_s, "shm": link == "shm", "tcp_streams": streams}
    if switch := os.environ.get("NETFOLD_SWITCH"):
        group = placement.split_group(rank, world, switches=switch.split(","), job="bench", **settings)
    else:
        group = placement.host_group(rank, world, **settings)
    try:
        addresses = meet(Path(meeting), group.address, rank, world, timeout_s)
        if topology := os.environ.get("NETFOLD_TOPOLOGY"):
            group.set_physical_order(read(topology).places([[each.rpartition(":")[0]] for each in addresses]).order)
        group.connect(addresses)
        yield group, rank, world
    finally:
        group.close()
        placement.release()


def main() -> None:
    """Connect, then answer commands."""
    control, *words = sys.argv[1:8]
    plans = {each["algorithm"]: HostPlan(**each) for each in json.loads(sys.argv[8])}
    rule = algorithms.choose_on_one_machine if words[1] == "shm" else algorithms.choose
    choose = Chooser(Choices.from_json(sys.argv[9]) if len(sys.argv) > 9 else None, rule)
    with joined(words) as (group, rank, world):

        def all_reduce(values: np.ndarray, result: np.ndarray, wire: str, algorithm: str) -> None:
            dtype = "int32" if values.dtype == np.int32 else "fp32"
            how = plans[algorithm].for_tensor(values.nbytes, world, choose)
            memory = values.ctypes.data, result.ctypes.data, values.size
            group.wait(group.all_reduce(*memory, dtype, wire, awaited=True, **how))

        serve(control, rank, all_reduce)


if __name__ == "__main__":
    main()
