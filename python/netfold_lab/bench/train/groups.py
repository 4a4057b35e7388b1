"""The process groups of a worker: one for each way to communicate, so that steps of all variants can be interleaved.

The first group is Gloo's over a file. All others find each other through it, so no measured link carries that traffic.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch._C._distributed_c10d import FileStore

import netfold.torch
from netfold.algorithms import WITH_SWITCH


def join_all(setup: dict[str, Any], rank: int) -> list[dist.ProcessGroup | None]:
    """Join the setup's groups in order; None in the list means only computation. Raises RuntimeError that names the
    missing workers, after the setup's timeout at most."""
    timeout = timedelta(seconds=setup["timeout_s"])
    world = len(setup["hosts"])
    dist.init_process_group(
        "gloo", store=FileStore(setup["store"], world), rank=rank, world_size=world, timeout=timeout
    )
    return [_join(group, setup, rank, timeout) for group in setup["groups"]]


def _join(group: dict[str, Any] | None, setup: dict[str, Any], rank: int, timeout: timedelta) -> Any:
    if group is None:
        return None
    if group["backend"] == "gloo":
        return dist.group.WORLD
    where: dict[str, Any] = {"bind": f"{setup['hosts'][rank]}:0"}
    if group["options"]["algorithm"] in WITH_SWITCH:
        where["switch"] = setup["switch"]
    else:
        where["topology"] = setup.get("topology")
    options = netfold.torch.Options(timeout=timeout, **group["options"], **where)
    return dist.new_group(backend="netfold", pg_options=options, timeout=timeout)
