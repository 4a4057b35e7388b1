"""16-bit floats as their bits, and the software's sums of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import netfold

NAN = {"fp16": 0x7E00, "bf16": 0x7FC0}  # as the adders make it
SCALE = {"fp16": -112, "bf16": 0}  # of numbers in the adders, a power of two
LANES = [2, 0, 3, 1]  # of the halves of a beat


def widened(halves: np.ndarray, wire: str) -> np.ndarray:
    """The same numbers in FP32."""
    if wire == "fp16":
        return halves.view(np.float16).astype(np.float32)
    return (halves.astype(np.uint32) << 16).view(np.float32)


def scaled(numbers: np.ndarray, wire: str) -> np.ndarray:
    """Bits in FP32, with the adders' scale."""
    return np.ldexp(numbers, SCALE[wire]).astype(np.float32).view(np.uint32)


def rounded(numbers: np.ndarray, wire: str) -> np.ndarray:
    """The bits to which the software rounds FP32; every NaN is the same."""
    near = netfold.fold([numbers], wire)
    bits = near.astype(np.float16).view(np.uint16) if wire == "fp16" else (near.view(np.uint32) >> 16).astype(np.uint16)
    return np.where(np.isnan(near), np.uint16(NAN[wire]), bits)


def folded(halves: Sequence[np.ndarray], wire: str) -> np.ndarray:
    """The bits of the software's sums of all ranks."""
    return rounded(netfold.fold([widened(one, wire) for one in halves], wire), wire)
