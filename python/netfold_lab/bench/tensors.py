"""The tensors of a measurement: written once, read by every system, together with their exact sum."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ELEMENT_BYTES = 4
INT32_LIMIT = 1 << 20  # small enough that the sum of a thousand workers does not wrap


@dataclass(frozen=True)
class Tensor:
    """One all-reduce's data on disk."""

    name: str
    count: int
    dtype: str  # fp32 or int32
    inputs: list[Path]
    expected: Path

    @property
    def size_bytes(self) -> int:
        """Bytes of one worker's gradients in memory."""
        return self.count * ELEMENT_BYTES


def make(directory: Path, name: str, size_bytes: int, dtype: str, world: int, seed: int) -> Tensor:
    """Realistic gradients: normal, with deviation 0.01. Their sum is exact to float64."""
    import numpy as np

    count = size_bytes // ELEMENT_BYTES
    expected = np.zeros(count, np.float64)
    inputs = []
    stem = name.replace(" ", "")  # spaces separate the words of a command
    for rank in range(world):
        generator = np.random.default_rng([seed, rank])
        if dtype == "int32":
            values = generator.integers(-INT32_LIMIT, INT32_LIMIT, count, np.int32)
        else:
            values = generator.standard_normal(count, np.float32) * np.float32(0.01)
        expected += values
        path = directory / f"{stem}.{rank}.{dtype}"
        values.tofile(path)
        inputs.append(path)
    expected_path = directory / f"{stem}.sum.{dtype}"
    expected.tofile(expected_path)
    return Tensor(name, count, dtype, inputs, expected_path)


def discard(tensor: Tensor) -> None:
    """Remove a tensor's files."""
    for path in (*tensor.inputs, tensor.expected):
        path.unlink(missing_ok=True)
