"""Block floating point on the device that computes, in Triton: the bits of `netfold.encode` and `netfold.decode`.

A gradient that is encoded before it leaves the device takes 3.76 times fewer bytes on its way to the host (block 16,
mantissa 7). Without a device, Triton's interpreter runs the same kernels on CPU tensors (TRITON_INTERPRET=1, set before
this import).

Importing this module raises ImportError without Triton; PyTorch's packages for GPUs bring it.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import torch
import triton
import triton.language as tl

TILE = 4096  # elements that one program of a kernel takes: whole blocks of every shape, a multiple of four of them
WARPS = 4  # of a program


@triton.jit  # type: ignore[untyped-decorator]  # Triton annotates a part of itself
def _tile(values, encoded, count, BLOCKS: tl.constexpr, BLOCK: tl.constexpr, BLOCK_BYTES: tl.constexpr):
    """This program's part of both tensors, how many of its elements there are, and the numbers of its blocks and
    elements."""
    first = tl.program_id(0).to(tl.int64) * BLOCKS
    left = tl.minimum(count - first * BLOCK, BLOCKS * BLOCK).to(tl.int32)
    block = tl.arange(0, BLOCKS)
    element = block[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    return values + first * BLOCK, encoded + first * BLOCK_BYTES, left, block, element


# Accesses to single bytes do not reach the bandwidth of a GPU's memory. A full tile of 8-bit mantissas therefore moves
# as words of 32 bits. Four blocks with their exponents fill BLOCK + 1 words. Each exponent shifts what follows it by a
# byte: the quads (four mantissas each) of these blocks start 1, 2, 3 and 4 bytes into a word and end in the next.


@triton.jit  # type: ignore[untyped-decorator]
def _quads(BLOCKS: tl.constexpr, BLOCK: tl.constexpr):
    """For each quad of a tile the word in which it starts, and the bits of that word that precede it (8 to 32)."""
    block = tl.arange(0, BLOCKS)[:, None]
    place = (block >> 2) * (BLOCK + 1) + (block & 3) * (BLOCK // 4) + tl.arange(0, BLOCK // 4)[None, :]
    return place, (block & 3) * 8 + 8


@triton.jit  # type: ignore[untyped-decorator]
def _store_quads(encoded, shared, mantissa, BLOCKS: tl.constexpr, BLOCK: tl.constexpr):
    place, ahead = _quads(BLOCKS, BLOCK)
    into = encoded.to(tl.pointer_type(tl.int32)) + place
    byte = tl.reshape(mantissa & 255, [BLOCKS, BLOCK // 4, 4])
    quad = tl.sum(byte << (tl.arange(0, 4) * 8)[None, None, :], axis=2)
    # A quad follows another one; the first of a block follows three bytes of another one and the exponent. No quad is
    # needed from before the four blocks, so up to BLOCK 32 the gather is a shuffle within a warp.
    before = tl.broadcast_to(tl.maximum(tl.arange(0, BLOCK) - 1, 0)[None, :], [BLOCKS // 4, BLOCK])
    before = tl.gather(tl.reshape(quad, [BLOCKS // 4, BLOCK]), before, axis=1)
    before = tl.reshape(before, [BLOCKS, BLOCK // 4]).to(tl.uint32)
    column = tl.arange(0, BLOCK // 4)[None, :]
    before = tl.where(column == 0, (before >> 8) | (shared << 24).to(tl.uint32)[:, None], before)
    both = (quad.to(tl.uint64) << 32) | before
    tl.store(into, (both >> (32 - ahead)).to(tl.int32))
    tl.store(into + 1, quad, mask=(ahead == 32) & (column == BLOCK // 4 - 1))  # the last word of the four blocks


@triton.jit  # type: ignore[untyped-decorator]
def _load_quads(encoded, BLOCKS: tl.constexpr, BLOCK: tl.constexpr):
    place, ahead = _quads(BLOCKS, BLOCK)
    source = encoded.to(tl.pointer_type(tl.uint32)) + place
    both = tl.load(source) | (tl.load(source + 1).to(tl.uint64) << 32)
    quad = (both >> ahead).to(tl.int32)
    shared = tl.load(encoded + tl.arange(0, BLOCKS) * (BLOCK + 1)).to(tl.int32)  # last: threads wait to exchange these
    return quad[:, :, None] << (24 - tl.arange(0, 4) * 8)[None, None, :] >> 24, shared[:, None, None]


@triton.jit  # type: ignore[untyped-decorator]
def _encode(
    values,
    encoded,
    count,
    BLOCK: tl.constexpr,
    MANTISSA: tl.constexpr,
    TILE: tl.constexpr,
    ALIGNED: tl.constexpr,
):
    BITS: tl.constexpr = MANTISSA + 1
    BLOCKS: tl.constexpr = TILE // BLOCK
    WORDS: tl.constexpr = BLOCK // 8  # a word: the bits of eight mantissas, which end with a byte
    BLOCK_BYTES: tl.constexpr = 1 + WORDS * BITS
    BIASED: tl.constexpr = 0x4B400000  # the bits of 1.5 * 2^23: a float32 of this size is a whole number
    values, encoded, left, block, element = _tile(values, encoded, count, BLOCKS, BLOCK, BLOCK_BYTES)
    bits = tl.load(values + element, mask=element < left, other=0)  # float32, read as int32

    largest = tl.max(bits & 0x7FFFFFFF, axis=1) >> 23
    is_number = (largest >= MANTISSA) & (largest < 255)
    # The unit of the block is 2^(largest - 127 - (MANTISSA - 1)). Numbers divided by it are exact, or too small to
    # count. The sum with 1.5 * 2^23 rounds them, ties to even, and its lowest bits are the mantissa.
    scale = ((253 + MANTISSA - largest) << 23).to(tl.float32, bitcast=True)
    biased = bits.to(tl.float32, bitcast=True) * scale[:, None] + tl.cast(BIASED, tl.int32).to(tl.float32, bitcast=True)
    limit = tl.where(is_number, (1 << MANTISSA) - 1, 0)[:, None]
    mantissa = tl.maximum(biased.to(tl.int32, bitcast=True), BIASED - limit)
    mantissa = tl.minimum(mantissa, BIASED + limit)

    shared = tl.where(largest >= MANTISSA, largest, 0)
    if ALIGNED and BITS == 8 and left == TILE:
        _store_quads(encoded, shared, mantissa, BLOCKS, BLOCK)
        return

    is_there = block < tl.cdiv(left, BLOCK)
    start = block * BLOCK_BYTES
    tl.store(encoded + start, shared.to(tl.uint8), mask=is_there)
    if BITS == 8:
        at = start[:, None] + 1 + tl.arange(0, BLOCK)[None, :]
        tl.store(encoded + at, mantissa.to(tl.uint8), mask=is_there[:, None])
    else:
        place = tl.arange(0, 8)[None, None, :]
        eights = tl.reshape(mantissa, [BLOCKS, WORDS, 8]).to(tl.int64) & ((1 << BITS) - 1)
        word = tl.sum(eights << (place * BITS), axis=2)  # no two mantissas share a bit
        byte = (word[:, :, None] >> (place * 8)) & 255
        at = start[:, None, None] + 1 + tl.arange(0, WORDS)[None, :, None] * BITS + place
        tl.store(encoded + at, byte.to(tl.uint8), mask=is_there[:, None, None] & (place < BITS))


@triton.jit  # type: ignore[untyped-decorator]
def _value(mantissa, shared, by, MANTISSA: tl.constexpr, DIVIDES: tl.constexpr):
    unit = (tl.maximum(shared - (MANTISSA - 1), 0) << 23).to(tl.float32, bitcast=True)
    unit = tl.where(shared == 255, float("nan"), unit)
    value = mantissa.to(tl.float32) * unit
    return tl.div_rn(value, by) if DIVIDES else value * by


@triton.jit  # type: ignore[untyped-decorator]
def _decode(
    encoded,
    values,
    count,
    by,
    BLOCK: tl.constexpr,
    MANTISSA: tl.constexpr,
    TILE: tl.constexpr,
    ALIGNED: tl.constexpr,
    DIVIDES: tl.constexpr,
):
    BITS: tl.constexpr = MANTISSA + 1
    BLOCKS: tl.constexpr = TILE // BLOCK
    WORDS: tl.constexpr = BLOCK // 8
    BLOCK_BYTES: tl.constexpr = 1 + WORDS * BITS
    values, encoded, left, block, element = _tile(values, encoded, count, BLOCKS, BLOCK, BLOCK_BYTES)
    if ALIGNED and BITS == 8 and left == TILE:
        mantissa, shared = _load_quads(encoded, BLOCKS, BLOCK)
        value = _value(mantissa, shared, by, MANTISSA, DIVIDES)
        tl.store(values + element, tl.reshape(value, [BLOCKS, BLOCK]))
        return

    is_there = block < tl.cdiv(left, BLOCK)
    start = block * BLOCK_BYTES
    shared = tl.load(encoded + start, mask=is_there, other=0).to(tl.int32)
    if BITS == 8:
        at = start[:, None] + 1 + tl.arange(0, BLOCK)[None, :]
        mantissa = tl.load(encoded + at, mask=is_there[:, None], other=0).to(tl.int8, bitcast=True)
    else:
        place = tl.arange(0, 8)[None, None, :]
        at = start[:, None, None] + 1 + tl.arange(0, WORDS)[None, :, None] * BITS + place
        byte = tl.load(encoded + at, mask=is_there[:, None, None] & (place < BITS), other=0).to(tl.int64)
        word = tl.sum(byte << (place * 8), axis=2)
        eights = ((word[:, :, None] >> (place * BITS)) & ((1 << BITS) - 1)).to(tl.int32)
        eights = tl.where(eights >> MANTISSA == 1, eights - (1 << BITS), eights)
        mantissa = tl.reshape(eights, [BLOCKS, BLOCK])

    value = _value(mantissa, shared[:, None], by, MANTISSA, DIVIDES)
    tl.store(values + element, value, mask=element < left)


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
        words = values.view(-1).view(torch.int32)
        shape = {"BLOCK": block, "MANTISSA": mantissa, "TILE": TILE, "ALIGNED": _has_words(out)}
        _encode[_programs(values.numel())](words, out, values.numel(), **shape, num_warps=WARPS)
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
        divides = divide_by & (divide_by - 1) != 0  # else it is a power of two, and its reciprocal is exact
        by = float(divide_by) if divides else 1.0 / divide_by
        shape = {"BLOCK": block, "MANTISSA": mantissa, "TILE": TILE, "ALIGNED": _has_words(encoded)}
        _decode[_programs(count)](encoded, out, count, by, **shape, DIVIDES=divides, num_warps=WARPS)
    return out


def _has_words(encoded: torch.Tensor) -> bool:
    """Whether the kernels may access it in words of 32 bits: they need an aligned tensor, and Triton 3.2."""
    return encoded.data_ptr() % 4 == 0 and hasattr(tl, "gather")


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
