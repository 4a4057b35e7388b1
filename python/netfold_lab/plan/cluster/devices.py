"""Devices of workers: sustained rates in training, not peaks.

`flop_s` follows from published training rates. `update_bytes_s` is the memory bandwidth of an optimizer. `fold_bytes_s`
is the rate at which received gradients are added to local ones. Of devices that are sold with several sizes of memory,
`memory_bytes` is the largest; GPUs are sold by powers of two, so 80 GB are 80 GiB, 85.9 GB.

A rate of training includes what a model does beside its matrix products, which the memory bounds. With `moved_bytes_s`
that is counted apart; then `flop_s` is the rate of only the matrix products.

Models of text compute two to three times as fast as ResNet-50. `text_flop_s` is their rate: that of the published
trainings to which it is fitted (docs/reference/papers/nccl.md).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

GIBI = 2.0**30
UPDATE_BYTES = 12.0  # of a weight: the gradient and the weight are read, the weight is written


@dataclass(frozen=True)
class Device:
    """Rates per second: operations, bytes of memory in updates, bytes of one operand folded. The size of its memory.
    `moved_bytes_s`: bytes of memory beside matrix products; 0: not counted apart."""

    flop_s: float
    update_bytes_s: float
    fold_bytes_s: float
    memory_bytes: float = 0.0  # 0: unknown
    moved_bytes_s: float = 0.0
    text_flop_s: float = 0.0  # 0: no training of a model of text is known

    def slower(self, factor: float) -> Device:
        """The same device, if computation and updates take so many times as long."""
        rates = (self.flop_s, self.update_bytes_s, self.moved_bytes_s)
        flop_s, update_bytes_s, moved_bytes_s = (each / factor for each in rates)
        return replace(self, flop_s=flop_s, update_bytes_s=update_bytes_s, moved_bytes_s=moved_bytes_s)


DEVICES = {
    # ResNet-50 on 64 of EFLOPS' V100s: 81,027 images/s (Figure 13), 24.5 GFLOP each
    "v100": Device(31e12, 750e9, 150e9, 32 * GIBI),
    # MLPerf 0.7 to 2.0: about 2,900 images/s of ResNet-50 on one A100
    "a100": Device(71e12, 1300e9, 250e9, 80 * GIBI, text_flop_s=183e12),
    # about twice as fast in MLPerf 3.0
    "h100": Device(140e12, 2000e9, 400e9, 80 * GIBI, text_flop_s=400e12),
    # ResNet-50 in fp32 on a GeForce RTX 2080: about 230 images/s
    "rtx2080": Device(5.6e12, 370e9, 80e9, 8 * GIBI),
    # 28 cores of a Xeon Platinum 8280, see plan/analytic/smart_nic.py
    "xeon8280": Device(2.33e12, 126e9, 10e9),
}
