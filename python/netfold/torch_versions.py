"""The torch versions that Netfold supports, and the error message for others.

Torch's interface for Python backends changes between releases. This module does not use that interface. So with an
unsupported version the user reads one sentence instead of torch's own error. The extra `torch` in pyproject.toml states
the range of the backend. Folding beside a process group of another backend (`netfold.torch.connect`) needs less of
torch, and supports older versions too.
"""

from __future__ import annotations

import re
from typing import Any, NoReturn

OLDEST = (2, 14)  # of the backend
OLDEST_BESIDE = (2, 4)  # of folding beside another backend
BEFORE = (2, 16)  # the first release that is not tested


def requirement(oldest: tuple[int, int] = OLDEST) -> str:
    """The range in pip's notation."""
    return f">={oldest[0]}.{oldest[1]},<{BEFORE[0]}.{BEFORE[1]}"


def _fits(version: str, oldest: tuple[int, int]) -> bool:
    numbers = re.match(r"(\d+)\.(\d+)", version)
    return numbers is not None and oldest <= (int(numbers[1]), int(numbers[2])) < BEFORE


def refusal(version: str) -> str:
    """The backend's message for a torch version such as 2.11.0+cpu; "" if the version is supported."""
    if _fits(version, OLDEST):
        return ""
    beside = "" if refusal_beside(version) else "; netfold.torch.connect() folds beside other backends with this one"
    return (
        f"netfold: the backend needs torch{requirement()}, and this is torch {version}: install a supported version, "
        f"for example with pip install 'netfold[torch]'{beside}"
    )


def refusal_beside(version: str) -> str:
    """The message of what folds beside other backends; "" if the version is supported."""
    if _fits(version, OLDEST_BESIDE):
        return ""
    return (
        f"netfold: this is torch {version}, and Netfold needs torch{requirement(OLDEST_BESIDE)}: install a supported "
        "version, for example with pip install 'netfold[torch]'"
    )


def has_backend() -> bool:
    """Whether the backend supports the installed torch."""
    import torch

    return not refusal(torch.__version__)


def require() -> None:
    """Raises ImportError if the backend does not support the installed torch."""
    import torch

    if said := refusal(torch.__version__):
        raise ImportError(said)


def require_beside() -> None:
    """Raises ImportError if the installed torch is not supported at all."""
    import torch

    if said := refusal_beside(torch.__version__):
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
