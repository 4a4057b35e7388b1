"""A model as a list of layers, and the helper that counts parameters and operations of convolutional ones.

Operations are floating-point operations of one sample in the forward pass; a multiplication and an addition are two
operations. The backward pass takes twice as many ("FPGA-based AI Smart NICs", section IV-C: 2 and 4 per weight and
sample).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

BACKWARD_OPERATIONS = 2  # times the forward's


@dataclass(frozen=True)
class Layer:
    """`parameters`: the number of gradients; `operations`: of the forward pass of one sample. `backward_operations`: if
    they are not twice as many. `exchanged`: elements of one sample that a tensor-parallel group exchanges after it.
    `scored`: elements of one sample that the loss scores. `shared`: parameters of the first layer that it uses as well;
    a pipeline has a copy of them at its last stage. `experts`: how many share its parameters evenly, if it is a mixture
    of experts. `kept`: bytes that the backward pass needs, for each exchanged element. `moved`: bytes
    of memory that a forward pass reads and writes beside matrix products, for each exchanged element; a tensor-parallel
    group divides them. `moved_by_each`: those that each GPU of a group moves."""

    name: str
    parameters: int
    operations: float
    backward_operations: float | None = None
    exchanged: float = 0.0
    scored: float = 0.0
    shared: int = 0
    experts: int = 0
    kept: float = 17.0  # half of a block, as Korthikanti et al. count it
    moved: float = 0.0
    moved_by_each: float = 0.0


@dataclass(frozen=True)
class Model:
    """Layers in forward order; their gradients become ready in the opposite one. Of a model of text: `tokens` of a
    sample, `heads` of attention."""

    name: str
    layers: tuple[Layer, ...]
    tokens: int = 0
    heads: int = 0

    @property
    def parameters(self) -> int:
        """Gradients of all layers."""
        return sum(layer.parameters for layer in self.layers)

    @property
    def operations(self) -> float:
        """Forward operations of one sample."""
        return sum(layer.operations for layer in self.layers)


class Pictures:
    """Follows a picture through convolutions: its channels, its side in pixels, and the layers so far."""

    def __init__(self, channels: int, pixels: int) -> None:
        self.channels = channels
        self.pixels = pixels
        self.layers: list[Layer] = []

    def convolve(
        self,
        name: str,
        channels: int,
        size: int,
        stride: int = 1,
        padding: int | None = None,
        groups: int = 1,
        is_normalized: bool = False,
    ) -> Pictures:
        """A convolution with a bias, or with batch normalization in its place. Padding: the size is kept."""
        padding = size // 2 if padding is None else padding
        self.pixels = (self.pixels + 2 * padding - size) // stride + 1
        weights = self.channels // groups * size * size * channels
        extra = 2 * channels if is_normalized else channels
        self.channels = channels
        self.layers.append(Layer(name, weights + extra, 2.0 * weights * self.pixels**2))
        return self

    def pool(self, size: int, stride: int, padding: int = 0, is_ceiled: bool = False) -> Pictures:
        """Pooling: the largest or the mean of `size` x `size` pixels."""
        room = self.pixels + 2 * padding - size + (stride - 1 if is_ceiled else 0)
        self.pixels = room // stride + 1
        return self

    def branches(self, *ways: Callable[[Pictures], Pictures]) -> Pictures:
        """Parallel branches with the same input; their channels are concatenated."""
        channels, pixels = self.channels, self.pixels
        ends = []
        for way in ways:
            self.channels, self.pixels = channels, pixels
            way(self)
            ends.append((self.channels, self.pixels))
        self.channels, self.pixels = sum(each for each, _ in ends), ends[0][1]
        return self

    def connect(self, name: str, outputs: int) -> Pictures:
        """A fully connected layer with a bias; a picture before it is flattened."""
        inputs = self.channels * self.pixels**2
        self.channels, self.pixels = outputs, 1
        self.layers.append(Layer(name, inputs * outputs + outputs, 2.0 * inputs * outputs))
        return self
