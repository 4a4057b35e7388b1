"""The PyTorch backend: `init_process_group("netfold")`.

All-reduces (SUM and AVG of fp32, fp16, bf16 and int32) are folded in the network, everything else is served by an
inner Gloo. Importing this module registers the backend; torch also finds it by itself through the entry-point group
`torch.distributed.backends`, so a training script needs no import of Netfold.
"""

from __future__ import annotations

import torch.distributed as dist

from netfold.torch.backend import NetfoldBackend, create
from netfold.torch.hooks import ErrorFeedbackState, bfp_error_feedback_hook
from netfold.torch.settings import Options
from netfold.torch.work_queries import answer_work_queries

__all__ = ["ErrorFeedbackState", "NetfoldBackend", "Options", "bfp_error_feedback_hook", "register"]

DEVICES = ["cpu", "cuda"]


def register() -> None:
    """Make the backend known to torch under the name "netfold"; a second call does nothing."""
    if "NETFOLD" in dist.Backend._plugins:
        return
    answer_work_queries()
    dist.Backend.register_backend("netfold", create, extended_api=True, devices=DEVICES)


register()
