"""A rank of Gloo, as PyTorch runs it.

`python -m netfold_lab.bench.workers.gloo CONTROL STORE RANK WORLD TIMEOUT_S`
"""

from __future__ import annotations

import sys
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore

from netfold_lab.bench.workers.rank import serve


def main() -> None:
    """Join the group, then answer commands."""
    control, store, rank, world, timeout_s = sys.argv[1:6]
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        store=FileStore(store, int(world)),
        rank=int(rank),
        world_size=int(world),
        timeout=timedelta(seconds=float(timeout_s)),
    )

    def all_reduce(values: np.ndarray, result: np.ndarray, wire: str, algorithm: str) -> None:
        # Gloo works in place. The copy is part of its time: 16 MiB take about 2 ms of a second.
        np.copyto(result, values)
        dist.all_reduce(torch.from_numpy(result))

    serve(control, int(rank), all_reduce)


if __name__ == "__main__":
    main()
