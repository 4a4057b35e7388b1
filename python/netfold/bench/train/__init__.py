"""`netfold bench train`: where the time of a training step goes, with real PyTorch forward and backward passes.

After "FPGA-based AI Smart NICs", sections III and V-B, and "EFLOPS", section VII-B. The coordinator (`profile`,
`crew`) builds a lab and tells worker processes (`worker`) which step to take next; `workload`, `buckets` and `laps`
are the step; `variants` says how gradients may be exchanged; `rates` puts link and computation in proportion.
"""

from netfold.bench.train.command import register

__all__ = ["register"]
