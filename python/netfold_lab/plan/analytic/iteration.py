"""One training step of a worker ("FPGA-based AI Smart NICs", section IV-C): computation, all-reduces, their overlap.

All times in seconds. Layers are numbered as in the paper, 1 first in the forward pass; the backward pass begins with
the last layer L. While the all-reduce of layer l runs, the worker updates layer l + 1 and computes the gradients of
layer l - 1, so an all-reduce is exposed for the time that exceeds those two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from netfold_lab.plan.models.layers import BACKWARD_OPERATIONS, Layer


def forward_s(layer: Layer, batch: int, worker_flop_s: float) -> float:
    """T_F: 2 M^2 B / P_worker for an M x M layer."""
    return layer.operations * batch / worker_flop_s


def backward_s(layer: Layer, batch: int, worker_flop_s: float) -> float:
    """T_B: 4 M^2 B / P_worker, gradients of the weights and of the layer's input."""
    if layer.backward_operations is not None:
        return layer.backward_operations * batch / worker_flop_s
    return BACKWARD_OPERATIONS * forward_s(layer, batch, worker_flop_s)


def update_s(layer: Layer, update_bytes_s: float, bytes_per_weight: float = 12.0) -> float:
    """T_U, linear in the layer's size: reads gradient and weight, writes the weight, at the worker's memory
    bandwidth."""
    return layer.parameters * bytes_per_weight / update_bytes_s


@dataclass(frozen=True)
class Step:
    """A step's seconds by part; `exposed_s` is the time of all-reduces that computation does not hide."""

    forward_s: float
    backward_s: float
    update_s: float
    exposed_s: float
    reduce_s: float

    @property
    def total_s(self) -> float:
        """T_total."""
        return self.forward_s + self.backward_s + self.update_s + self.exposed_s


def step(forward: Sequence[float], backward: Sequence[float], update: Sequence[float], reduce: Sequence[float]) -> Step:
    """T_total of section IV-C from the four times of each layer, first layer first. All lists have the same length, at
    least one.

    Sum of T_F, plus T_B of layer L, plus max(T_B(L-1), T_AR(L)), plus max(T_U(l+1) + T_B(l-1), T_AR(l)) for
    l = L-1 .. 2, plus max(T_U(2), T_AR(1)), plus T_U(1).
    """
    last = len(forward) - 1
    exposed = 0.0
    for layer in range(last, -1, -1):
        updated = update[layer + 1] if layer < last else 0.0
        computed = backward[layer - 1] if layer > 0 else 0.0
        exposed += max(0.0, reduce[layer] - updated - computed)
    return Step(sum(forward), sum(backward), sum(update), exposed, sum(reduce))
