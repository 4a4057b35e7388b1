"""The device that computes, in torch's neutral words: "cuda" also names AMD's GPUs, and "xpu" Intel's."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch


def accelerator() -> str:
    """The type of this torch's accelerator; "cuda" if it has no accelerator, or is too old to tell (before 2.6)."""
    known: Any = getattr(torch, "accelerator", None)
    found = known.current_accelerator() if known is not None else None
    return found.type if found is not None else "cuda"


def has_accelerator() -> bool:
    """Whether an accelerator is at hand."""
    known: Any = getattr(torch, "accelerator", None)
    return bool(known.is_available() if known is not None else torch.cuda.is_available())


def is_accelerator(device: torch.device) -> bool:
    """Whether tensors of this device must be copied to the host before they can be sent."""
    return device.type == accelerator()


def module_of(device: torch.device) -> ModuleType:
    """Torch's module for the streams and events of a device, such as torch.cuda."""
    module: ModuleType = getattr(torch, device.type)
    return module
