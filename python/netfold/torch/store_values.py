"""Values that every rank of a group publishes through torch's store, for the others to read."""

from __future__ import annotations

from datetime import timedelta

import torch.distributed as dist
from torch._C._distributed_c10d import Store


def of_all_ranks(store: Store, prefix: str, world: int, timeout_s: float) -> list[bytes]:
    """The values of the keys `prefix` + rank. Raises RuntimeError that names the ranks that did not publish within
    `timeout_s` (seconds)."""
    keys = [f"{prefix}{rank}" for rank in range(world)]
    try:
        store.wait(keys, timedelta(seconds=timeout_s))
    except dist.DistNetworkError:
        raise
    except RuntimeError:  # DistStoreError, or the file store's RuntimeError
        missing = [str(rank) for rank, key in enumerate(keys) if not store.check([key])]
        ranks = f"rank{'s' if len(missing) > 1 else ''} {', '.join(missing)}"
        raise RuntimeError(f"netfold: {ranks} did not join the process group within {timeout_s:g} s") from None
    return store.multi_get(keys)  # one question to the store, not one a rank
