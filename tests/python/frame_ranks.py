"""A rank for the tests of the Ethernet switch: all-reduces of several formats and sizes, and a digest of the results.

python frame_ranks.py RANK WORLD SWITCH JOB [die]
"""

from __future__ import annotations

import hashlib
import os
import sys
import time

import numpy as np

from netfold import _core

TENSORS = ((100_003, "fp32"), (77, "fp32"), (50_000, "bfp"), (10_001, "int32"), (4_097, "fp16"))
TIMEOUT_S = 20.0
DIE_AFTER_S = 0.5


def tensor(rank: int, count: int, wire: str) -> np.ndarray:
    """The rank's own numbers."""
    rng = np.random.default_rng(rank * 1000 + count)
    if wire == "int32":
        return rng.integers(-1000, 1000, count).astype(np.int32)
    return rng.standard_normal(count).astype(np.float32)


def fold(client: _core.SwitchGroup, rank: int) -> str:
    """Run one all-reduce after the other; returns the digest of all results."""
    digest = hashlib.sha256()
    for count, wire in TENSORS:
        x = tensor(rank, count, wire)
        ticket = client.all_reduce(x.ctypes.data, x.ctypes.data, count, "int32" if wire == "int32" else "fp32", wire)
        client.wait(ticket)
        digest.update(x.tobytes())
    return digest.hexdigest()


def main() -> None:
    """Fold, and print the results."""
    rank, world, switch, job = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
    client = _core.SwitchGroup(switch, job, world, rank, timeout_s=TIMEOUT_S)
    print(fold(client, rank), flush=True)
    if len(sys.argv) > 5:
        time.sleep(DIE_AFTER_S)
        if rank == world - 1:
            os._exit(9)
        x = np.ones(5_000_000, np.float32)
        try:
            client.wait(client.all_reduce(x.ctypes.data, x.ctypes.data, x.size, "fp32", "fp32"))
        except _core.NetfoldError as error:
            print(f"{error.code} {error.rank}", flush=True)
            return
    client.close()


if __name__ == "__main__":
    main()
