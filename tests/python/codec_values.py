"""Compares the codec of the device with the core's, bit for bit: `codec_values.py SEED`.

A program of its own, because Triton reads TRITON_INTERPRET when it is imported. On a machine with an accelerator it
runs there; elsewhere the caller sets TRITON_INTERPRET=1.
"""

from __future__ import annotations

import sys

import numpy as np
import torch
from numpy.typing import NDArray

from netfold import _core
from netfold.torch import device_codec
from netfold.torch.devices import accelerator, has_accelerator

BLOCKS, MANTISSAS = (8, 16, 32, 64, 128), range(2, 8)
Floats = NDArray[np.float32]


def hostile(random: np.random.Generator, count: int) -> Floats:
    """Any 32 bits, numbers of all sizes, ties, subnormal numbers, zeros of both signs, NaN and Inf."""
    bits = random.integers(0, 2**32, count, dtype=np.uint32)
    kind = np.repeat(random.integers(0, 5, -(-count // 128)), 128)[:count]
    small = (random.integers(-(2**10), 2**10, count) * 2.0**-9).astype(np.float32)  # many ties
    scaled = np.ldexp(small, np.repeat(random.integers(-149, 127, -(-count // 128)), 128)[:count]).astype(np.float32)
    subnormal = (bits & 0x80FFFFFF).view(np.float32)  # and the smallest normal numbers
    specials = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, 1.1754944e-38, 3.4028235e38], dtype=np.float32)
    values = np.choose(kind, [bits.view(np.float32), scaled, subnormal, small, scaled]).astype(np.float32)
    rare = random.random(count) < 0.002
    values[rare] = random.choice(specials, int(rare.sum()))
    return values


def compare(values: Floats, block: int, mantissa: int, device: str, divide_by: int = 1) -> None:
    """Raises AssertionError that names the shape and the first element that differs."""
    wanted = _core.encode(values, block, mantissa)
    encoded = device_codec.encode(torch.from_numpy(values).to(device), block, mantissa)
    shifted = torch.empty(wanted.size + 1, dtype=torch.uint8, device=device)[1:]
    device_codec.encode(torch.from_numpy(values).to(device), block, mantissa, out=shifted)
    for each in (encoded, shifted):  # in words of 32 bits, and in bytes
        different = np.flatnonzero(each.cpu().numpy() != wanted)
        assert different.size == 0, f"bfp<{block},{mantissa}>: byte {different[:1]} of {wanted.size}"
    plain = _core.decode(wanted, values.size, block, mantissa) / np.float32(divide_by)
    for each in (encoded, shifted):
        decoded = device_codec.decode(each, values.size, block, mantissa, divide_by=divide_by).cpu().numpy()
        same = (decoded.view(np.uint32) == plain.view(np.uint32)) | (np.isnan(decoded) & np.isnan(plain))
        different = np.flatnonzero(~same)
        assert different.size == 0, f"bfp<{block},{mantissa}> decoded: element {different[:1]}"


def main() -> None:
    """All shapes over few values, and the usual shape over a million."""
    random = np.random.default_rng(int(sys.argv[1]))
    has_device = has_accelerator()
    device = accelerator() if has_device else "cpu"
    for count in (1, 7, 16, 4096, 4097):
        for divide_by in (1, 4, 5):
            compare(hostile(random, count), 16, 7, device, divide_by)
    for block in BLOCKS:  # whole tiles, and a rest
        compare(hostile(random, 3 * device_codec.TILE + int(random.integers(1, 4096))), block, 7, device)
    if not has_device:
        device_codec.TILE = 32768  # the interpreter is slow by the program, not by the element
    for block in BLOCKS:
        for mantissa in MANTISSAS:
            compare(hostile(random, 10_000 + int(random.integers(block))), block, mantissa, device, divide_by=3)
    compare(hostile(random, 1_000_003), 16, 7, device, divide_by=8)
    print(f"the same bits on {device}")


main()
