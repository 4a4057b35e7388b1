"""The torch versions that the backend supports, and the error message for others.

Torch's interface for Python backends changes between releases. This module does not use that interface. So with an
unsupported version the user reads one sentence instead of torch's own error. The extra `torch` in pyproject.toml states
the same range.
"""

from __future__ import annotations

import re
from typing import Any, NoReturn

OLDEST = (2, 14)
BEFORE = (2, 16)  # the first release that is not tested


def requirement() -> str:
    """The range in pip's notation."""
    return f">={OLDEST[0]}.{OLDEST[1]},<{BEFORE[0]}.{BEFORE[1]}"


def refusal(version: str) -> str:
    """The message for a torch version such as 2.11.0+cpu; "" if the version is supported."""
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers and OLDEST <= (int(numbers[1]), int(numbers[2])) < BEFORE:
        return ""
    return (
        f"netfold: the backend needs torch{requirement()}, and this is torch {version}: install a supported version, "
        "for example with pip install 'netfold[torch]'"
    )


def require() -> None:
    """Raises ImportError if the installed torch is not supported."""
    import torch

    if said := refusal(torch.__version__):
        raise ImportError(said)


def announce() -> None:
    """The entry point `torch.backends`: every `import torch` calls it, also versions that do not know the entry point
    for distributed backends. If torch is not supported, `init_process_group("netfold")` raises the message above."""
    import torch

    if said := refusal(torch.__version__):
        _register_refusal(said)


def _register_refusal(said: str) -> None:
    import torch.distributed as dist

    def refuse(*_: Any) -> NoReturn:
        raise RuntimeError(said)

    if dist.is_available():
        dist.Backend.register_backend("netfold", refuse, devices=["cpu", "cuda"])
