"""Formats and the fold in numpy, only from the specification's text. Tests compare the compiled core with it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

SPECIAL = 255  # the exponent of a block that holds an Inf or a NaN


def blocks_of(x: NDArray[np.float32], block: int) -> NDArray[np.float32]:
    """One row for each block, the last padded with zeros."""
    padded = np.zeros(-(-x.size // block) * block, np.float32)
    padded[: x.size] = x
    return padded.reshape(-1, block)


def pack_bits(mantissas: NDArray[np.int64], width: int) -> NDArray[np.uint8]:
    """Rows of two's complement numbers of `width` bits, least significant bit first."""
    bits = (mantissas[..., None] >> np.arange(width)) & 1
    return np.packbits(
        bits.reshape(len(mantissas), mantissas.shape[1] * width).astype(np.uint8), axis=1, bitorder="little"
    )


def unpack_bits(packed: NDArray[np.uint8], width: int, block: int) -> NDArray[np.int64]:
    """The reverse."""
    bits = np.unpackbits(packed, axis=1, bitorder="little").reshape(len(packed), block, width).astype(np.int64)
    unsigned = (bits << np.arange(width)).sum(axis=2)
    return np.where(unsigned >= 1 << (width - 1), unsigned - (1 << width), unsigned)


def encode(x: NDArray[np.float32], block: int = 16, mantissa: int = 7) -> NDArray[np.uint8]:
    """Section 2, one row for each block, in double precision, where every step except the rounding is exact."""
    rows = blocks_of(x, block)
    exponent = ((rows.view(np.uint32) >> 23) & 0xFF).max(axis=1).astype(np.int64)
    holds_numbers = (exponent >= mantissa) & (exponent != SPECIAL)
    finite = np.where(holds_numbers[:, None], rows, 0).astype(np.float64)
    limit = (1 << mantissa) - 1
    q = np.clip(np.rint(np.ldexp(finite, (127 - exponent + mantissa - 1)[:, None])), -limit, limit).astype(np.int64)
    wire_exponent = np.where(exponent < mantissa, 0, exponent).astype(np.uint8)
    return np.concatenate([wire_exponent[:, None], pack_bits(q, mantissa + 1)], axis=1).reshape(-1)


def decode(data: NDArray[np.uint8], count: int, block: int = 16, mantissa: int = 7) -> NDArray[np.float32]:
    """Section 2, one row for each block."""
    rows = data.reshape(-1, 1 + block * (mantissa + 1) // 8)
    exponent = rows[:, 0].astype(np.int64)
    q = unpack_bits(rows[:, 1:], mantissa + 1, block)
    values = np.ldexp(q.astype(np.float64), (exponent - 127 - (mantissa - 1))[:, None])
    values[exponent == 0] = 0.0
    values[exponent == SPECIAL] = np.nan
    return (values.astype(np.float32) + np.float32(0)).reshape(-1)[:count]


def fold_pairwise(leaves: Sequence[NDArray]) -> NDArray:
    """Section 3: fold(lo, lo+p) + fold(lo+p, hi), p the largest power of two below the number of workers."""
    if len(leaves) == 1:
        return leaves[0]
    p = 1 << ((len(leaves) - 1).bit_length() - 1)
    with np.errstate(all="ignore"):
        return fold_pairwise(leaves[:p]) + fold_pairwise(leaves[p:])


def round_bf16(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """To the nearest bf16, ties to even, as float32."""
    bits = x.view(np.uint32).astype(np.uint64)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32)
    return np.where(np.isnan(x), np.float32(np.nan), rounded.view(np.float32))


def round_fp16(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """To the nearest fp16, ties to even, as float32."""
    with np.errstate(all="ignore"):
        return x.astype(np.float16).astype(np.float32)


def same_bits(a: NDArray[np.float32], b: NDArray[np.float32]) -> bool:
    """Whether all bits are equal; any NaN equals any other."""
    both_nan = np.isnan(a) & np.isnan(b)
    return a.shape == b.shape and bool(np.all(both_nan | (a.view(np.uint32) == b.view(np.uint32))))
