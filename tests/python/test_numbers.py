"""Compares the codec and the fold of the compiled core with a numpy model of the specification."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import netfold
from numbers_model import decode, encode, fold_pairwise, round_bf16, round_fp16, same_bits

core = pytest.importorskip("netfold._core", reason="needs the compiled core: make build")

GOLDEN = Path(__file__).parents[1] / "vectors" / "bfp.json"
SHAPES = st.tuples(st.sampled_from([8, 16, 32, 64, 128]), st.integers(2, 7))
PATTERNS = st.one_of(
    st.integers(0, 2**32 - 1),  # any bits
    st.sampled_from([0, 0x80000000, 0x7F800000, 0xFF800000, 0x7FC00001, 0x7F7FFFFF, 1, 0x007FFFFF, 0x03800000]),
    st.integers(0x3E000000, 0x40000000),  # ordinary magnitudes
    st.integers(0, 0x05000000),  # around the smallest exponents that are kept
)


@st.composite
def floats(draw: st.DrawFn, max_size: int = 300) -> np.ndarray:
    """A few random values, or many from a seed, in which blocks of special and ordinary values alternate."""
    if draw(st.booleans()):
        return np.array(draw(st.lists(PATTERNS, max_size=40)), np.uint32).view(np.float32)
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    count = draw(st.integers(0, max_size))
    values = (random.standard_normal(count) * 10.0 ** random.integers(-30, 30)).astype(np.float32)
    values[random.random(count) < draw(st.sampled_from([0, 0.02]))] = random.choice([np.inf, -np.inf, np.nan])
    values[random.random(count) < 0.1] = 0
    return values


@settings(max_examples=300, deadline=None)
@given(floats(), SHAPES)
def test_encode_writes_the_bytes_of_the_specification(x: np.ndarray, shape: tuple[int, int]) -> None:
    """Section 2, encode."""
    np.testing.assert_array_equal(netfold.encode(x, *shape), encode(x, *shape))


@settings(max_examples=300, deadline=None)
@given(floats(), SHAPES)
def test_decode_gives_the_values_of_the_specification(x: np.ndarray, shape: tuple[int, int]) -> None:
    """Section 2, decode."""
    data = encode(x, *shape)
    assert same_bits(netfold.decode(data, x.size, *shape), decode(data, x.size, *shape))


@settings(max_examples=100, deadline=None)
@given(floats(), SHAPES)
def test_what_is_decoded_encodes_to_itself(x: np.ndarray, shape: tuple[int, int]) -> None:
    """Rounding happens once: the format can represent every number of a decoded block."""
    once = netfold.decode(netfold.encode(x, *shape), x.size, *shape)
    again = netfold.decode(netfold.encode(once, *shape), x.size, *shape)
    assert same_bits(once, again)


@settings(max_examples=100, deadline=None)
@given(st.lists(floats(), min_size=1, max_size=17), st.sampled_from(["fp32", "fp16", "bf16", "bfp"]))
def test_fold_sums_in_the_order_of_the_specification(arrays: list[np.ndarray], wire: str) -> None:
    """Section 3: decoded, folded in FP32, rounded once."""
    count = min(array.size for array in arrays)
    arrays = [array[:count].copy() for array in arrays]
    rounded = {
        "fp32": lambda x: x,
        "fp16": round_fp16,
        "bf16": round_bf16,
        "bfp": lambda x: decode(encode(x), x.size),
    }[wire]
    expected = rounded(fold_pairwise([rounded(array) for array in arrays]).astype(np.float32))
    assert same_bits(netfold.fold(arrays, format=wire), expected)


@given(st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=40))
def test_integers_wrap(values: list[int]) -> None:
    """Section 3: modulo 2^32."""
    arrays = [np.array([value, -1], np.int32) for value in values]
    expected = (sum(values) + 2**31) % 2**32 - 2**31
    assert netfold.fold(arrays, format="int32").tolist()[0] == expected


def test_golden_bytes() -> None:
    """The same bytes as in the tests of C++, RTL and the GPU."""
    for case in json.loads(GOLDEN.read_text())["cases"]:
        x = np.array([int(word, 16) for word in case["input"]], np.uint32).view(np.float32)
        shape = (case["block"], case["mantissa"])
        wire = np.frombuffer(bytes.fromhex(case["wire"]), np.uint8)
        decoded = np.array([int(word, 16) for word in case["decoded"]], np.uint32).view(np.float32)
        np.testing.assert_array_equal(netfold.encode(x, *shape), wire, err_msg=case["name"])
        np.testing.assert_array_equal(encode(x, *shape), wire, err_msg=case["name"])
        assert same_bits(netfold.decode(wire, x.size, *shape), decoded), case["name"]


def test_stochastic_rounding_is_fair_and_repeats() -> None:
    """The mean of decoded values is the original; equal seed and index give equal bytes, wherever a chunk starts."""
    x = np.full(1 << 16, 0.3, np.float32)
    x[::16] = 1.0  # the block's exponent: a mantissa is worth 1/64
    data = netfold.encode(x, seed=7)
    decoded = netfold.decode(data, x.size)
    assert set(np.unique(decoded).tolist()) == {19 / 64, 20 / 64, 1.0}
    assert abs(decoded[x != 1.0].mean() - 0.3) < 5 * (1 / 64) * 0.5 / np.sqrt(x.size)
    np.testing.assert_array_equal(netfold.encode(x[160:], seed=7, first_index=160), data[170:])
    assert not np.array_equal(netfold.encode(x, seed=8), data)


@pytest.mark.parametrize(("dtype", "name"), [("float32", "fp32"), ("float16", "fp16"), ("int32", "int32")])
def test_what_travels_in_its_own_format_comes_back(dtype: str, name: str) -> None:
    """unpack reverses pack, and both have the bytes of the array."""
    x = np.arange(-50, 51).astype(dtype)
    data = core.pack(x, name)
    assert data.tobytes() == x.tobytes()
    np.testing.assert_array_equal(core.unpack(data, x.size, name, name), x)


def test_an_average_is_rounded_once() -> None:
    """fp16 from bfp: divided in FP32, then rounded."""
    x = np.array([1, 3, -5, 100], np.float32)
    averaged = core.unpack(netfold.encode(x), 4, "bfp", "fp16", divide_by=3)
    np.testing.assert_array_equal(averaged, (x / np.float32(3)).astype(np.float16))
    integers = core.unpack(core.pack(np.array([-7, 7], np.int32), "int32"), 2, "int32", "int32", divide_by=2)
    assert integers.tolist() == [-3, 3]  # towards zero


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: netfold.encode(np.zeros(4, np.float32), block=12), "block"),
        (lambda: netfold.encode(np.zeros(4, np.float32), mantissa=8), "mantissa"),
        (lambda: netfold.encode(np.zeros(4, np.complex64)), "real numbers"),
        (lambda: netfold.decode(np.zeros(16, np.uint8), 16), "17 bytes, got 16"),
        (lambda: netfold.decode(np.zeros(17, np.int8), 16), "uint8"),
        (lambda: netfold.decode(bytes([3] + [0] * 16), 16), "malformed"),
        (lambda: netfold.fold([]), "each of"),
        (lambda: netfold.fold([np.zeros(3, np.float32), np.zeros(4, np.float32)]), "rank 1"),
        (lambda: netfold.fold([np.zeros(3, np.float32)], format="int32"), "int32"),
        (lambda: netfold.fold([np.zeros(3, np.float32)], format="fp8"), "fp8"),
        (lambda: core.pack(np.zeros(3, np.float32), "int32"), "cannot travel"),
        (lambda: core.unpack(bytes(4), 1, "fp32", divide_by=0), "divide_by"),
    ],
)
def test_wrong_arguments_are_said_to_be_wrong(call: Callable[[], object], sentence: str) -> None:
    """A ValueError that names what is wrong."""
    with pytest.raises(ValueError, match=sentence):
        call()


def test_shapes_are_kept_and_slices_accepted() -> None:
    """A fold has the shape of its arrays; arrays that are not contiguous are read too."""
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    np.testing.assert_array_equal(netfold.fold([x, x]), 2 * x)
    np.testing.assert_array_equal(netfold.encode(x[:, ::2]), encode(x[:, ::2].ravel()))
