"""Netfold in PyTorch: the backend `init_process_group("netfold")`, and folding beside a process group of any backend.

The backend needs a recent torch. It runs every operation of torch.distributed. Importing this module registers the
backend. Torch also finds it by itself through the entry-point group `torch.distributed.backends`, so a training script
need not import Netfold.

`connect`, `all_reduce` and `fold_hook` also run on older torch (see netfold.torch_versions). Raises ImportError if they
do not support the installed torch; a use of the backend's names raises it if only the backend does not.
"""

from __future__ import annotations

from typing import Any

from netfold import torch_versions

torch_versions.require_beside()  # first: with another torch the imports below fail without a reason

from netfold.torch.connected import FoldingGroup, all_reduce, connect  # noqa: E402
from netfold.torch.fsdp_hook import average_shards  # noqa: E402
from netfold.torch.hooks import ErrorFeedbackState, bfp_error_feedback_hook, fold_hook  # noqa: E402
from netfold.torch.node_hook import NodeGroups, node_fold_hook, node_groups  # noqa: E402

__all__ = [
    "ErrorFeedbackState",
    "FoldingGroup",
    "NetfoldBackend",
    "NodeGroups",
    "Options",
    "all_reduce",
    "average_shards",
    "bfp_error_feedback_hook",
    "connect",
    "fold_hook",
    "node_fold_hook",
    "node_groups",
    "register",
]


def register() -> None:
    """Register the backend with torch as "netfold"; a second call does nothing. Raises ImportError if the backend does
    not support the installed torch."""
    torch_versions.require()

    import torch.distributed as dist

    from netfold.torch.devices import accelerator
    from netfold.torch.reconfigure import create
    from netfold.torch.work_queries import answer_work_queries

    if "NETFOLD" in dist.Backend._plugins:
        return
    answer_work_queries()
    dist.Backend.register_backend("netfold", create, extended_api=True, devices=["cpu", accelerator()])


def __getattr__(name: str) -> Any:
    """Look up the backend's classes, which exist only with a torch that the backend supports."""
    if name not in ("NetfoldBackend", "Options"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    torch_versions.require()
    from netfold.torch import backend

    return getattr(backend, name)


if torch_versions.has_backend():
    register()
