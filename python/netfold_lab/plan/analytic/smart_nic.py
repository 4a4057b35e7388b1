"""An all-reduce by smart NICs in a ring ("FPGA-based AI Smart NICs", section IV-C), and the paper's two systems.

Bits are bits of the padded gradients, rates are bits or operations per second, times are in seconds.

The constants. The paper does not print them. They follow from its hardware (sections III and V-A) and from the
percentages of its Figure 4a, measured on 6 nodes with batch 448:

- 28 cores give 2.33 TFLOPS: with E, B, F and U the exposed all-reduce, backward, forward and update as parts of the
  baseline's step, 0.37 E + 0.10 B = 0.18 and 0.95 E + 0.10 B = 0.40 (the reductions of exposed and backward without and
  with bfp; the step is reduced by 18% and 40%), so E = 0.379, B = 0.397, F = 0.9 B / 2, U = 0.044; and the step without
  bfp is 0.82 = F + B/L + U/L + 20 T_ring at 40 Gbit/s. Peak is 4.3 TFLOPS at 2.4 GHz.
- updates run at 126 GB/s: U again. Six channels of DDR4-2933 have 141.
- the FPGA adds 2 G/s: its 8 adders (Table I has 8 DSPs) at 250 MHz. PCIe 3.0 x8 has 63 Gbit/s each way, and gradients
  go both ways at once.
- the paper has no formula for the baseline's all-reduce and its waiting. We use MPI's ring with `step_latency_s` per
  step and `rate_bit_s`. Workers wait for the slowest one, by `skew` of their computation for each further worker. The
  three are fitted to the baseline of Figure 4a (exposed 0.379) and to two of the published ratios (2.5 at
  32 nodes with batch 448, 1.4 with 1792). 1.8 and 1.1 then follow; 1.6 is the 0.60 of Figure 4a again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from netfold_lab.plan.analytic import iteration
from netfold_lab.plan.analytic.iteration import Step
from netfold_lab.plan.models.layers import Layer

FP32_BITS = 32
BFP_RATIO = 64 / 17  # 16 numbers of 4 bytes become 16 mantissas and an exponent


def padded_bits(parameters: int, nodes: int, bits: int = FP32_BITS) -> int:
    """R_l: b N ceil(M^2 / N), the gradients of a layer padded to N equal chunks."""
    return bits * nodes * -(-parameters // nodes)


def ring_s(gradient_bits: float, nodes: int, ethernet_bit_s: float, usable: float = 1.0, ratio: float = 1.0) -> float:
    """T_ring: R 2 (N - 1) / (N alpha BW_eth beta); `usable` is alpha, `ratio` the compression beta."""
    return gradient_bits * 2 * (nodes - 1) / (nodes * usable * ethernet_bit_s * ratio)


def add_s(gradient_bits: float, nodes: int, adds_s: float, bits: int = FP32_BITS) -> float:
    """T_add: R 2 (N - 1) / (N P_FPGA b)."""
    return gradient_bits * 2 * (nodes - 1) / (nodes * adds_s * bits)


def memory_s(gradient_bits: float, pcie_bit_s: float) -> float:
    """T_mem: 2 R / BW_pcie; gradients are read and sums are written back. BW_pcie counts both directions."""
    return 2 * gradient_bits / pcie_bit_s


@dataclass(frozen=True)
class Worker:
    """A worker's rates: floating-point operations, and bytes of memory in an update."""

    flop_s: float
    update_bytes_s: float

    def times(self, layers: Sequence[Layer], batch: int) -> tuple[list[float], list[float], list[float]]:
        """T_F, T_B and T_U of each layer."""
        return (
            [iteration.forward_s(layer, batch, self.flop_s) for layer in layers],
            [iteration.backward_s(layer, batch, self.flop_s) for layer in layers],
            [iteration.update_s(layer, self.update_bytes_s) for layer in layers],
        )


@dataclass(frozen=True)
class SmartNic:
    """A NIC that folds in a ring; `ratio` is the compression on the wire."""

    ethernet_bit_s: float
    adds_s: float
    pcie_bit_s: float
    ratio: float = 1.0
    usable: float = 1.0

    def reduce_s(self, parameters: int, nodes: int) -> float:
        """T_AR: the longest of T_ring, T_add and T_mem."""
        if nodes == 1:
            return 0.0
        bits = padded_bits(parameters, nodes)
        return max(
            ring_s(bits, nodes, self.ethernet_bit_s, self.usable, self.ratio),
            add_s(bits, nodes, self.adds_s),
            memory_s(bits, self.pcie_bit_s),
        )

    def step(self, layers: Sequence[Layer], batch: int, nodes: int, worker: Worker) -> Step:
        """A step of `nodes` workers, each with this NIC."""
        reduce = [self.reduce_s(layer.parameters, nodes) for layer in layers]
        return iteration.step(*worker.times(layers, batch), reduce)


@dataclass(frozen=True)
class HostRing:
    """The baseline: some of the worker's cores run MPI's ring, and the backward pass has fewer (section III)."""

    rate_bit_s: float
    step_latency_s: float
    backward_slowdown: float
    skew: float

    def reduce_s(self, parameters: int, nodes: int) -> float:
        """2 (N - 1) steps, each with its latency and its chunk."""
        bits = padded_bits(parameters, nodes)
        return 2 * (nodes - 1) * self.step_latency_s + ring_s(bits, nodes, self.rate_bit_s)

    def step(self, layers: Sequence[Layer], batch: int, nodes: int, worker: Worker) -> Step:
        """A step of `nodes` workers that fold among themselves; a single worker keeps all its cores."""
        forward, backward, update = worker.times(layers, batch)
        if nodes == 1:
            return iteration.step(forward, backward, update, [0.0] * len(layers))
        waits = 1 + self.skew * (nodes - 1)
        return iteration.step(
            [each * waits for each in forward],
            [each * waits * self.backward_slowdown for each in backward],
            update,
            [self.reduce_s(layer.parameters, nodes) for layer in layers],
        )


XEON = Worker(flop_s=2.33e12, update_bytes_s=126e9)
ARRIA = SmartNic(ethernet_bit_s=40e9, adds_s=8 * 250e6, pcie_bit_s=2 * 63e9)
ARRIA_BFP = SmartNic(ethernet_bit_s=40e9, adds_s=8 * 250e6, pcie_bit_s=2 * 63e9, ratio=BFP_RATIO)
XEON_RING = HostRing(rate_bit_s=36e9, step_latency_s=85e-6, backward_slowdown=1.11, skew=0.009)

SYSTEMS: dict[str, SmartNic | HostRing] = {
    "baseline": XEON_RING,
    "smart NIC": ARRIA,
    "smart NIC, bfp": ARRIA_BFP,
}
