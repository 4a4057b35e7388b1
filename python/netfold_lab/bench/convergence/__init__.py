"""`netfold bench convergence`: the effect of coarse gradients on training, with and without error feedback.

Real jobs are trained to the end on several workers. `tasks` has the models and data, `runs` the formats of gradients,
`worker` is a rank, and `measure` runs one epoch after the other.
"""

from netfold_lab.bench.convergence.command import register

__all__ = ["register"]
