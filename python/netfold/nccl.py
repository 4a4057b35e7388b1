"""The environment variables with which NCCL finds Netfold's plugin and uses it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

PLUGIN = "netfold"  # NCCL makes libnccl-net-netfold.so of it
# Among these NCCL takes what it expects to be the fastest. Only the first two use a switch; sums that a switch does not
# support need the last one.
ALGORITHMS = "allreduce:collnetdirect,collnetchain,ring"


def variables(folder: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Those for the plugin in `folder`. The user's own values stay."""
    paths = ":".join(filter(None, (str(folder), environment.get("LD_LIBRARY_PATH", ""))))
    wanted = {"NCCL_NET_PLUGIN": PLUGIN}
    if environment.get("NETFOLD_SWITCH"):
        wanted |= {"NCCL_COLLNET_ENABLE": "1", "NCCL_ALGO": ALGORITHMS}
    return {name: value for name, value in wanted.items() if name not in environment} | {"LD_LIBRARY_PATH": paths}
