"""Writes bfp.json: floats, their block floating point bytes and the decoded floats, by the numpy model of the tests.

Run from the repository's root: python tests/vectors/make_bfp.py. The file is checked in; a change of it is a change of
the wire format.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).parent
sys.path.insert(0, str(FOLDER.parent / "python"))

from numbers_model import decode, encode  # noqa: E402

TINY, LARGEST, INF, NAN = 1e-45, 3.4028234663852886e38, float("inf"), float("nan")


def awkward() -> Iterator[tuple[str, list[float], int, int]]:
    """Typical mistakes of an implementation, in the default shape unless the case is about the shape."""
    yield "empty", [], 16, 7
    yield "zeros of both signs", [0.0, -0.0] * 8, 16, 7
    yield "one element, padded", [1.0], 16, 7
    yield "a block and a padded one", [float(i) for i in range(17)], 16, 7
    yield "ties to even", [127.0, *(i + 0.5 for i in range(-7, 8))], 16, 7
    yield "rounds up to the limit and is clamped", [127.4, 127.5, 127.9, -127.4, -127.5, -127.9], 16, 7
    yield "subnormals alone", [TINY, -TINY, 1e-39], 16, 7
    yield "a subnormal beside one", [TINY, 1.0], 16, 7
    for mantissa in (2, 7):
        below = float(np.ldexp(1.0, mantissa - 1 - 127))
        yield f"exponent {mantissa - 1}, too small for mantissa {mantissa}", [below, -1.99 * below], 16, mantissa
        yield f"exponent {mantissa}, the smallest for it", [2 * below, -3.98 * below, TINY], 16, mantissa
    yield "the largest", [LARGEST, -LARGEST, LARGEST / 2, LARGEST / 3, 1.0], 16, 7
    yield "the largest, short mantissa", [LARGEST, -LARGEST, LARGEST / 2, LARGEST / 3, 1.0], 8, 2
    yield "Inf in the first of two blocks", [1.0, INF, *[2.0] * 15], 16, 7
    yield "minus Inf", [-INF, 1.0], 16, 7
    yield "NaN in the second of two blocks", [*[1.0] * 16, NAN, 3.0], 16, 7
    yield "mantissas of 3 bits lie across bytes", [3.0, -3.0, 1.0, -1.0, 2.0, -2.0, 0.0, 1.5], 8, 2


def ordinary() -> Iterator[tuple[str, list[float], int, int]]:
    """Every shape: a whole block and three elements of the next."""
    random = np.random.default_rng(1)
    for block in (8, 16, 32, 64, 128):
        for mantissa in range(2, 8):
            values = random.standard_normal(block + 3) * np.exp2(random.integers(-4, 3, block + 3))
            yield f"bfp<{block}, {mantissa}>", values.tolist(), block, mantissa


def words(values: np.ndarray) -> list[str]:
    """Floats as the hexadecimal digits of their bits; one NaN stands for all."""
    bits = np.where(np.isnan(values), np.uint32(0x7FC00000), values.view(np.uint32))
    return [f"{word:08x}" for word in bits]


def main() -> None:
    """Write the file."""
    cases = []
    for name, values, block, mantissa in (*awkward(), *ordinary()):
        x = np.array(values, np.float32)
        wire = encode(x, block, mantissa)
        case = {"name": name, "block": block, "mantissa": mantissa, "input": words(x), "wire": wire.tobytes().hex()}
        cases.append(case | {"decoded": words(decode(wire, x.size, block, mantissa))})
    about = "Words are the bits of float32; wire is bytes in order; any NaN equals any other."
    lines = ",\n".join("  " + json.dumps(case) for case in cases)
    (FOLDER / "bfp.json").write_text(f'{{"about": "{about}", "cases": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
