"""Gradient sizes of the models in the papers."""

from __future__ import annotations

from typing import Any

from netfold.algorithms import IN_NETWORK

MODEL_MIB = {"AlexNet": 236, "GoogLeNet": 51, "ResNet-50": 98, "VGG-11": 507, "VGG-16": 528, "VGG-19": 548}
"""Sizes of FP32 gradients from "AllReduce-Switch", Table VIII. The table says MB but means MiB (VGG-19: 143.7 million
parameters)."""

PAPER_RATIO = {
    "AlexNet": 1.7510,
    "GoogLeNet": 1.7544,
    "ResNet-50": 1.7532,
    "VGG-11": 1.7506,
    "VGG-16": 1.7508,
    "VGG-19": 1.7508,
}
"""The improvement over a ring that the same table reports, with 8 workers."""


def size_bytes(model: str, scale: float) -> int:
    """The model's gradients, scaled, in whole FP32 elements."""
    return int(MODEL_MIB[model] * (1 << 20) * scale) // 4 * 4


def beside_the_paper(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Netfold's entries of models, with the improvement that the paper reports."""
    return [
        one | {"paper_speedup_over_ring": PAPER_RATIO[one["tensor"]]}
        if one["algorithm"] == IN_NETWORK and one["tensor"] in PAPER_RATIO
        else one
        for one in entries
    ]
