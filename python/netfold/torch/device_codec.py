"""Block floating point on the device that computes, in Triton: the bits of `netfold.encode` and `netfold.decode`.

A gradient that is encoded before it leaves the device takes 3.76 times fewer bytes on its way to the host (block 16,
mantissa 7). The encoder uses integers only: no rounding mode and no flush of small numbers can change a bit. Without a
device, Triton's interpreter runs the same kernels on CPU tensors (TRITON_INTERPRET=1, set before this import).

Importing this module raises ImportError without Triton; PyTorch's packages for GPUs bring it.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import torch
import triton
import triton.language as tl

TILE = 4096  # elements that one program of a kernel takes: whole blocks of every shape


@triton.jit  # type: ignore[untyped-decorator]  # Triton annotates a part of itself
def _encode(values, encoded, count, BLOCK: tl.constexpr, MANTISSA: tl.constexpr, TILE: tl.constexpr):
    BITS: tl.constexpr = MANTISSA + 1
    BLOCKS: tl.constexpr = TILE // BLOCK
    WORDS: tl.constexpr = BLOCK // 8  # a word: the bits of eight mantissas, which end with a byte
    BLOCK_BYTES: tl.constexpr = 1 + WORDS * BITS
    block = tl.program_id(0).to(tl.int64) * BLOCKS + tl.arange(0, BLOCKS)
    element = block[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    bits = tl.load(values + element, mask=element < count, other=0)  # float32, read as int32

    exponent = (bits >> 23) & 255
    largest = tl.max(exponent, axis=1)
    is_number = (largest >= MANTISSA) & (largest < 255)
    # |x| is significand * 2^(exponent - 150), and the unit of the block 2^(largest - 127 - (MANTISSA - 1)).
    significand = (bits & 0x7FFFFF) | tl.where(exponent > 0, 0x800000, 0)
    shift = 24 - MANTISSA + largest[:, None] - tl.maximum(exponent, 1)
    shift = tl.minimum(shift, 25)  # less than half a unit, whatever is shifted out
    tie_to_even = (significand >> shift) & 1
    rounded = (significand + (1 << (shift - 1)) - 1 + tie_to_even) >> shift
    rounded = tl.minimum(rounded, (1 << MANTISSA) - 1)
    mantissa = tl.where(bits < 0, -rounded, rounded)
    mantissa = tl.where(is_number[:, None], mantissa, 0)

    place = tl.arange(0, 8)[None, None, :]
    eights = tl.reshape(mantissa, [BLOCKS, WORDS, 8]).to(tl.int64) & ((1 << BITS) - 1)
    word = tl.sum(eights << (place * BITS), axis=2)  # no two mantissas share a bit
    byte = (word[:, :, None] >> (place * 8)) & 255

    is_there = block < tl.cdiv(count, BLOCK)
    start = block * BLOCK_BYTES
    shared = tl.where(largest >= MANTISSA, largest, 0)
    tl.store(encoded + start, shared.to(tl.uint8), mask=is_there)
    at = start[:, None, None] + 1 + tl.arange(0, WORDS)[None, :, None] * BITS + place
    tl.store(encoded + at, byte.to(tl.uint8), mask=is_there[:, None, None] & (place < BITS))


@triton.jit  # type: ignore[untyped-decorator]
def _decode(encoded, values, count, divisor, BLOCK: tl.constexpr, MANTISSA: tl.constexpr, TILE: tl.constexpr):
    BITS: tl.constexpr = MANTISSA + 1
    BLOCKS: tl.constexpr = TILE // BLOCK
    WORDS: tl.constexpr = BLOCK // 8
    BLOCK_BYTES: tl.constexpr = 1 + WORDS * BITS
    block = tl.program_id(0).to(tl.int64) * BLOCKS + tl.arange(0, BLOCKS)
    is_there = block < tl.cdiv(count, BLOCK)
    start = block * BLOCK_BYTES
    place = tl.arange(0, 8)[None, None, :]
    shared = tl.load(encoded + start, mask=is_there, other=0).to(tl.int32)
    at = start[:, None, None] + 1 + tl.arange(0, WORDS)[None, :, None] * BITS + place
    byte = tl.load(encoded + at, mask=is_there[:, None, None] & (place < BITS), other=0).to(tl.int64)
    word = tl.sum(byte << (place * 8), axis=2)
    eights = ((word[:, :, None] >> (place * BITS)) & ((1 << BITS) - 1)).to(tl.int32)
    eights = tl.where(eights >> MANTISSA == 1, eights - (1 << BITS), eights)
    mantissa = tl.reshape(eights, [BLOCKS, BLOCK])

    unit = (tl.maximum(shared - (MANTISSA - 1), 0) << 23).to(tl.float32, bitcast=True)
    value = mantissa.to(tl.float32) * unit[:, None]
    value = tl.where((shared == 0)[:, None], 0.0, value)
    value = tl.where((shared == 255)[:, None], float("nan"), value)
    element = block[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    tl.store(values + element, tl.div_rn(value, divisor), mask=element < count)


def encoded_bytes(count: int, block: int = 16, mantissa: int = 7) -> int:
    """Bytes of `count` encoded elements; the last block is padded."""
    return -(-count // block) * (1 + block * (mantissa + 1) // 8)


def encode(values: torch.Tensor, block: int = 16, mantissa: int = 7, out: torch.Tensor | None = None) -> torch.Tensor:
    """Encode a contiguous float32 tensor on its device, on the current stream.

    Returns a flat uint8 tensor of `encoded_bytes` there, or fills `out`. Raises ValueError for other tensors and shapes
    of blocks.
    """
    _check(values, torch.float32, block, mantissa)
    size = encoded_bytes(values.numel(), block, mantissa)
    out = torch.empty(size, dtype=torch.uint8, device=values.device) if out is None else out
    _check(out, torch.uint8, block, mantissa, size)
    if size > 0:
        _encode[_programs(values.numel())](
            values.view(-1).view(torch.int32), out, values.numel(), BLOCK=block, MANTISSA=mantissa, TILE=TILE
        )
    return out


def decode(
    encoded: torch.Tensor,
    count: int,
    block: int = 16,
    mantissa: int = 7,
    out: torch.Tensor | None = None,
    divide_by: int = 1,
) -> torch.Tensor:
    """Decode `count` elements on the tensor's device, on the current stream, and divide each by `divide_by`.

    Returns a flat float32 tensor there, or fills the contiguous tensor `out`. The blocks must be well formed. Raises
    ValueError for other tensors and shapes of blocks.
    """
    _check(encoded, torch.uint8, block, mantissa, encoded_bytes(count, block, mantissa))
    out = torch.empty(count, dtype=torch.float32, device=encoded.device) if out is None else out
    _check(out, torch.float32, block, mantissa, count)
    if count > 0:
        _decode[_programs(count)](encoded, out, count, float(divide_by), BLOCK=block, MANTISSA=mantissa, TILE=TILE)
    return out


def _programs(count: int) -> tuple[int]:
    return (-(-count // TILE),)


def _check(tensor: torch.Tensor, dtype: torch.dtype, block: int, mantissa: int, count: int | None = None) -> None:
    if block not in (8, 16, 32, 64, 128) or not 2 <= mantissa <= 7:
        raise ValueError("netfold: the block is a power of two from 8 to 128, the mantissa 2 to 7 bits")
    if tensor.dtype != dtype or not tensor.is_contiguous() or count not in (None, tensor.numel()):
        wanted = f"{count} elements of " if count is not None else ""
        raise ValueError(
            f"netfold: the codec needs a contiguous tensor with {wanted}{dtype}, not {tensor.numel()} of {tensor.dtype}"
        )
