"""How far a prediction may be off, from measurements that nothing was fitted to.

Communication: the largest miss of those measurements. Where routes are hashed, the fastest and the slowest seed count
as well. Computation: no device was checked by a training run here, so its error is an assumption, unless the cluster
file states the rate.
"""

from __future__ import annotations

from dataclasses import dataclass

from netfold_lab.plan.cluster.spec import Cluster
from netfold_lab.plan.step import closed

CHECKED_IN_LABS = 0.05  # docs/measurements: planner-and-labs, tensors from 256 KiB; shared-with-a-switch, 16 MiB
NCCL = 0.24  # docs/reference/papers/nccl.md: nine of ten times, from 1 MiB on, that nothing was fitted to
HELD_OUT = 0.29  # Figure 12 of EFLOPS, ring and HDRM: the largest miss of what nothing was fitted to (papers' page)
DEVICE = 0.25


@dataclass(frozen=True)
class Errors:
    """The relative errors of communication and of computation, and their reasons."""

    communication: float
    computation: float
    reasons: tuple[str, ...]


def errors_of(cluster: Cluster, algorithm: str = "") -> Errors:
    """The errors of a cluster's predictions with an algorithm."""
    if algorithm == closed.MEASURED and cluster.measured is not None:
        communication = max(CHECKED_IN_LABS, cluster.measured.off)
        why = f"the largest miss of the curve at the {cluster.measured.points} sizes of {cluster.measured.source}"
    elif algorithm.startswith(closed.NCCL):
        communication, why = NCCL, "nine of ten published times of NCCL, of 1 MiB or more, to which nothing was fitted"
    elif cluster.software.calibrated_off is not None:
        communication = max(CHECKED_IN_LABS, cluster.software.calibrated_off)
        why = "the largest miss of the calibration at sizes that it was not fitted to"
    elif "software.step_latency_us" in cluster.told:
        communication, why = CHECKED_IN_LABS, "the largest miss in labs of rate-limited links, 256 KiB and more"
    else:
        communication = HELD_OUT
        why = (
            "the time of a message is assumed; the largest miss of a value of EFLOPS' Figure 12 that was not fitted to"
        )
    reasons = [f"communication {communication:.0%} either way: {why}"]
    if "compute.tflop_s" in cluster.told:
        return Errors(communication, 0.0, (*reasons, "computation as the cluster file states it"))
    reasons.append(
        f"computation {DEVICE:.0%} either way: assumed, because no training run has checked the device's rate"
    )
    return Errors(communication, DEVICE, tuple(reasons))
