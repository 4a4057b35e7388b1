"""A rank of Gloo, the way PyTorch runs it.

`python -m netfold.bench.workers.gloo CONTROL STORE RANK WORLD TIMEOUT_S`
"""

from __future__ import annotations

import sys
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist

from netfold.bench.workers.rank import serve


def main() -> None:
    """Join, then serve."""
    control, store, rank, world, timeout_s = sys.argv[1:6]
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        store=dist.FileStore(store, int(world)),
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
