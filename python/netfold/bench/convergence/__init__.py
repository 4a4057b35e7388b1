"""`netfold bench convergence`: what coarse gradients do to training, with and without error feedback.

Real jobs, trained to the end on several workers: `tasks` says what is learned, `runs` how gradients travel, `worker` is
a rank, `measure` asks for one epoch after the other.
"""

from netfold.bench.convergence.command import register

__all__ = ["register"]
