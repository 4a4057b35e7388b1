"""The model to train and its size; this file checks the values."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from netfold_lab.errors import UsageError

MODELS = ("mlp", "resnet50", "face")
WORKERS_MAX = 64
IMAGE_MIN = 32
MIB = 1 << 20


@dataclass(frozen=True)
class Profile:
    """One training job. `batch` is per worker; `layers` and `width` are for mlp; `image` is a picture's side in pixels;
    `classes` and `features` are for the face classifier."""

    model: str = "mlp"
    workers: int = 6
    batch: int = 448
    layers: int = 20
    width: int = 512
    image: int = 64
    classes: int = 12000
    features: int = 256
    bucket_bytes: int = 0

    def __post_init__(self) -> None:
        if self.model not in MODELS:
            raise UsageError(f"--model must be one of {', '.join(MODELS)}, not {self.model}")
        if not 2 <= self.workers <= WORKERS_MAX:
            raise UsageError(
                f"--workers must be from 2 to {WORKERS_MAX}, not {self.workers}: a single worker exchanges nothing"
            )
        for name in ("batch", "layers", "width", "features"):
            if getattr(self, name) < 1:
                raise UsageError(f"--{name} must be at least 1, not {getattr(self, name)}")
        if self.image < IMAGE_MIN:
            raise UsageError(f"--image must be at least {IMAGE_MIN} pixels, not {self.image}")
        if self.model == "face" and self.classes < self.workers:
            raise UsageError(f"--classes must be at least one per worker ({self.workers}), not {self.classes}")
        if self.bucket_bytes < 0:
            raise UsageError(f"--bucket-bytes must be 0 or more, not {self.bucket_bytes}")


PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "mlp": {
        "paper": {"width": 2048},
        "small": {},
        "tiny": {"workers": 2, "batch": 32, "layers": 4, "width": 64},
    },
    "resnet50": {
        "paper": {"batch": 16, "image": 224, "bucket_bytes": 4 * MIB},
        "small": {"batch": 8, "bucket_bytes": 4 * MIB},
        "tiny": {"workers": 2, "batch": 2, "image": 32, "bucket_bytes": 4 * MIB},
    },
    "face": {
        "paper": {"batch": 32, "classes": 1_000_000, "features": 512, "image": 112, "bucket_bytes": MIB},
        "small": {"batch": 32, "bucket_bytes": MIB},
        "tiny": {"workers": 2, "batch": 4, "classes": 100, "features": 32, "image": 32, "bucket_bytes": MIB},
    },
}
"""Presets by model. `paper` has the paper's size, or less if the machine's memory is too small."""


def make_profile(model: str, preset: str, **given: Any) -> Profile:
    """The preset's values, except those that are given (not None). Raises UsageError."""
    if model not in MODELS:
        raise UsageError(f"--model must be one of {', '.join(MODELS)}, not {model}")
    if preset not in PRESETS[model]:
        raise UsageError(f"--preset must be one of {', '.join(PRESETS[model])}, not {preset}")
    wanted = {name: value for name, value in given.items() if value is not None}
    return replace(Profile(model), **{**PRESETS[model][preset], **wanted})
