"""`netfold bench train`: the parts of a training step's time, with real PyTorch forward and backward passes.

After "FPGA-based AI Smart NICs", sections III and V-B, and "EFLOPS", section VII-B. The coordinator (`profile`,
`workers`) builds a lab and tells worker processes (`worker`) which step to run next. `workload`, `buckets` and
`step_timer` implement the step; `variants` lists the ways to exchange gradients; `rates` scales the link's rate to the
computation.
"""

from netfold_lab.bench.train.command import register

__all__ = ["register"]
