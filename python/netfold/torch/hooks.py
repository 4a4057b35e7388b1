"""DDP communication hooks.

`fold_hook` averages gradients beside a process group of any backend, and so does `bfp_error_feedback_hook` if its state
has a group of `netfold.torch.connect`.

`bfp_error_feedback_hook` is for gradients that travel as block floating point. bfp rounds each worker's gradient before
the network sums it. Without feedback the rounding error is lost. With feedback each worker keeps the error of its own
encoding (the *residual*) and adds it to its next gradient. So over several steps nothing is lost, only delayed. The
wire format does not change.
"""

# No `from __future__ import annotations` here: DDP compares a hook's annotations with the classes themselves.

from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket

from netfold.torch.connected import FoldingGroup
from netfold.torch.devices import is_accelerator
from netfold.torch.settings import Settings
from netfold.torch.stream_order import can_encode
from netfold.torch_versions import has_backend


def fold_hook(state: FoldingGroup, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    """`ddp_model.register_comm_hook(netfold.torch.connect(), netfold.torch.fold_hook)`.

    Returns a future of the bucket's gradients averaged over the ranks of `state`. A failure of the group is an error of
    that future, so DDP raises it at the end of the backward pass. Raises ValueError for float64 gradients.
    """
    work = state.all_reduce(bucket.buffer(), op=dist.ReduceOp.AVG, async_op=True)
    assert work is not None, "an asynchronous all-reduce returns a work"
    return work.get_future().then(lambda done: done.value()[0])


@dataclass
class ErrorFeedbackState:
    """State of `bfp_error_feedback_hook`: the group (None: the default one; or what `connect` returns), and a residual
    for each bucket (fp32, flat), on the gradients' device.

    Each residual is stored with the parameters of its bucket. DDP rearranges its buckets after the first step, and a
    residual of other parameters must not be added.
    """

    process_group: dist.ProcessGroup | FoldingGroup | None = None
    residuals: dict[int, tuple[tuple[int, ...], torch.Tensor]] = field(default_factory=dict)

    def bfp_shape(self) -> tuple[int, int]:
        """Block length and mantissa bits on the wire. Raises ValueError if the group's format is not bfp."""
        settings = self._settings()
        if settings is None or settings.format != "bfp":
            raise ValueError(
                "bfp_error_feedback_hook needs a netfold process group whose format is bfp: set NETFOLD_FORMAT=bfp"
            )
        return settings.bfp

    def _settings(self) -> Settings | None:
        """The group's; None if it is not Netfold's."""
        if isinstance(self.process_group, FoldingGroup):
            return self.process_group.settings
        if not has_backend():
            return None
        from netfold.torch.backend import backend_of

        group = self.process_group or dist.group.WORLD
        backend = backend_of(group) if group is not None else None
        return backend.settings if backend is not None else None


def _as_it_arrives(gradient: torch.Tensor, block: int, mantissa: int) -> torch.Tensor:
    """The values that the others get. A GPU computes them itself, and Python does not wait for it."""
    if is_accelerator(gradient.device) and can_encode(gradient.device):
        from netfold.torch import device_codec

        on_device = device_codec.encode(gradient, block, mantissa)
        return device_codec.decode(on_device, gradient.numel(), block, mantissa)
    from netfold import _core

    sent = gradient.detach().to("cpu").contiguous()
    encoded = _core.encode(sent.numpy(), block, mantissa)
    return torch.from_numpy(_core.decode(encoded, sent.numel(), block, mantissa)).to(gradient.device)


def bfp_error_feedback_hook(state: ErrorFeedbackState, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    """`ddp_model.register_comm_hook(ErrorFeedbackState(), bfp_error_feedback_hook)`.

    bucket: a flat float32 tensor. Returns a future of the gradients averaged over the group, same shape. Raises
    ValueError if the gradients are not float32, or if the group's format is not bfp.
    """
    gradient = bucket.buffer()
    if gradient.dtype != torch.float32:
        raise ValueError(
            f"bfp_error_feedback_hook is for float32 gradients, not {gradient.dtype}: Netfold sends those unchanged, "
            "not as bfp; keep the parameters in float32 (autocast does), or train without the hook"
        )
    block, mantissa = state.bfp_shape()
    owners = tuple(parameter.data_ptr() for parameter in bucket.parameters())
    kept_for, residual = state.residuals.get(bucket.index(), (None, None))
    if residual is None or kept_for != owners:
        residual = torch.zeros_like(gradient)
        state.residuals[bucket.index()] = (owners, residual)
    gradient.add_(residual)
    torch.sub(gradient, _as_it_arrives(gradient, block, mantissa), out=residual)
    residual.nan_to_num_(0.0, 0.0, 0.0)  # this step's NaN reports an overflow; the next step must not see it again

    if isinstance(state.process_group, FoldingGroup):
        return fold_hook(state.process_group, bucket)
    group = state.process_group or dist.group.WORLD
    work = dist.all_reduce(gradient, op=dist.ReduceOp.AVG, group=group, async_op=True)
    return work.get_future().then(lambda done: done.value()[0])
