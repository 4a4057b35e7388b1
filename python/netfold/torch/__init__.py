"""The PyTorch backend: `init_process_group("netfold")`.

Netfold runs all-reduces (SUM and AVG of fp32, fp16, bf16 and int32); an inner Gloo runs everything else. Importing this
module registers the backend. Torch also finds it by itself through the entry-point group `torch.distributed.backends`,
so a training script need not import Netfold. Raises ImportError if the backend does not support the installed torch.
"""

from __future__ import annotations

import torch.distributed as dist

from netfold import torch_versions

torch_versions.require()  # first: with another torch the imports below fail without a reason

from netfold.torch.backend import NetfoldBackend, create  # noqa: E402
from netfold.torch.hooks import ErrorFeedbackState, bfp_error_feedback_hook  # noqa: E402
from netfold.torch.settings import Options  # noqa: E402
from netfold.torch.work_queries import answer_work_queries  # noqa: E402

__all__ = ["ErrorFeedbackState", "NetfoldBackend", "Options", "bfp_error_feedback_hook", "register"]

DEVICES = ["cpu", "cuda"]


def register() -> None:
    """Register the backend with torch as "netfold"; a second call does nothing."""
    if "NETFOLD" in dist.Backend._plugins:
        return
    answer_work_queries()
    dist.Backend.register_backend("netfold", create, extended_api=True, devices=DEVICES)


register()
