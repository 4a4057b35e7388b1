"""The systems to compare: process groups over the same ranks, one of each library and of each way of Netfold."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from netfold.interfaces import interface_of
from netfold.torch import Options
from netfold.torch.own_address import own_address


@dataclass(frozen=True)
class System:
    """`name` as the table shows it; `backend` as torch calls it; `settings` of Netfold."""

    name: str
    backend: str
    settings: dict[str, Any]

    def open(self, timeout_s: float) -> dist.ProcessGroup:
        """Its group of all ranks. Raises what torch raises."""
        options = Options(**self.settings) if self.backend == "netfold" else None
        timeout = timedelta(seconds=timeout_s)
        group = dist.new_group(backend=self.backend, pg_options=options, timeout=timeout)
        assert isinstance(group, dist.ProcessGroup), "every rank is in the group"
        return group


def known(switch: str, device: torch.device) -> dict[str, System]:
    """The systems by name, in the order of the table. `switch`: as NETFOLD_SWITCH names it, or "". The environment must
    not name it, because a way without the switch refuses it."""
    through_it = {"switch": switch} if switch else {}
    found = [System("netfold auto", "netfold", {"algorithm": "auto", **through_it})]
    if switch:
        found.append(System("netfold in-network", "netfold", {"algorithm": "in-network", **through_it}))
    found.append(System("netfold ring", "netfold", {"algorithm": "ring"}))
    found.append(System("netfold auto bfp", "netfold", {"algorithm": "auto", "format": "bfp", **through_it}))
    found.append(System("gloo", "gloo", {}))
    if device.type == "cuda" and dist.is_nccl_available():
        found.append(System("nccl", "nccl", {}))
    return {system.name: system for system in found}


def help_gloo(store: Any, timeout_s: float) -> None:
    """Let Gloo use the interface that reaches the other ranks: by itself it takes the one of this machine's own name,
    which is loopback on Debian. A GLOO_SOCKET_IFNAME of the user stays."""
    address = own_address(store, dist.get_rank(), dist.get_world_size(), "", timeout_s)
    interface = interface_of(address)
    if interface:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
