"""Block floating point on the device: the core's bits, by Triton's interpreter or on a GPU; and that it compiles."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from netfold.torch.devices import has_accelerator
from repository import ROOT

pytest.importorskip("triton")

COMPILE = """
import sys
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
import triton
from netfold.torch import device_codec

target = GPUTarget(*eval(sys.argv[1]))
shape = {"BLOCK": 16, "MANTISSA": 7, "TILE": device_codec.TILE, "ALIGNED": True}
encode = {"values": "*i32", "encoded": "*u8", "count": "i32"}
decode = {"encoded": "*u8", "values": "*fp32", "count": "i32", "by": "fp32"}
kernels = [(device_codec._encode, encode, shape)]
kernels += [(device_codec._decode, decode, {**shape, "DIVIDES": divides}) for divides in (False, True)]
for kernel, types, constants in kernels:
    source = ASTSource(kernel, {**types, **dict.fromkeys(constants, "constexpr")}, constants)
    text = triton.compile(source, target=target).asm
    assert ".ftz" not in text.get("ptx", ""), "small numbers would be flushed to zero"
    print(kernel.__name__, len(text.get("cubin") or text["hsaco"]))
"""


def run(*arguments: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
        env=os.environ | environment,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_the_interpreter_gives_the_cores_bits(seed: int) -> None:
    if has_accelerator():
        pytest.skip("the GPU runs the same test")
    said = run(str(ROOT / "tests/python/codec_values.py"), str(seed), TRITON_INTERPRET="1")
    assert said == "the same bits on cpu\n"


@pytest.mark.gpu
def test_the_gpu_gives_the_cores_bits(seed: int) -> None:
    assert "the same bits on" in run(str(ROOT / "tests/python/codec_values.py"), str(seed))


@pytest.mark.parametrize("target", ["('cuda', 80, 32)", "('hip', 'gfx942', 64)"])
def test_the_kernels_compile_without_a_gpu(target: str, tmp_path: Path) -> None:
    said = run("-W", "ignore", "-c", COMPILE, target, TRITON_CACHE_DIR=str(tmp_path))
    assert [line.split()[0] for line in said.splitlines()] == ["_encode", "_decode", "_decode"]


def test_tensors_that_do_not_fit_are_refused() -> None:
    from netfold.torch import device_codec

    with pytest.raises(ValueError, match=r"contiguous tensor with torch\.float32"):
        device_codec.encode(torch.ones(4, dtype=torch.float64))
    with pytest.raises(ValueError, match="contiguous"):
        device_codec.encode(torch.ones(4, 4).t())
    with pytest.raises(ValueError, match="power of two"):
        device_codec.encode(torch.ones(4), block=10)
    with pytest.raises(ValueError, match="17 elements"):
        device_codec.decode(torch.ones(4, dtype=torch.uint8), 16)
